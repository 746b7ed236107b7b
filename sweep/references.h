// References: the candidates whose measurements others' schedules are cut from. They are written
// out when a file is read, so that a sweep with stages is an ordinary list of candidates with an
// order:
//
//   no `from`     the same keys with uniform widths: a candidate of the file that is the same, or
//                 an inserted one, "reference of NAME"
//   iterate = n   inserted candidates "NAME, iteration 1" ... n, each cut from the one before it
//                 (the first from the reference) and measured; NAME is cut from the last
//
// An inserted candidate is trained with the seeds that are measured, not with all. Pure.
#pragma once

#include <vector>

#include "base/status.h"
#include "protocol/trial_spec.h"
#include "sweep/candidate.h"
#include "sweep/spec.h"

namespace tailor::sweep {

/// Errors: what is wrong, and with which candidate of the file.
struct ReferenceError {
  std::size_t candidate = 0;
  Status status;
};
/// Completes `spec.candidates`. Nullopt when all is well.
std::optional<ReferenceError> insert_references(Spec& spec);

/// The candidates of the file in the order in which they are made: the baseline, those that others
/// are cut from, the rest.
std::vector<const NamedCandidate*> named_in_order(const Spec& spec);

/// What is measured of a trial that a schedule needs: all layers, with their dimensions.
protocol::GeometrySpec reference_geometry(const Spec& spec);

/// Names a measurement whatever the sweep: SHA-256 of the candidate's identity, the data, the seed
/// and what is measured. Equal keys are one measurement.
std::string measurement_key(const std::string& candidate_hash, const protocol::DataSpec& data,
                            std::uint64_t seed, const protocol::GeometrySpec& geometry);

}  // namespace tailor::sweep
