// The dense loops that the rest of geometry spends its time in: squared differences of rows, the
// distances that are made of them, products of matrices, and the two scans of a row that an
// assignment is made of.
//
// All are written once over registers of float64 and compiled for SSE2, AVX2 and AVX-512; the
// fastest that the processor has is chosen at run time. Lanes and the order of every sum are fixed
// and every product that is added is fused with the sum (rounded once), so all three give the same
// bits. Processors of x86 without FMA do that in software and are slow at it.
//
// Threads: pure functions on the caller's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tailor::geometry {

/// Rows are padded with zeros to whole groups of this many numbers.
inline constexpr std::size_t kLanes = 8;

/// `count` rows of `stride` numbers, stride a multiple of kLanes; the padding is zero.
struct PaddedRows {
  std::vector<double> values;
  std::size_t count = 0;
  std::size_t stride = 0;

  static constexpr std::size_t padded_width(std::size_t width) {
    return (width + kLanes - 1) / kLanes * kLanes;
  }

  PaddedRows() = default;
  /// All zero.
  PaddedRows(std::size_t row_count, std::size_t width)
      : values(row_count * padded_width(width), 0.0),
        count(row_count),
        stride(padded_width(width)) {}

  double* row(std::size_t i) { return values.data() + i * stride; }
  const double* row(std::size_t i) const { return values.data() + i * stride; }
};

/// out[(i - i0) * out_stride + (j - j0)] = |a_i - b_j|^2 for i in [i0, i1), j in [j0, j1).
/// REQUIRES: a.stride == b.stride.
void squared_differences(const PaddedRows& a, std::size_t i0, std::size_t i1, const PaddedRows& b,
                         std::size_t j0, std::size_t j1, double* out, std::size_t out_stride);

/// out.row(i)[j] = |x_i - y_j|^2 for rows x_i of `x` and columns y_j of `columns`, which has one
/// row a coordinate: for few coordinates, which are summed in order. Padding of `out` is left with
/// numbers that mean nothing. REQUIRES: x.stride >= columns.count >= 1, out.count == x.count,
/// out.stride == columns.stride.
void squared_differences_across(const PaddedRows& x, const PaddedRows& columns, PaddedRows& out);

/// |x - y|^2 and |x + y|^2 over `stride` numbers, summed as squared_differences does.
double squared_difference(const double* x, const double* y, std::size_t stride);
double squared_sum(const double* x, const double* y, std::size_t stride);

/// out[k] = 2 arcsin(sqrt(squared[k]) / 2) for n squared chords in [0, 3]: the angles, to two
/// roundings. `out` may be `squared`.
void angles_of_chords(const double* squared, std::size_t n, double* out);
/// out[k] = 2 arsinh(kappa sin(angles[k] / 2)) for n angles in [0, pi], 0 <= kappa < 1e150, to four
/// roundings. `out` may be `angles`.
void ball_distances(const double* angles, std::size_t n, double kappa, double* out);

/// out = a b for square matrices of side a.count; a and b have that many columns (plus padding),
/// `out` is resized. 2 n^3 operations.
void multiply(const PaddedRows& a, const PaddedRows& b, PaddedRows& out);

/// out += a b, where a has b.count columns (plus padding). REQUIRES: a.count == out.count,
/// a.stride >= b.count, b.stride == out.stride, out is neither a nor b.
void add_product(const PaddedRows& a, const PaddedRows& b, PaddedRows& out);

/// The two least numbers of a row of reduced costs.
struct LeastTwo {
  double least = 0;      ///< infinity when there is none
  double second = 0;     ///< equal to `least` on a tie; infinity when there is none
  std::uint32_t at = 0;  ///< where `least` is, the first such place
};

/// Of c_j - v_j, j < n.
LeastTwo least_two(const double* c, const double* v, std::size_t n);

/// Columns on the way of a shortest path (assignment.cc). All arrays have a whole number of kLanes
/// entries; those beyond the last column are infinite in `settled`.
struct PathColumns {
  double* distance;        ///< least way found so far; updated
  std::int64_t* previous;  ///< row from which it comes; updated
  const double* settled;   ///< infinity where the column is settled or does not exist, else 0
  const double* taken;     ///< infinity where the column has a row, else 0
};
struct NearestColumns {
  double least = 0;  ///< of the distances that are not settled
  double least_free = 0;
  std::uint32_t at = 0, at_free = 0;
};

/// For every column that is not settled: the way over `row`, max((c_j - v_j) - offset, floor), is
/// taken when it is shorter. `v` has a whole number of kLanes entries, `c` has n.
NearestColumns relax_columns(const double* c, const double* v, std::size_t n, double offset,
                             double floor, std::int64_t row, const PathColumns& columns);

}  // namespace tailor::geometry
