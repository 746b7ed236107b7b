// The two dense loops that the rest of geometry spends its time in: squared differences of rows and
// the product of square matrices.
//
// Both are written once over 8 lanes of float64 and compiled for SSE2, AVX2 and AVX-512; the
// fastest that the processor has is chosen at run time. Lanes and the order of every sum are fixed
// and multiply-add is never fused, so all three give the same bits.
//
// Threads: pure functions on the caller's buffers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tailor::geometry {

/// Rows are padded with zeros to whole groups of this many numbers.
inline constexpr std::size_t kLanes = 8;

/// `count` rows of `stride` numbers, stride a multiple of kLanes; the padding is zero.
struct PaddedRows {
  std::vector<double> values;
  std::size_t count = 0;
  std::size_t stride = 0;

  PaddedRows() = default;
  /// All zero.
  PaddedRows(std::size_t row_count, std::size_t width)
      : values(row_count * ((width + kLanes - 1) / kLanes * kLanes), 0.0),
        count(row_count),
        stride((width + kLanes - 1) / kLanes * kLanes) {}

  double* row(std::size_t i) { return values.data() + i * stride; }
  const double* row(std::size_t i) const { return values.data() + i * stride; }
};

/// out[(i - i0) * out_stride + (j - j0)] = |a_i - b_j|^2 for i in [i0, i1), j in [j0, j1).
/// REQUIRES: a.stride == b.stride.
void squared_differences(const PaddedRows& a, std::size_t i0, std::size_t i1, const PaddedRows& b,
                         std::size_t j0, std::size_t j1, double* out, std::size_t out_stride);

/// |x - y|^2 and |x + y|^2 over `stride` numbers, summed as squared_differences does.
double squared_difference(const double* x, const double* y, std::size_t stride);
double squared_sum(const double* x, const double* y, std::size_t stride);

/// out = a b for square matrices of side a.count; a and b have that many columns (plus padding),
/// `out` is resized. 2 n^3 operations.
void multiply(const PaddedRows& a, const PaddedRows& b, PaddedRows& out);

}  // namespace tailor::geometry
