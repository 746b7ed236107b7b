// Points as blobs (chunk_format.h): up to 256 of one series, or those of a batch. Pure. Threads:
// values only.
#pragma once

#include <cstdint>
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

/// A point of a batch.
struct TailPoint {
  SeriesKey series;
  Point point;
};

/// Points of several series in their order, lossless as `encode_chunk`. REQUIRES:
/// 1..kTailPointsMax points.
std::string encode_tail(std::span<const TailPoint> points);

/// Trusts nothing in `blob`. Errors: kDataLoss saying what is wrong.
Result<std::vector<TailPoint>> decode_tail(std::string_view blob);

/// The number of points that the header of `blob` states; 0 where it makes no sense.
std::uint64_t chunk_points(std::string_view blob);

}  // namespace tailor::storage
