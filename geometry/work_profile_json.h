// A work profile as JSON: all that was measured and all that it was measured with, so that another
// program can use it and nothing has to be measured again.
//
//   {"format": "tailor-work-profile", "version": 2,
//    "tokens": n, "linear_tokens": ..., "subsamples": R, "rho": ..., "seed": ..., "dropped": ...,
//    "entries": [{"layer": 0, "sub_block": -1, "geometry": "raw", "statistic": "shift",
//                 "value": ..., "standard_error": ...}, ...],
//    "subsample_positions": [[...], ...]}
//
// Keys that are not named here may stand beside these (the trainer adds step, sequence_length and
// where each position lies in the data); the reader passes over them. Version 1, which could lack
// linear_tokens, is read too. Numbers keep all their digits.
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "geometry/work_profile.h"

namespace tailor::geometry {

/// One line without an end of line.
std::string work_profile_json(const WorkProfile& profile);

/// Reads it back. Errors: kInvalidArgument naming the key that is missing, of the wrong kind, or
/// outside its range; kUnimplemented for a newer version.
Result<WorkProfile> work_profile_from_json(std::string_view json);

/// A measurement for people and scripts, as `tailor geometry work --json` prints it: entries and
/// what they were measured with; of a single layer also {geometry: {statistic: {"value",
/// "standard_error"}}}. An error of one subsample is null; what JSON cannot say of a number is a
/// text.
nlohmann::ordered_json work_measurement_json(const WorkProfile& profile);

}  // namespace tailor::geometry
