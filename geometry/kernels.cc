// One body a loop, instantiated for three instruction sets.
#include "geometry/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace tailor::geometry {
namespace {

typedef double Lanes __attribute__((vector_size(kLanes * sizeof(double))));
typedef std::int64_t LaneIndices __attribute__((vector_size(kLanes * sizeof(double))));

#define TAILOR_ALWAYS_INLINE inline __attribute__((always_inline))

TAILOR_ALWAYS_INLINE void load(Lanes& v, const double* p) { std::memcpy(&v, p, sizeof(v)); }

// Sum of the lanes in a fixed tree order.
TAILOR_ALWAYS_INLINE double sum_lanes(const Lanes& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// out[q][r] = |x_q - y_r|^2 for kRows rows x_q and four rows y_r.
template <int kRows>
TAILOR_ALWAYS_INLINE void squared_block(const double* const (&x)[kRows],
                                        const double* const (&y)[4], std::size_t stride,
                                        double (&out)[kRows][4]) {
  Lanes sums[kRows][4] = {};
  for (std::size_t k = 0; k < stride; k += kLanes) {
    Lanes vx[kRows], vy, v;
    for (int q = 0; q < kRows; ++q) load(vx[q], x[q] + k);
    for (int r = 0; r < 4; ++r) {
      load(vy, y[r] + k);
      for (int q = 0; q < kRows; ++q) {
        v = vx[q] - vy;
        sums[q][r] += v * v;
      }
    }
  }
  for (int q = 0; q < kRows; ++q) {
    for (int r = 0; r < 4; ++r) out[q][r] = sum_lanes(sums[q][r]);
  }
}

// kRows rows of a at a time: two where there are registers enough.
template <int kRows>
TAILOR_ALWAYS_INLINE void squared_body(const PaddedRows& a, std::size_t i0, std::size_t i1,
                                       const PaddedRows& b, std::size_t j0, std::size_t j1,
                                       double* out, std::size_t out_stride) {
  if (i0 == i1 || j0 == j1) return;
  for (std::size_t i = i0; i < i1; i += kRows) {
    const double* x[kRows];
    for (int q = 0; q < kRows; ++q) x[q] = a.row(std::min(i + static_cast<std::size_t>(q), i1 - 1));
    for (std::size_t j = j0; j < j1; j += 4) {
      const double* y[4];
      for (int r = 0; r < 4; ++r) y[r] = b.row(std::min(j + static_cast<std::size_t>(r), j1 - 1));
      double block[kRows][4];
      squared_block<kRows>(x, y, a.stride, block);
      for (std::size_t q = 0; q < std::min<std::size_t>(kRows, i1 - i); ++q) {
        std::copy(block[q], block[q] + std::min<std::size_t>(4, j1 - j),
                  out + (i + q - i0) * out_stride + (j - j0));
      }
    }
  }
}

// Rows of b that are packed, two groups of lanes wide, so that they stay in the nearest cache.
constexpr std::size_t kPanel = 128;

// kRows rows of `out`, kGroups groups of lanes wide, over the k rows of a packed panel.
template <int kRows, int kGroups>
TAILOR_ALWAYS_INLINE void multiply_block(const double* const (&a)[kRows], const double* panel,
                                         std::size_t count, double* const (&out)[kRows],
                                         bool accumulate) {
  Lanes sums[kRows][kGroups] = {};
  if (accumulate) {
    for (int r = 0; r < kRows; ++r) {
      for (int g = 0; g < kGroups; ++g) load(sums[r][g], out[r] + g * static_cast<int>(kLanes));
    }
  }
  for (std::size_t k = 0; k < count; ++k) {
    Lanes v[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      load(v[g], panel + (k * kGroups + static_cast<std::size_t>(g)) * kLanes);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int g = 0; g < kGroups; ++g) sums[r][g] += a[r][k] * v[g];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int g = 0; g < kGroups; ++g) {
      std::memcpy(out[r] + g * static_cast<int>(kLanes), &sums[r][g], sizeof(Lanes));
    }
  }
}

template <int kGroups>
TAILOR_ALWAYS_INLINE void multiply_columns(const PaddedRows& a, const PaddedRows& b,
                                           PaddedRows& out, std::size_t column, std::size_t k0,
                                           std::size_t k1, bool accumulate) {
  double panel[kPanel * kGroups * kLanes];
  for (std::size_t k = k0; k < k1; ++k) {
    std::memcpy(panel + (k - k0) * kGroups * kLanes, b.row(k) + column,
                kGroups * kLanes * sizeof(double));
  }
  std::size_t i = 0;
  for (; i + 4 <= out.count; i += 4) {
    const double* rows[4];
    double* targets[4];
    for (std::size_t r = 0; r < 4; ++r) {
      rows[r] = a.row(i + r) + k0;
      targets[r] = out.row(i + r) + column;
    }
    multiply_block<4, kGroups>(rows, panel, k1 - k0, targets, accumulate);
  }
  for (; i < out.count; ++i) {
    const double* rows[1] = {a.row(i) + k0};
    double* targets[1] = {out.row(i) + column};
    multiply_block<1, kGroups>(rows, panel, k1 - k0, targets, accumulate);
  }
}

// Every entry is summed over k in ascending order, whatever the panels.
TAILOR_ALWAYS_INLINE void multiply_body(const PaddedRows& a, const PaddedRows& b, PaddedRows& out,
                                        bool accumulate) {
  for (std::size_t k0 = 0; k0 < b.count; k0 += kPanel) {
    const std::size_t k1 = std::min(b.count, k0 + kPanel);
    std::size_t column = 0;
    for (; column + 2 * kLanes <= b.stride; column += 2 * kLanes) {
      multiply_columns<2>(a, b, out, column, k0, k1, accumulate || k0 != 0);
    }
    if (column < b.stride) multiply_columns<1>(a, b, out, column, k0, k1, accumulate || k0 != 0);
  }
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TAILOR_ALWAYS_INLINE void first_places(LaneIndices& v) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) v[lane] = static_cast<std::int64_t>(lane);
}

// The lane with the least value, of equal ones that with the least index.
TAILOR_ALWAYS_INLINE std::size_t least_lane(const Lanes& values, const LaneIndices& places) {
  std::size_t lane = 0;
  for (std::size_t k = 1; k < kLanes; ++k) {
    if (values[k] < values[lane] || (values[k] == values[lane] && places[k] < places[lane])) {
      lane = k;
    }
  }
  return lane;
}

TAILOR_ALWAYS_INLINE LeastTwo least_two_body(const double* c, const double* v, std::size_t n) {
  Lanes least = kInfinity - Lanes{}, second = least, vc, vv;
  LaneIndices here, at{};
  first_places(here);
  const auto take = [&]() __attribute__((always_inline)) {
    const Lanes reduced = vc - vv;
    const LaneIndices lower = reduced < least;
    const Lanes higher = lower ? least : reduced;
    second = higher < second ? higher : second;
    least = lower ? reduced : least;
    at = lower ? here : at;
    here += static_cast<std::int64_t>(kLanes);
  };
  std::size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    load(vc, c + k);
    load(vv, v + k);
    take();
  }
  if (k < n) {
    vc = kInfinity - Lanes{};
    vv = Lanes{};
    std::memcpy(&vc, c + k, (n - k) * sizeof(double));
    std::memcpy(&vv, v + k, (n - k) * sizeof(double));
    take();
  }
  const std::size_t lane = least_lane(least, at);
  LeastTwo result{least[lane], second[lane], static_cast<std::uint32_t>(at[lane])};
  for (std::size_t other = 0; other < kLanes; ++other) {
    if (other != lane) result.second = std::min(result.second, static_cast<double>(least[other]));
  }
  return result;
}

TAILOR_ALWAYS_INLINE NearestColumns relax_body(const double* c, const double* v, std::size_t n,
                                               double offset, double floor, std::int64_t row,
                                               const PathColumns& columns) {
  Lanes least = kInfinity - Lanes{}, least_free = least, vc, vv, distance, settled, taken;
  LaneIndices here, at{}, at_free{}, previous;
  first_places(here);
  const Lanes lowest = floor - Lanes{};
  const LaneIndices rows = row - LaneIndices{};
  for (std::size_t k = 0; k < n; k += kLanes) {
    if (k + kLanes <= n) {
      load(vc, c + k);
    } else {
      vc = Lanes{};
      std::memcpy(&vc, c + k, (n - k) * sizeof(double));
    }
    load(vv, v + k);
    load(distance, columns.distance + k);
    load(settled, columns.settled + k);
    load(taken, columns.taken + k);
    std::memcpy(&previous, columns.previous + k, sizeof(previous));
    Lanes through = (vc - vv) - offset;
    through = through < lowest ? lowest : through;
    through += settled;  // infinite where there is nothing to improve
    const LaneIndices shorter = through < distance;
    distance = shorter ? through : distance;
    previous = shorter ? rows : previous;
    std::memcpy(columns.distance + k, &distance, sizeof(distance));
    std::memcpy(columns.previous + k, &previous, sizeof(previous));
    const Lanes open = distance + settled;
    const LaneIndices nearer = open < least;
    least = nearer ? open : least;
    at = nearer ? here : at;
    const Lanes free = open + taken;
    const LaneIndices nearer_free = free < least_free;
    least_free = nearer_free ? free : least_free;
    at_free = nearer_free ? here : at_free;
    here += static_cast<std::int64_t>(kLanes);
  }
  const std::size_t lane = least_lane(least, at), lane_free = least_lane(least_free, at_free);
  return {least[lane], least_free[lane_free], static_cast<std::uint32_t>(at[lane]),
          static_cast<std::uint32_t>(at_free[lane_free])};
}

#define TAILOR_KERNELS(suffix, attribute, squared_rows)                                       \
  attribute void squared_##suffix(const PaddedRows& a, std::size_t i0, std::size_t i1,        \
                                  const PaddedRows& b, std::size_t j0, std::size_t j1,        \
                                  double* out, std::size_t out_stride) {                      \
    squared_body<squared_rows>(a, i0, i1, b, j0, j1, out, out_stride);                        \
  }                                                                                           \
  attribute void multiply_##suffix(const PaddedRows& a, const PaddedRows& b, PaddedRows& out, \
                                   bool accumulate) {                                         \
    multiply_body(a, b, out, accumulate);                                                     \
  }                                                                                           \
  attribute LeastTwo least_two_##suffix(const double* c, const double* v, std::size_t n) {    \
    return least_two_body(c, v, n);                                                           \
  }                                                                                           \
  attribute NearestColumns relax_##suffix(const double* c, const double* v, std::size_t n,    \
                                          double offset, double floor, std::int64_t row,      \
                                          const PathColumns& columns) {                       \
    return relax_body(c, v, n, offset, floor, row, columns);                                  \
  }

TAILOR_KERNELS(plain, , 1)
#if defined(__x86_64__)
TAILOR_KERNELS(avx2, __attribute__((target("avx2"))), 1)
TAILOR_KERNELS(avx512, __attribute__((target("avx512f,avx512dq"))), 2)
#endif

enum class Level { kPlain, kAvx2, kAvx512 };

Level level() {
#if defined(__x86_64__)
  static const Level best = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
                                ? Level::kAvx512
                            : __builtin_cpu_supports("avx2") ? Level::kAvx2
                                                             : Level::kPlain;
  return best;
#else
  return Level::kPlain;
#endif
}

// Calls the version of `name` that is right for this processor.
#if defined(__x86_64__)
#define TAILOR_DISPATCH(name, ...)       \
  switch (level()) {                     \
    case Level::kAvx512:                 \
      return name##_avx512(__VA_ARGS__); \
    case Level::kAvx2:                   \
      return name##_avx2(__VA_ARGS__);   \
    default:                             \
      return name##_plain(__VA_ARGS__);  \
  }
#else
#define TAILOR_DISPATCH(name, ...) return name##_plain(__VA_ARGS__);
#endif

}  // namespace

void squared_differences(const PaddedRows& a, std::size_t i0, std::size_t i1, const PaddedRows& b,
                         std::size_t j0, std::size_t j1, double* out, std::size_t out_stride) {
  TAILOR_CHECK(a.stride == b.stride);
  TAILOR_DISPATCH(squared, a, i0, i1, b, j0, j1, out, out_stride)
}

double squared_difference(const double* x, const double* y, std::size_t stride) {
  Lanes s{}, vx, v;
  for (std::size_t k = 0; k < stride; k += kLanes) {
    load(vx, x + k);
    load(v, y + k);
    v = vx - v;
    s += v * v;
  }
  return sum_lanes(s);
}

double squared_sum(const double* x, const double* y, std::size_t stride) {
  Lanes s{}, vx, v;
  for (std::size_t k = 0; k < stride; k += kLanes) {
    load(vx, x + k);
    load(v, y + k);
    v = vx + v;
    s += v * v;
  }
  return sum_lanes(s);
}

void multiply(const PaddedRows& a, const PaddedRows& b, PaddedRows& out) {
  TAILOR_CHECK(a.count == b.count && a.stride == b.stride);
  if (out.count != a.count || out.stride != a.stride) out = PaddedRows(a.count, a.count);
  TAILOR_DISPATCH(multiply, a, b, out, false)
}

void add_product(const PaddedRows& a, const PaddedRows& b, PaddedRows& out) {
  TAILOR_CHECK(a.count == out.count && a.stride >= b.count && b.stride == out.stride);
  TAILOR_DISPATCH(multiply, a, b, out, true)
}

LeastTwo least_two(const double* c, const double* v,
                   std::size_t n){TAILOR_DISPATCH(least_two, c, v, n)}

NearestColumns relax_columns(const double* c, const double* v, std::size_t n, double offset,
                             double floor, std::int64_t row, const PathColumns& columns) {
  TAILOR_DISPATCH(relax, c, v, n, offset, floor, row, columns)
}

}  // namespace tailor::geometry
