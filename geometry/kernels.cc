// One body a loop, instantiated for three instruction sets.
#include "geometry/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace tailor::geometry {
namespace {

#define TAILOR_ALWAYS_INLINE inline __attribute__((always_inline))

// A register of kWidth numbers: as wide as the instruction set has them. Wider ones would be taken
// apart by way of memory.
template <std::size_t kWidth>
struct Pack;
#define TAILOR_PACK(width)                                                            \
  template <>                                                                         \
  struct Pack<width> {                                                                \
    typedef double Numbers __attribute__((vector_size(width * sizeof(double))));      \
    typedef std::int64_t Places __attribute__((vector_size(width * sizeof(double)))); \
  };
TAILOR_PACK(2)
TAILOR_PACK(4)
TAILOR_PACK(8)

template <typename Numbers>
TAILOR_ALWAYS_INLINE void load(Numbers& v, const double* p) {
  std::memcpy(&v, p, sizeof(v));
}

// Sum of the lanes in a fixed tree order, however many registers hold them.
template <typename Numbers, std::size_t kParts>
TAILOR_ALWAYS_INLINE double sum_lanes(const Numbers (&parts)[kParts]) {
  static_assert(sizeof(parts) == kLanes * sizeof(double));
  double v[kLanes];
  std::memcpy(v, parts, sizeof(v));
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// out[q][r] = |x_q - y_r|^2 for kRows rows x_q and kColumns rows y_r.
template <std::size_t kWidth, std::size_t kRows, std::size_t kColumns>
TAILOR_ALWAYS_INLINE void squared_block(const double* const (&x)[kRows],
                                        const double* const (&y)[kColumns], std::size_t stride,
                                        double (&out)[kRows][kColumns]) {
  using Numbers = typename Pack<kWidth>::Numbers;
  constexpr std::size_t kParts = kLanes / kWidth;
  Numbers sums[kRows][kColumns][kParts] = {};
  for (std::size_t k = 0; k < stride; k += kLanes) {
    for (std::size_t part = 0; part < kParts; ++part) {
      Numbers vx[kRows], vy, v;
      for (std::size_t q = 0; q < kRows; ++q) load(vx[q], x[q] + k + part * kWidth);
      for (std::size_t r = 0; r < kColumns; ++r) {
        load(vy, y[r] + k + part * kWidth);
        for (std::size_t q = 0; q < kRows; ++q) {
          v = vx[q] - vy;
          sums[q][r][part] += v * v;
        }
      }
    }
  }
  for (std::size_t q = 0; q < kRows; ++q) {
    for (std::size_t r = 0; r < kColumns; ++r) out[q][r] = sum_lanes(sums[q][r]);
  }
}

// As many rows of either side at a time as there are registers for the sums.
template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE void squared_body(const PaddedRows& a, std::size_t i0, std::size_t i1,
                                       const PaddedRows& b, std::size_t j0, std::size_t j1,
                                       double* out, std::size_t out_stride) {
  constexpr std::size_t kRows = kWidth == 8 ? 2 : 1, kColumns = kWidth == 2 ? 2 : 4;
  if (i0 == i1 || j0 == j1) return;
  for (std::size_t i = i0; i < i1; i += kRows) {
    const double* x[kRows];
    for (std::size_t q = 0; q < kRows; ++q) x[q] = a.row(std::min(i + q, i1 - 1));
    for (std::size_t j = j0; j < j1; j += kColumns) {
      const double* y[kColumns];
      for (std::size_t r = 0; r < kColumns; ++r) y[r] = b.row(std::min(j + r, j1 - 1));
      double block[kRows][kColumns];
      squared_block<kWidth, kRows, kColumns>(x, y, a.stride, block);
      for (std::size_t q = 0; q < std::min(kRows, i1 - i); ++q) {
        std::copy(block[q], block[q] + std::min(kColumns, j1 - j),
                  out + (i + q - i0) * out_stride + (j - j0));
      }
    }
  }
}

// Rows of b that are packed, two registers wide, so that they stay in the nearest cache.
constexpr std::size_t kPanel = 128;

// kRows rows of `out`, kGroups registers wide, over the `count` rows of a packed panel.
template <std::size_t kWidth, std::size_t kRows, std::size_t kGroups>
TAILOR_ALWAYS_INLINE void multiply_block(const double* const (&a)[kRows], const double* panel,
                                         std::size_t count, double* const (&out)[kRows],
                                         bool accumulate) {
  using Numbers = typename Pack<kWidth>::Numbers;
  Numbers sums[kRows][kGroups] = {};
  if (accumulate) {
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t g = 0; g < kGroups; ++g) load(sums[r][g], out[r] + g * kWidth);
    }
  }
  for (std::size_t k = 0; k < count; ++k) {
    Numbers v[kGroups];
    for (std::size_t g = 0; g < kGroups; ++g) load(v[g], panel + (k * kGroups + g) * kWidth);
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t g = 0; g < kGroups; ++g) sums[r][g] += a[r][k] * v[g];
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t g = 0; g < kGroups; ++g) {
      std::memcpy(out[r] + g * kWidth, &sums[r][g], sizeof(Numbers));
    }
  }
}

template <std::size_t kWidth, std::size_t kGroups>
TAILOR_ALWAYS_INLINE void multiply_columns(const PaddedRows& a, const PaddedRows& b,
                                           PaddedRows& out, std::size_t column, std::size_t k0,
                                           std::size_t k1, bool accumulate) {
  double panel[kPanel * kGroups * kWidth];
  for (std::size_t k = k0; k < k1; ++k) {
    std::memcpy(panel + (k - k0) * kGroups * kWidth, b.row(k) + column,
                kGroups * kWidth * sizeof(double));
  }
  std::size_t i = 0;
  for (; i + 4 <= out.count; i += 4) {
    const double* rows[4];
    double* targets[4];
    for (std::size_t r = 0; r < 4; ++r) {
      rows[r] = a.row(i + r) + k0;
      targets[r] = out.row(i + r) + column;
    }
    multiply_block<kWidth, 4, kGroups>(rows, panel, k1 - k0, targets, accumulate);
  }
  for (; i < out.count; ++i) {
    const double* rows[1] = {a.row(i) + k0};
    double* targets[1] = {out.row(i) + column};
    multiply_block<kWidth, 1, kGroups>(rows, panel, k1 - k0, targets, accumulate);
  }
}

// Every entry is summed over k in ascending order, whatever the panels and registers.
template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE void multiply_body(const PaddedRows& a, const PaddedRows& b, PaddedRows& out,
                                        bool accumulate) {
  for (std::size_t k0 = 0; k0 < b.count; k0 += kPanel) {
    const std::size_t k1 = std::min(b.count, k0 + kPanel);
    const bool add = accumulate || k0 != 0;
    std::size_t column = 0;
    for (; column + 2 * kWidth <= b.stride; column += 2 * kWidth) {
      multiply_columns<kWidth, 2>(a, b, out, column, k0, k1, add);
    }
    if (column < b.stride) multiply_columns<kWidth, 1>(a, b, out, column, k0, k1, add);
  }
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE void first_places(typename Pack<kWidth>::Places& v) {
  for (std::size_t lane = 0; lane < kWidth; ++lane) v[lane] = static_cast<std::int64_t>(lane);
}

// The lane with the least value, of equal ones that with the least index.
template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE std::size_t least_lane(const typename Pack<kWidth>::Numbers& values,
                                            const typename Pack<kWidth>::Places& places) {
  std::size_t lane = 0;
  for (std::size_t k = 1; k < kWidth; ++k) {
    if (values[k] < values[lane] || (values[k] == values[lane] && places[k] < places[lane])) {
      lane = k;
    }
  }
  return lane;
}

template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE LeastTwo least_two_body(const double* c, const double* v, std::size_t n) {
  using Numbers = typename Pack<kWidth>::Numbers;
  using Places = typename Pack<kWidth>::Places;
  Numbers least = kInfinity - Numbers{}, second = least, vc, vv;
  Places here, at{};
  first_places<kWidth>(here);
  const auto take = [&]() __attribute__((always_inline)) {
    const Numbers reduced = vc - vv;
    const Places lower = reduced < least;
    const Numbers higher = lower ? least : reduced;
    second = higher < second ? higher : second;
    least = lower ? reduced : least;
    at = lower ? here : at;
    here += static_cast<std::int64_t>(kWidth);
  };
  std::size_t k = 0;
  for (; k + kWidth <= n; k += kWidth) {
    load(vc, c + k);
    load(vv, v + k);
    take();
  }
  if (k < n) {
    vc = kInfinity - Numbers{};
    vv = Numbers{};
    std::memcpy(&vc, c + k, (n - k) * sizeof(double));
    std::memcpy(&vv, v + k, (n - k) * sizeof(double));
    take();
  }
  const std::size_t lane = least_lane<kWidth>(least, at);
  LeastTwo result{least[lane], second[lane], static_cast<std::uint32_t>(at[lane])};
  for (std::size_t other = 0; other < kWidth; ++other) {
    if (other != lane) result.second = std::min(result.second, static_cast<double>(least[other]));
  }
  return result;
}

template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE NearestColumns relax_body(const double* c, const double* v, std::size_t n,
                                               double offset, double floor, std::int64_t row,
                                               const PathColumns& columns) {
  using Numbers = typename Pack<kWidth>::Numbers;
  using Places = typename Pack<kWidth>::Places;
  Numbers least = kInfinity - Numbers{}, least_free = least, vc, vv, distance, settled, taken;
  Places here, at{}, at_free{}, previous;
  first_places<kWidth>(here);
  const Numbers lowest = floor - Numbers{};
  const Places rows = row - Places{};
  for (std::size_t k = 0; k < n; k += kWidth) {
    if (k + kWidth <= n) {
      load(vc, c + k);
    } else {
      vc = Numbers{};
      std::memcpy(&vc, c + k, (n - k) * sizeof(double));
    }
    load(vv, v + k);
    load(distance, columns.distance + k);
    load(settled, columns.settled + k);
    load(taken, columns.taken + k);
    std::memcpy(&previous, columns.previous + k, sizeof(previous));
    Numbers through = (vc - vv) - offset;
    through = through < lowest ? lowest : through;
    through += settled;  // infinite where there is nothing to improve
    const Places shorter = through < distance;
    distance = shorter ? through : distance;
    previous = shorter ? rows : previous;
    std::memcpy(columns.distance + k, &distance, sizeof(distance));
    std::memcpy(columns.previous + k, &previous, sizeof(previous));
    const Numbers open = distance + settled;
    const Places nearer = open < least;
    least = nearer ? open : least;
    at = nearer ? here : at;
    const Numbers free = open + taken;
    const Places nearer_free = free < least_free;
    least_free = nearer_free ? free : least_free;
    at_free = nearer_free ? here : at_free;
    here += static_cast<std::int64_t>(kWidth);
  }
  const std::size_t lane = least_lane<kWidth>(least, at),
                    lane_free = least_lane<kWidth>(least_free, at_free);
  return {least[lane], least_free[lane_free], static_cast<std::uint32_t>(at[lane]),
          static_cast<std::uint32_t>(at_free[lane_free])};
}

#define TAILOR_KERNELS(suffix, attribute, width)                                              \
  attribute void squared_##suffix(const PaddedRows& a, std::size_t i0, std::size_t i1,        \
                                  const PaddedRows& b, std::size_t j0, std::size_t j1,        \
                                  double* out, std::size_t out_stride) {                      \
    squared_body<width>(a, i0, i1, b, j0, j1, out, out_stride);                               \
  }                                                                                           \
  attribute void multiply_##suffix(const PaddedRows& a, const PaddedRows& b, PaddedRows& out, \
                                   bool accumulate) {                                         \
    multiply_body<width>(a, b, out, accumulate);                                              \
  }                                                                                           \
  attribute LeastTwo least_two_##suffix(const double* c, const double* v, std::size_t n) {    \
    return least_two_body<width>(c, v, n);                                                    \
  }                                                                                           \
  attribute NearestColumns relax_##suffix(const double* c, const double* v, std::size_t n,    \
                                          double offset, double floor, std::int64_t row,      \
                                          const PathColumns& columns) {                       \
    return relax_body<width>(c, v, n, offset, floor, row, columns);                           \
  }

TAILOR_KERNELS(plain, , 2)
#if defined(__x86_64__)
TAILOR_KERNELS(avx2, __attribute__((target("avx2"))), 4)
TAILOR_KERNELS(avx512, __attribute__((target("avx512f,avx512dq"))), 8)
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
  double out[1][1];
  squared_block<2, 1, 1>({x}, {y}, stride, out);
  return out[0][0];
}

double squared_sum(const double* x, const double* y, std::size_t stride) {
  Pack<2>::Numbers sums[kLanes / 2] = {}, vx, v;
  for (std::size_t k = 0; k < stride; k += kLanes) {
    for (std::size_t part = 0; part < kLanes / 2; ++part) {
      load(vx, x + k + 2 * part);
      load(v, y + k + 2 * part);
      v = vx + v;
      sums[part] += v * v;
    }
  }
  return sum_lanes(sums);
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
