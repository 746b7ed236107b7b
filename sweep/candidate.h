// From a point of the space to a trainable architecture that meets the budget exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/shape/count.h"
#include "sweep/schedule_request.h"
#include "sweep/spec.h"

namespace tailor::sweep {

/// One architecture of a sweep, before seeds.
struct Candidate {
  std::string name;  ///< given, or made of its point: "ffn.k=4 d_model=768"
  Point point;
  shape::Architecture architecture;
  protocol::TrainSpec train;
  shape::Counts counts;
  std::int64_t budget_error = 0;  ///< budgeted parameters minus the budget
  std::string hash;  ///< SHA-256 of architecture and recipe: equal hashes are trained once
  /// Its widths are to be cut from a measurement. Until then `architecture` has uniform ones, of
  /// the same budget, and `hash` is `waiting_hash`'s: it is nobody's twin.
  bool waiting = false;
};

/// Applies `point` on top of [architecture], builds the width schedule, solves the budget and
/// checks the constraints of [space], those only for points that are no [[candidate]] of the file.
/// Errors: kInvalidArgument / kOutOfRange with the reason ("misses the budget by 1,152 parameters;
/// ..."), which makes the point infeasible, not the sweep wrong.
Result<Candidate> resolve(const Spec& spec, const std::string& name, const Point& point);

/// The budgeted parameters of `point` as its keys say, without any budget. Errors: as
/// `build_architecture`. REQUIRES: spec.budget.
Result<std::int64_t> parameters_as_given(const Spec& spec, const Point& point);

/// SHA-256 of everything that changes what a trial computes, but for its seed and data.
std::string identity_hash(const shape::Architecture& architecture,
                          const protocol::TrainSpec& train);

/// Of a candidate whose widths are not known yet.
std::string waiting_hash(const std::string& name, const shape::Architecture& architecture,
                         const protocol::TrainSpec& train);

/// Of a candidate whose widths came out as those of one that is trained with too few seeds: it is
/// trained all the same.
std::string again_hash(const std::string& name, const shape::Architecture& architecture,
                       const protocol::TrainSpec& train);

/// `waiting` with the widths that were cut for it. Errors: kOutOfRange when they do not meet the
/// budget as the uniform ones did.
Result<Candidate> with_widths(const Candidate& waiting, std::vector<shape::LayerWidths> widths);

/// The request of a candidate of the file whose widths are cut; nullopt for others.
std::optional<ScheduleRequest> schedule_of(const Spec& spec, const Point& point);

/// A candidate as it was stored: its architecture is taken as it is, whatever `resolve` would make
/// of the point now; only the recipe comes from the file. `budget_error` is not known and stays 0.
/// Errors: kFailedPrecondition when architecture and recipe do not have the stored hash; those of a
/// point that is not of this file.
Result<Candidate> restore(const Spec& spec, std::string name, Point point,
                          shape::Architecture architecture, std::string hash);

/// True for a [[candidate]] of the file, false for a point of its [space].
bool is_from_file(const Spec& spec, const std::string& name, const Point& point);

/// The reason of `resolve` without what is of the one point: the constraint alone, "N" for numbers.
/// Points that fell away for one cause have one text, so that they can be counted.
std::string reason_kind(std::string_view reason);

/// The learning rate that `train.optimizer.lr_mode` = "step_law" sets: 1.79 N^-0.713 D^0.307 for N
/// parameters (of the body) and D tokens (arXiv 2503.04715, fitted to 60M to 1B parameters and 2B
/// to 100B tokens: outside it is an extrapolation).
double step_law_lr(double parameters, double tokens);

/// Every named candidate resolved, as `named_in_order` has them. Errors name the candidate.
Result<std::vector<Candidate>> resolve_named(const Spec& spec);

/// The spec of one trial; `measured`: a schedule needs its measurement. Ids, token, device and
/// threads are filled in later.
protocol::TrialSpec make_trial_spec(const Spec& spec, const Candidate& candidate,
                                    std::uint64_t seed, bool measured = false);

}  // namespace tailor::sweep
