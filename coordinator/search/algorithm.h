// Algorithm: proposes points of a sweep's space. One algorithm a file, one line in table.cc.
//
// A worked sequence:
//   auto a = make_algorithm("random", spec);    // fresh
//   a->suggest(2)      -> {p0, p1}              // proposes and moves its cursor on
//   a->save()          -> "2"                   // stored in the same transaction as the trials
//                                               // made of them
//   ... restart ...
//   a->load("2"); a->update({{p0, 3.1}});       // a finished trial, told exactly once
//   a->suggest(1)      -> {p2}                  // what it would have given without the restart
//
// Pure and deterministic: the same spec, state and updates give the same suggestions.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sweep/spec.h"

namespace tailor::search {

/// The outcome of one candidate (mean over its finished seeds).
/// NaN or missing is an ordinary outcome.
struct Observation {
  sweep::Point point;
  std::optional<double> objective;  ///< nullopt = failed without one
};

/// A candidate of the sweep as its rows have it.
struct Recalled {
  sweep::Point point;
  std::string hash;
  bool named = false;               ///< from a [[candidate]]: learned of, not proposed
  bool told = false;                ///< its outcome was heard
  std::optional<double> objective;  ///< as in Observation, when told
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  /// Hears of finished candidates, each exactly once over the life
  /// of the sweep (its effect is in `save`).
  virtual void update(std::span<const Observation> finished) = 0;
  /// The candidates that there are, in their order: the named ones of a new sweep, or all before
  /// `load`. An algorithm that learns nothing need not listen.
  virtual void recall(std::span<const Recalled> /*candidates*/) {}
  /// True when it wants `recall`, and to be asked as late as can be: when a slot is free.
  virtual bool learns() const { return false; }
  /// At most `count` further points; fewer or none means the space or the budget
  /// of the sweep is used up.
  virtual std::vector<sweep::Point> suggest(std::size_t count) = 0;
  /// The point that `suggest` gave last is no candidate: infeasible, or the same architecture as an
  /// earlier one. It does not count: where there is another, that is given for it.
  virtual void refuse() = 0;
  /// True when asking on gives every point of the space in the end, so that a long row of refused
  /// points says nothing about those to come.
  virtual bool exhausts_space() const = 0;
  /// Candidates still to come at most, where that is known; nullopt otherwise.
  virtual std::optional<std::uint64_t> remaining() const = 0;
  /// Why it ended before `search.trials` were found; "" = it did not.
  virtual std::string_view why() const { return {}; }
  /// The whole state as text.
  virtual std::string save() const = 0;
  /// Continues from `save`. Errors: kDataLoss for a text that `save` cannot have given.
  virtual Status load(std::string_view state) = 0;
};

/// Factory by name, from table.cc ("grid", "random") or of suggest.h ("tpe", "gp", ...).
/// Errors: kInvalidArgument with the nearest name.
Result<std::unique_ptr<Algorithm>> make_algorithm(std::string_view name, const sweep::Spec& spec);

/// The names of table.cc in its order: those that keep a state of their own.
std::vector<std::string_view> algorithm_names();

}  // namespace tailor::search
