// Records files: one JSON object a line and item, so that runs can be compared item by item later.
//
//   {"task": "piqa", "id": "7", "digest": "9f…", "gold": 1, "context_tokens": 56, "cut_tokens": 0,
//    "loglikelihoods": [..], "is_greedy": [..], "tokens": [..], "characters": [..], "bytes": [..],
//    "acc": 0, "acc_norm": 1, "acc_bytes": 1}
//
// Log-likelihoods are written with all their digits; the three metrics follow from the rest and are
// for readers' convenience.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "model/eval/metrics.h"

namespace tailor::eval {

/// One line, without its end.
std::string record_line(const ItemResult& item);

/// Errors, naming file and line: kNotFound, kUnavailable; kInvalidArgument (no records, not JSON, a
/// member missing or of the wrong kind, lists of different lengths, an item twice).
Result<std::vector<ItemResult>> read_records(const std::string& path);

}  // namespace tailor::eval
