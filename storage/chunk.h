// Chunks: up to 256 points of one series as one blob (chunk_format.h). Pure. Threads: values only.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "storage/series.h"

namespace tailor::storage {

/// Lossless, also for NaN (its payload apart, where all values fit in 32 bits) and infinities, and
/// for steps in any order. REQUIRES: 1..kChunkPointsMax points.
std::string encode_chunk(std::span<const Point> points);

/// Trusts nothing in `blob`. Errors: kDataLoss saying what is wrong.
Result<std::vector<Point>> decode_chunk(std::string_view blob);

}  // namespace tailor::storage
