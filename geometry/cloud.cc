// Checking and cleaning of clouds.
#include "geometry/cloud.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace tailor::geometry {
namespace {

void append_row(Cloud& cloud, std::span<const double> row) {
  cloud.values.insert(cloud.values.end(), row.begin(), row.end());
  ++cloud.count;
}

}  // namespace

CloudView::CloudView(std::span<const double> values, std::size_t count, std::size_t dimension)
    : values_(values), count_(count), dimension_(dimension) {
  TAILOR_CHECK(values.size() == count * dimension, "{} values for {} points of dimension {}",
               values.size(), count, dimension);
}

double norm(std::span<const double> vector) {
  // Eight sums side by side: the processor adds them at once.
  constexpr std::size_t kSums = 8;
  double sums[kSums] = {};
  std::size_t k = 0;
  for (; k + kSums <= vector.size(); k += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) sums[s] += vector[k + s] * vector[k + s];
  }
  for (; k < vector.size(); ++k) sums[k % kSums] += vector[k] * vector[k];
  const auto total = [&sums] {
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  };
  const double square = total();
  // Far from both ends of the range no square that matters was lost.
  if (square > 1e-200 && square < 1e200) return std::sqrt(square);

  double largest = 0;
  for (const double x : vector) largest = std::max(largest, std::abs(x));
  if (largest == 0 || !std::isfinite(largest)) return largest;
  int exponent = 0;
  std::frexp(largest, &exponent);
  std::fill(sums, sums + kSums, 0.0);
  for (k = 0; k < vector.size(); ++k) {
    const double scaled = std::ldexp(vector[k], -exponent);
    sums[k % kSums] += scaled * scaled;
  }
  return std::ldexp(std::sqrt(total()), exponent);
}

Status check_finite(CloudView cloud, std::string_view what) {
  // x * 0 is 0, or NaN for what is not finite; the place is looked for only then.
  constexpr std::size_t kSums = 8;
  double sums[kSums] = {};
  const auto values = cloud.values();
  std::size_t at = 0;
  for (; at + kSums <= values.size(); at += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) sums[s] += values[at + s] * 0.0;
  }
  for (; at < values.size(); ++at) sums[at % kSums] += values[at] * 0.0;
  if (std::accumulate(sums, sums + kSums, 0.0) == 0) return Status::ok();
  for (std::size_t i = 0; i < cloud.count(); ++i) {
    const auto row = cloud.row(i);
    for (std::size_t k = 0; k < row.size(); ++k) {
      if (!std::isfinite(row[k])) {
        return Status(Code::kInvalidArgument,
                      fmt::format("{}: point {}, coordinate {} is {}; every coordinate must be a "
                                  "finite number",
                                  what, i, k, row[k]));
      }
    }
  }
  return Status::ok();
}

Result<CloudPair> clean_pair(CloudView before, CloudView after) {
  if (before.count() != after.count() || before.dimension() != after.dimension()) {
    return error(Code::kInvalidArgument,
                 fmt::format("the clouds before and after must hold the same tokens in the same "
                             "dimension; got {} x {} and {} x {}",
                             before.count(), before.dimension(), after.count(), after.dimension()));
  }
  TAILOR_RETURN_IF_ERROR(check_finite(before, "cloud before"));
  TAILOR_RETURN_IF_ERROR(check_finite(after, "cloud after"));
  CloudPair pair;
  pair.before.dimension = before.dimension();
  pair.after.dimension = after.dimension();
  pair.before.values.reserve(before.values().size());
  pair.after.values.reserve(after.values().size());
  for (std::size_t i = 0; i < before.count(); ++i) {
    if (norm(before.row(i)) < kZeroNorm || norm(after.row(i)) < kZeroNorm) {
      ++pair.dropped;
      continue;
    }
    append_row(pair.before, before.row(i));
    append_row(pair.after, after.row(i));
  }
  return pair;
}

Result<CleanCloud> clean_cloud(CloudView cloud, std::string_view what) {
  TAILOR_RETURN_IF_ERROR(check_finite(cloud, what));
  CleanCloud clean;
  clean.cloud.dimension = cloud.dimension();
  clean.cloud.values.reserve(cloud.values().size());
  for (std::size_t i = 0; i < cloud.count(); ++i) {
    if (norm(cloud.row(i)) < kZeroNorm) {
      ++clean.dropped;
    } else {
      append_row(clean.cloud, cloud.row(i));
    }
  }
  return clean;
}

}  // namespace tailor::geometry
