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

// sum += a * b, rounded once. By way of copies: registers, not places in memory, must be what the
// instruction reads and writes.
template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE void fuse(typename Pack<kWidth>::Numbers& sum,
                               const typename Pack<kWidth>::Numbers& a,
                               const typename Pack<kWidth>::Numbers& b) {
  typename Pack<kWidth>::Numbers s = sum;
  const typename Pack<kWidth>::Numbers x = a, y = b;
#if defined(__x86_64__)
  // GCC makes vector instructions of only some of the calls below.
  if constexpr (kWidth == 8) {
    __asm__("vfmadd231pd %2, %1, %0" : "+v"(s) : "v"(x), "v"(y));
    sum = s;
    return;
  } else if constexpr (kWidth == 4) {
    __asm__("vfmadd231pd %2, %1, %0" : "+x"(s) : "x"(x), "x"(y));
    sum = s;
    return;
  }
#endif
  for (std::size_t lane = 0; lane < kWidth; ++lane)
    s[lane] = __builtin_fma(x[lane], y[lane], s[lane]);
  sum = s;
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
  Numbers sums[kRows][kColumns][kParts];
  const auto take = [&](std::size_t k, bool first) __attribute__((always_inline)) {
    for (std::size_t part = 0; part < kParts; ++part) {
      Numbers vx[kRows], vy, v;
      for (std::size_t q = 0; q < kRows; ++q) load(vx[q], x[q] + k + part * kWidth);
      for (std::size_t r = 0; r < kColumns; ++r) {
        load(vy, y[r] + k + part * kWidth);
        for (std::size_t q = 0; q < kRows; ++q) {
          v = vx[q] - vy;
          if (first) {
            sums[q][r][part] = v * v;
          } else {
            fuse<kWidth>(sums[q][r][part], v, v);
          }
        }
      }
    }
  };
  if (stride == 0) {
    for (std::size_t q = 0; q < kRows; ++q) std::fill(out[q], out[q] + kColumns, 0.0);
    return;
  }
  take(0, true);  // no zeros to begin with: they would cost as much as a short row
  for (std::size_t k = kLanes; k < stride; k += kLanes) take(k, false);
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

// kRows rows of `x` against kGroups registers of columns.
template <std::size_t kWidth, std::size_t kRows, std::size_t kGroups>
TAILOR_ALWAYS_INLINE void across_block(const double* const (&x)[kRows], const PaddedRows& columns,
                                       std::size_t j, double* const (&out)[kRows]) {
  using Numbers = typename Pack<kWidth>::Numbers;
  Numbers sums[kRows][kGroups];
  const auto take = [&](std::size_t k, bool first) __attribute__((always_inline)) {
    for (std::size_t g = 0; g < kGroups; ++g) {
      Numbers y, v;
      load(y, columns.row(k) + j + g * kWidth);
      for (std::size_t r = 0; r < kRows; ++r) {
        v = x[r][k] - y;
        if (first) {
          sums[r][g] = v * v;
        } else {
          fuse<kWidth>(sums[r][g], v, v);
        }
      }
    }
  };
  take(0, true);
  for (std::size_t k = 1; k < columns.count; ++k) take(k, false);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t g = 0; g < kGroups; ++g) {
      std::memcpy(out[r] + j + g * kWidth, &sums[r][g], sizeof(Numbers));
    }
  }
}

template <std::size_t kWidth, std::size_t kRows>
TAILOR_ALWAYS_INLINE void across_rows(const PaddedRows& x, std::size_t i, const PaddedRows& columns,
                                      PaddedRows& out) {
  const double* rows[kRows];
  double* targets[kRows];
  for (std::size_t r = 0; r < kRows; ++r) {
    rows[r] = x.row(i + r);
    targets[r] = out.row(i + r);
  }
  std::size_t j = 0;
  for (; j + 2 * kWidth <= columns.stride; j += 2 * kWidth) {
    across_block<kWidth, kRows, 2>(rows, columns, j, targets);
  }
  if (j < columns.stride) across_block<kWidth, kRows, 1>(rows, columns, j, targets);
}

template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE void across_body(const PaddedRows& x, const PaddedRows& columns,
                                      PaddedRows& out) {
  std::size_t i = 0;
  for (; i + 4 <= x.count; i += 4) across_rows<kWidth, 4>(x, i, columns, out);
  for (; i < x.count; ++i) across_rows<kWidth, 1>(x, i, columns, out);
}

// Rows of b that are packed, two registers wide, so that they stay in the nearest cache.
constexpr std::size_t kPanel = 128;

// kRows rows of `out`, kGroups registers wide, over the `count` rows of a packed panel.
template <std::size_t kWidth, std::size_t kRows, std::size_t kGroups>
TAILOR_ALWAYS_INLINE void multiply_block(const double* const (&a)[kRows], const double* panel,
                                         std::size_t count, double* const (&out)[kRows],
                                         bool accumulate) {
  using Numbers = typename Pack<kWidth>::Numbers;
  Numbers sums[kRows][kGroups];
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t g = 0; g < kGroups; ++g) {
      if (accumulate) {
        load(sums[r][g], out[r] + g * kWidth);
      } else {
        sums[r][g] = Numbers{};
      }
    }
  }
  for (std::size_t k = 0; k < count; ++k) {
    Numbers v[kGroups];
    for (std::size_t g = 0; g < kGroups; ++g) load(v[g], panel + (k * kGroups + g) * kWidth);
    for (std::size_t r = 0; r < kRows; ++r) {
      const Numbers factor = a[r][k] - Numbers{};
      for (std::size_t g = 0; g < kGroups; ++g) fuse<kWidth>(sums[r][g], factor, v[g]);
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

template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE double difference_body(const double* x, const double* y, std::size_t stride) {
  double out[1][1];
  squared_block<kWidth, 1, 1>({x}, {y}, stride, out);
  return out[0][0];
}

template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE double sum_body(const double* x, const double* y, std::size_t stride) {
  typename Pack<kWidth>::Numbers sums[kLanes / kWidth] = {}, vx, v;
  for (std::size_t k = 0; k < stride; k += kLanes) {
    for (std::size_t part = 0; part < kLanes / kWidth; ++part) {
      load(vx, x + k + kWidth * part);
      load(v, y + k + kWidth * part);
      v = vx + v;
      fuse<kWidth>(sums[part], v, v);
    }
  }
  return sum_lanes(sums);
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

// result = x + x w (c_0 + c_1 w + ...), the odd function whose power series that is; w = x^2.
template <std::size_t kWidth, std::size_t kTerms>
TAILOR_ALWAYS_INLINE void odd_series(const typename Pack<kWidth>::Numbers& x,
                                     const typename Pack<kWidth>::Numbers& w,
                                     const double (&c)[kTerms],
                                     typename Pack<kWidth>::Numbers& result) {
  using Numbers = typename Pack<kWidth>::Numbers;
  Numbers sum = c[kTerms - 1] - Numbers{};
  for (std::size_t k = kTerms - 1; k-- > 0;) {
    Numbers next = c[k] - Numbers{};
    fuse<kWidth>(next, sum, w);
    sum = next;
  }
  result = x;
  fuse<kWidth>(result, x * w, sum);
}

template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE void square_root(typename Pack<kWidth>::Numbers& x) {
#if defined(__x86_64__)
  if constexpr (kWidth == 8) {
    typename Pack<kWidth>::Numbers root = x;
    __asm__("vsqrtpd %0, %0" : "+v"(root));
    x = root;
    return;
  } else if constexpr (kWidth == 4) {
    typename Pack<kWidth>::Numbers root = x;
    __asm__("vsqrtpd %0, %0" : "+x"(root));
    x = root;
    return;
  }
#endif
  for (std::size_t lane = 0; lane < kWidth; ++lane) x[lane] = __builtin_sqrt(x[lane]);
}

// Power series about 0, economised by Chebyshev polynomials on the range of w that is used: of
// arcsin x / x - 1 for w <= 0.251 (to 2e-17), of sin x / x - 1 for w <= 2.468 (to 1e-24), of
// artanh x / x - 1 for w <= 0.0296 (to 2e-18); each over w.
constexpr double kArcsine[] = {0.16666666666666669,  0.07499999999998244,  0.04464285714672904,
                               0.030381944109534844, 0.022372174102405076, 0.017352365379053863,
                               0.01397162075615674,  0.01147517983553502,  0.010348922061244966,
                               0.005345023626529833, 0.01770787032439046,  -0.015332709098115106,
                               0.029087020688427834};
constexpr double kSine[] = {-0.16666666666666666,   0.008333333333333333,    -0.0001984126984126984,
                            2.755731922398586e-06,  -2.5052108385432747e-08, 1.6059043835463838e-10,
                            -7.647163606685766e-13, 2.8114501140480984e-15,  -8.218171180672864e-18,
                            1.9101234842227594e-20};
constexpr double kArtanh[] = {0.3333333333333333,  0.2000000000000046,  0.14285714285389808,
                              0.11111111198539354, 0.09090897536843864, 0.0769313509560131,
                              0.06633982114708584, 0.06547507278007139};

// Applies `body` to registers of n numbers, in place; what is beyond n is 0.
template <std::size_t kWidth, typename Body>
TAILOR_ALWAYS_INLINE void map_numbers(const double* in, std::size_t n, double* out,
                                      const Body& body) {
  typename Pack<kWidth>::Numbers v;
  std::size_t k = 0;
  for (; k + kWidth <= n; k += kWidth) {
    load(v, in + k);
    body(v);
    std::memcpy(out + k, &v, sizeof(v));
  }
  if (k < n) {
    v = typename Pack<kWidth>::Numbers{};
    std::memcpy(&v, in + k, (n - k) * sizeof(double));
    body(v);
    std::memcpy(out + k, &v, (n - k) * sizeof(double));
  }
}

template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE void angles_body(const double* squared, std::size_t n, double* out) {
  using Numbers = typename Pack<kWidth>::Numbers;
  using Places = typename Pack<kWidth>::Places;
  map_numbers<kWidth>(
      squared, n, out, [](Numbers & chord) __attribute__((always_inline)) {
        // Beyond 90 degrees by |u - v|^2 + |u + v|^2 = 4.
        const Places obtuse = chord > 2.0;
        const Numbers other = 4.0 - chord, acute = obtuse ? other : chord, quarter = acute * 0.25;
        Numbers half = acute;
        square_root<kWidth>(half);
        half *= 0.5;  // not the root of a quarter: the smallest numbers have none
        // arcsin x = pi / 2 - 2 arcsin sqrt((1 - x) / 2), for x > 1 / 2.
        const Places wide = half > 0.5;
        const Numbers w = wide ? (1.0 - half) * 0.5 : quarter;
        Numbers x = w;
        square_root<kWidth>(x);
        const Numbers narrow = wide ? x : half;
        Numbers arc;
        odd_series<kWidth>(narrow, w, kArcsine, arc);
        // Twice the arcsine; the constants are pi and what float64 leaves of it.
        constexpr double kPi = 3.141592653589793, kPiRest = 1.2246467991473532e-16;
        const Numbers twice = wide ? (kPi - 4.0 * arc) + kPiRest : 2.0 * arc;
        chord = obtuse ? (kPi - twice) + kPiRest : twice;
      });
}

template <std::size_t kWidth>
TAILOR_ALWAYS_INLINE void ball_body(const double* angles, std::size_t n, double kappa,
                                    double* out) {
  using Numbers = typename Pack<kWidth>::Numbers;
  using Places = typename Pack<kWidth>::Places;
  map_numbers<kWidth>(
      angles, n, out, [kappa](Numbers & angle) __attribute__((always_inline)) {
        const Numbers half = angle * 0.5;
        const Numbers square = half * half;
        Numbers h;
        odd_series<kWidth>(half, square, kSine, h);
        h *= kappa;
        Numbers root = 1.0 - Numbers{};
        fuse<kWidth>(root, h, h);
        square_root<kWidth>(root);
        // arsinh h = log(h + root) = e log 2 + 2 artanh((m - 1) / (m + 1)), h + root = m 2^e, m
        // within a factor of sqrt 2 of 1; with e = 0 the quotient is h / (1 + root), to which h
        // loses nothing.
        const Numbers sum = h + root;
        Places bits;
        std::memcpy(&bits, &sum, sizeof(bits));
        constexpr std::int64_t kRootOfHalf = 0x3FE6A09E667F3BCD;  // the bits of sqrt 1/2
        const Places exponent = (bits - kRootOfHalf) >> 52;       // not negative, since sum >= 1
        bits -= exponent << 52;
        Numbers m;
        std::memcpy(&m, &bits, sizeof(m));
        // The number 2^52 + exponent, by its bits.
        const Places shifted = exponent | 0x4330000000000000;
        Numbers e;
        std::memcpy(&e, &shifted, sizeof(e));
        e -= 0x1p52;
        const Places small = exponent == 0;
        const Numbers t = small ? h / (1.0 + root) : (m - 1.0) / (m + 1.0);
        const Numbers w = t * t;
        Numbers artanh;
        odd_series<kWidth>(t, w, kArtanh, artanh);
        // 2 log 2 in two parts: the first has zeros at its end, so that its product with e is
        // exact.
        constexpr double kLog = 0x1.62e42fefap+0, kLogRest = 0x1.cf79abc9e3b3ap-39;
        Numbers low = 4.0 * artanh;
        fuse<kWidth>(low, e, kLogRest - Numbers{});
        angle = e * kLog + low;
      });
}

#define TAILOR_KERNELS(suffix, attribute, width)                                               \
  attribute void squared_##suffix(const PaddedRows& a, std::size_t i0, std::size_t i1,         \
                                  const PaddedRows& b, std::size_t j0, std::size_t j1,         \
                                  double* out, std::size_t out_stride) {                       \
    squared_body<width>(a, i0, i1, b, j0, j1, out, out_stride);                                \
  }                                                                                            \
  attribute void across_##suffix(const PaddedRows& x, const PaddedRows& columns,               \
                                 PaddedRows& out) {                                            \
    across_body<width>(x, columns, out);                                                       \
  }                                                                                            \
  attribute void multiply_##suffix(const PaddedRows& a, const PaddedRows& b, PaddedRows& out,  \
                                   bool accumulate) {                                          \
    multiply_body<width>(a, b, out, accumulate);                                               \
  }                                                                                            \
  attribute double difference_##suffix(const double* x, const double* y, std::size_t stride) { \
    return difference_body<width>(x, y, stride);                                               \
  }                                                                                            \
  attribute double sum_##suffix(const double* x, const double* y, std::size_t stride) {        \
    return sum_body<width>(x, y, stride);                                                      \
  }                                                                                            \
  attribute void angles_##suffix(const double* squared, std::size_t n, double* out) {          \
    angles_body<width>(squared, n, out);                                                       \
  }                                                                                            \
  attribute void ball_##suffix(const double* in, std::size_t n, double kappa, double* out) {   \
    ball_body<width>(in, n, kappa, out);                                                       \
  }                                                                                            \
  attribute LeastTwo least_two_##suffix(const double* c, const double* v, std::size_t n) {     \
    return least_two_body<width>(c, v, n);                                                     \
  }                                                                                            \
  attribute NearestColumns relax_##suffix(const double* c, const double* v, std::size_t n,     \
                                          double offset, double floor, std::int64_t row,       \
                                          const PathColumns& columns) {                        \
    return relax_body<width>(c, v, n, offset, floor, row, columns);                            \
  }

TAILOR_KERNELS(plain, , 2)
#if defined(__x86_64__)
TAILOR_KERNELS(avx2, __attribute__((target("avx2,fma"))), 4)
TAILOR_KERNELS(avx512, __attribute__((target("avx512f,avx512dq"))), 8)
#endif

enum class Level { kPlain, kAvx2, kAvx512 };

Level level() {
#if defined(__x86_64__)
  static const Level best =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? Level::kAvx512
      : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")       ? Level::kAvx2
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

void squared_differences_across(const PaddedRows& x, const PaddedRows& columns, PaddedRows& out) {
  TAILOR_CHECK(columns.count >= 1 && x.stride >= columns.count && out.count == x.count &&
               out.stride == columns.stride);
  TAILOR_DISPATCH(across, x, columns, out)
}

double squared_difference(const double* x, const double* y, std::size_t stride) {
  TAILOR_DISPATCH(difference, x, y, stride)
}

double squared_sum(const double* x, const double* y, std::size_t stride) {
  TAILOR_DISPATCH(sum, x, y, stride)
}

void angles_of_chords(const double* squared, std::size_t n, double* out) {
  TAILOR_DISPATCH(angles, squared, n, out)
}

void ball_distances(const double* angles, std::size_t n, double kappa, double* out) {
  TAILOR_DISPATCH(ball, angles, n, kappa, out)
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
