// A work profile as JSON: all that was measured and all that it was measured with, so that another
// program can use it and nothing has to be measured again.
//
//   {"format": "tailor-work-profile", "version": 3,
//    "tokens": n, "linear_tokens": ..., "subsamples": R', "subsamples_asked": R, "usable": N,
//    "sequences": G, "sequences_given": true, "subsample_tokens": [...], "no_error": "",
//    "rho": ..., "seed": ..., "dropped": ...,
//    "entries": [{"layer": 0, "sub_block": -1, "geometry": "raw", "statistic": "shift",
//                 "value": ..., "standard_error": ..., "subsample_values": [...]}, ...],
//                (of "gromov" also "energies": {"energy": E, "identity": E(identity),
//                 "identity_ratio": ..., "lower_bounds": {"norm": ..., "second": ...,
//                 "third": ...}, "certified": of how many subsamples})
//    "subsample_positions": [[...], ...]}
//
// A standard error that cannot be known is null, and the entry's "no_error" says why.
//
// Keys that are not named here may stand beside these (the trainer adds step, sequence_length and
// where each position lies in the data); the reader passes over them. Versions 1 and 2 are read,
// too: their subsamples could overlap or share sequences, so their errors are not believed (none,
// with kEarlierErrors); version 1 could lack linear_tokens. Numbers keep all their digits.
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
/// "standard_error"}}}, of several layers "front_load": {geometry: {statistic: {"value",
/// "standard_error"}}}. An error that cannot be known is null, with "no_error"; what JSON cannot
/// say of a number is a text.
nlohmann::ordered_json work_measurement_json(const WorkProfile& profile);

}  // namespace tailor::geometry
