// Clouds: n points of dimension d, row-major float64, and what is checked and cleaned before
// anything is measured.
//
// A cloud is a list of token representations; row i of the cloud before a layer and row i of the
// cloud after it are the same token. Angles need directions, so a token whose vector is (nearly)
// zero, norm below kZeroNorm, has no place in a comparison: it is dropped from both clouds, in
// every geometry, and counted. NaN and infinity are never dropped silently:
// they are refused with their place.
//
// Threads: views and functions of values, no shared state.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::geometry {

/// A vector shorter than this has no direction.
inline constexpr double kZeroNorm = 1e-12;

/// A view on `count` points of `dimension` coordinates each, one after the other.
/// Does not own them.
class CloudView {
 public:
  CloudView() = default;
  /// REQUIRES: values.size() == count * dimension.
  CloudView(std::span<const double> values, std::size_t count, std::size_t dimension);

  std::size_t count() const { return count_; }
  std::size_t dimension() const { return dimension_; }
  std::span<const double> values() const { return values_; }
  /// The coordinates of point `i`. REQUIRES: i < count().
  std::span<const double> row(std::size_t i) const {
    return values_.subspan(i * dimension_, dimension_);
  }

 private:
  std::span<const double> values_;
  std::size_t count_ = 0;
  std::size_t dimension_ = 0;
};

/// A cloud that owns its points.
struct Cloud {
  std::vector<double> values;  ///< count * dimension, row-major
  std::size_t count = 0;
  std::size_t dimension = 0;

  CloudView view() const { return {values, count, dimension}; }
};

/// Euclidean norm without overflow or underflow.
double norm(std::span<const double> vector);

/// Ok when every coordinate is finite; otherwise kInvalidArgument naming `what`,
/// point and coordinate.
Status check_finite(CloudView cloud, std::string_view what);

/// Two clouds of the same tokens after cleaning.
struct CloudPair {
  Cloud before;
  Cloud after;
  std::size_t dropped = 0;  ///< tokens left out because a vector of theirs has norm < kZeroNorm
};

/// Checks and cleans. Errors: kInvalidArgument on different counts or dimensions, NaN or infinity.
Result<CloudPair> clean_pair(CloudView before, CloudView after);

/// A cloud without its zero vectors.
struct CleanCloud {
  Cloud cloud;
  std::size_t dropped = 0;  ///< points left out because their norm is < kZeroNorm
};

/// Checks and cleans one cloud. Errors: kInvalidArgument on NaN or infinity, naming `what`.
Result<CleanCloud> clean_cloud(CloudView cloud, std::string_view what);

}  // namespace tailor::geometry
