// One body a loop, instantiated for three instruction sets.
#include "geometry/kernels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tailor::geometry {
namespace {

typedef double Lanes __attribute__((vector_size(kLanes * sizeof(double))));

#define TAILOR_ALWAYS_INLINE inline __attribute__((always_inline))

TAILOR_ALWAYS_INLINE void load(Lanes& v, const double* p) { std::memcpy(&v, p, sizeof(v)); }

// Sum of the lanes in a fixed tree order.
TAILOR_ALWAYS_INLINE double sum_lanes(const Lanes& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// out[r] = |x - y_r|^2 for four rows y_r.
TAILOR_ALWAYS_INLINE void four_squared(const double* x, const double* y0, const double* y1,
                                       const double* y2, const double* y3, std::size_t stride,
                                       double* out) {
  Lanes s0{}, s1{}, s2{}, s3{}, vx, v;
  for (std::size_t k = 0; k < stride; k += kLanes) {
    load(vx, x + k);
    load(v, y0 + k);
    v = vx - v;
    s0 += v * v;
    load(v, y1 + k);
    v = vx - v;
    s1 += v * v;
    load(v, y2 + k);
    v = vx - v;
    s2 += v * v;
    load(v, y3 + k);
    v = vx - v;
    s3 += v * v;
  }
  out[0] = sum_lanes(s0);
  out[1] = sum_lanes(s1);
  out[2] = sum_lanes(s2);
  out[3] = sum_lanes(s3);
}

TAILOR_ALWAYS_INLINE void squared_body(const PaddedRows& a, std::size_t i0, std::size_t i1,
                                       const PaddedRows& b, std::size_t j0, std::size_t j1,
                                       double* out, std::size_t out_stride) {
  if (j0 == j1) return;
  const std::size_t last = j1 - 1;
  for (std::size_t i = i0; i < i1; ++i) {
    for (std::size_t j = j0; j < j1; j += 4) {
      double four[4];
      four_squared(a.row(i), b.row(j), b.row(std::min(j + 1, last)), b.row(std::min(j + 2, last)),
                   b.row(std::min(j + 3, last)), a.stride, four);
      std::copy(four, four + std::min<std::size_t>(4, j1 - j),
                out + (i - i0) * out_stride + (j - j0));
    }
  }
}

// Rows of b that a panel of the product stays in cache for.
constexpr std::size_t kPanel = 128;

// Four rows of `out`, one group of lanes at a time, summed over the rows [k0, k1) of b.
TAILOR_ALWAYS_INLINE void multiply_body(const PaddedRows& a, const PaddedRows& b, PaddedRows& out) {
  const std::size_t n = a.count;
  for (std::size_t k0 = 0; k0 < n; k0 += kPanel) {
    const std::size_t k1 = std::min(n, k0 + kPanel);
    for (std::size_t i = 0; i < n; i += 4) {
      const std::size_t last = n - 1;
      const double* a0 = a.row(i);
      const double* a1 = a.row(std::min(i + 1, last));
      const double* a2 = a.row(std::min(i + 2, last));
      const double* a3 = a.row(std::min(i + 3, last));
      const std::size_t rows = std::min<std::size_t>(4, n - i);
      for (std::size_t c = 0; c < b.stride; c += 2 * kLanes) {
        const bool two = c + kLanes < b.stride;
        Lanes s00{}, s10{}, s20{}, s30{}, s01{}, s11{}, s21{}, s31{}, v0, v1{};
        if (k0 != 0) {
          load(s00, out.row(i) + c);
          if (rows > 1) load(s10, out.row(i + 1) + c);
          if (rows > 2) load(s20, out.row(i + 2) + c);
          if (rows > 3) load(s30, out.row(i + 3) + c);
          if (two) {
            load(s01, out.row(i) + c + kLanes);
            if (rows > 1) load(s11, out.row(i + 1) + c + kLanes);
            if (rows > 2) load(s21, out.row(i + 2) + c + kLanes);
            if (rows > 3) load(s31, out.row(i + 3) + c + kLanes);
          }
        }
        if (two) {
          for (std::size_t k = k0; k < k1; ++k) {
            load(v0, b.row(k) + c);
            load(v1, b.row(k) + c + kLanes);
            s00 += a0[k] * v0;
            s01 += a0[k] * v1;
            s10 += a1[k] * v0;
            s11 += a1[k] * v1;
            s20 += a2[k] * v0;
            s21 += a2[k] * v1;
            s30 += a3[k] * v0;
            s31 += a3[k] * v1;
          }
        } else {
          for (std::size_t k = k0; k < k1; ++k) {
            load(v0, b.row(k) + c);
            s00 += a0[k] * v0;
            s10 += a1[k] * v0;
            s20 += a2[k] * v0;
            s30 += a3[k] * v0;
          }
        }
        std::memcpy(out.row(i) + c, &s00, sizeof(s00));
        if (rows > 1) std::memcpy(out.row(i + 1) + c, &s10, sizeof(s10));
        if (rows > 2) std::memcpy(out.row(i + 2) + c, &s20, sizeof(s20));
        if (rows > 3) std::memcpy(out.row(i + 3) + c, &s30, sizeof(s30));
        if (two) {
          std::memcpy(out.row(i) + c + kLanes, &s01, sizeof(s01));
          if (rows > 1) std::memcpy(out.row(i + 1) + c + kLanes, &s11, sizeof(s11));
          if (rows > 2) std::memcpy(out.row(i + 2) + c + kLanes, &s21, sizeof(s21));
          if (rows > 3) std::memcpy(out.row(i + 3) + c + kLanes, &s31, sizeof(s31));
        }
      }
    }
  }
}

#define TAILOR_KERNELS(suffix, attribute)                                                       \
  attribute void squared_##suffix(const PaddedRows& a, std::size_t i0, std::size_t i1,          \
                                  const PaddedRows& b, std::size_t j0, std::size_t j1,          \
                                  double* out, std::size_t out_stride) {                        \
    squared_body(a, i0, i1, b, j0, j1, out, out_stride);                                        \
  }                                                                                             \
  attribute void multiply_##suffix(const PaddedRows& a, const PaddedRows& b, PaddedRows& out) { \
    multiply_body(a, b, out);                                                                   \
  }

TAILOR_KERNELS(plain, )
#if defined(__x86_64__)
TAILOR_KERNELS(avx2, __attribute__((target("avx2"))))
TAILOR_KERNELS(avx512, __attribute__((target("avx512f"))))
#endif

enum class Level { kPlain, kAvx2, kAvx512 };

Level level() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return Level::kAvx512;
  if (__builtin_cpu_supports("avx2")) return Level::kAvx2;
#endif
  return Level::kPlain;
}

}  // namespace

void squared_differences(const PaddedRows& a, std::size_t i0, std::size_t i1, const PaddedRows& b,
                         std::size_t j0, std::size_t j1, double* out, std::size_t out_stride) {
  TAILOR_CHECK(a.stride == b.stride);
  switch (level()) {
#if defined(__x86_64__)
    case Level::kAvx512:
      return squared_avx512(a, i0, i1, b, j0, j1, out, out_stride);
    case Level::kAvx2:
      return squared_avx2(a, i0, i1, b, j0, j1, out, out_stride);
#endif
    default:
      return squared_plain(a, i0, i1, b, j0, j1, out, out_stride);
  }
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
  switch (level()) {
#if defined(__x86_64__)
    case Level::kAvx512:
      return multiply_avx512(a, b, out);
    case Level::kAvx2:
      return multiply_avx2(a, b, out);
#endif
    default:
      return multiply_plain(a, b, out);
  }
}

}  // namespace tailor::geometry
