// The arithmetic of the CUDA kernels, without threads or grids: the same source is compiled by nvcc
// for the device and by the C++ compiler for tests/model/kernels/cuda_bodies_test.cc, which runs it
// lane by lane against reference.cc on machines without a GPU.
// kernels.cu says which block works on which row.
//
// A Team is the lanes that share a row: a warp, or a block for the long rows of the cross-entropy.
// It has
//   kLanes          how many
//   each(f)         f(lane) in every lane; no order between lanes
//   sum(f)          the sum of f(lane) over all lanes, known to every lane; lanes wait for each
//                   other
//   max_sum(f)      the same for pairs joined by `join`
// A lane takes N neighbouring values at a time: 8 (16 bytes of bf16, 32 of fp32) when every row
// starts at a multiple of 16 bytes, else 1. A row is read a second time rather than kept in
// registers: it is in the cache by then, and its width needs no limit. All sums are fp32, losses
// and sums of squares double.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "model/kernels/cpu_loops.h"

#ifdef __CUDACC__
#define TAILOR_BODY __device__ __forceinline__
#else
#define TAILOR_BODY inline
#endif

namespace tailor::kernels::cuda {

/// A bf16 value in its 16 bits.
struct Bf16 {
  std::uint16_t bits;
};

TAILOR_BODY float widen(float x) { return x; }
TAILOR_BODY float widen(Bf16 x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16;
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

TAILOR_BODY void narrow(float x, float* out) { *out = x; }
/// Rounds to nearest, ties to even; NaN stays NaN.
TAILOR_BODY void narrow(float x, Bf16* out) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out->bits) : "f"(x));
#else
  std::uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  out->bits = static_cast<std::uint16_t>(x == x ? rounded >> 16 : (bits >> 16) | 0x40);
#endif
}

template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T values[N];
};

/// N values from `p`, which is aligned for Pack<T, N>.
template <int N, typename T>
TAILOR_BODY void load(const T* p, float (&out)[N]) {
  Pack<T, N> pack;
#ifdef __CUDA_ARCH__
  pack = *reinterpret_cast<const Pack<T, N>*>(p);
#else
  memcpy(&pack, p, sizeof pack);
#endif
  for (int j = 0; j < N; ++j) out[j] = widen(pack.values[j]);
}

template <int N, typename T>
TAILOR_BODY void store(const float (&x)[N], T* p) {
  Pack<T, N> pack;
  for (int j = 0; j < N; ++j) narrow(x[j], &pack.values[j]);
#ifdef __CUDA_ARCH__
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
#else
  memcpy(p, &pack, sizeof pack);
#endif
}

/// N gains, or ones.
template <int N>
TAILOR_BODY void load_gain(const float* w, std::int64_t at, float (&out)[N]) {
  if (w != nullptr) {
    load<N>(w + at, out);
  } else {
    for (int j = 0; j < N; ++j) out[j] = 1.0f;
  }
}

// ---- RMSNorm:  y = x rstd w,  rstd = 1 / sqrt(mean(x^2) + eps)

template <int N, typename Team, typename X, typename Y>
TAILOR_BODY void rms_norm_row(Team team, const X* x, const float* w, std::int64_t d, float eps,
                              Y* y, float* rstd) {
  const float squares = team.sum([&](int lane) {
    float sum = 0;
    for (std::int64_t i = lane * N; i < d; i += Team::kLanes * N) {
      float v[N];
      load<N>(x + i, v);
      for (int j = 0; j < N; ++j) sum += v[j] * v[j];
    }
    return sum;
  });
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(d) + eps);
  team.each([&](int lane) {
    if (lane == 0) *rstd = scale;
    for (std::int64_t i = lane * N; i < d; i += Team::kLanes * N) {
      float v[N];
      float gain[N];
      load<N>(x + i, v);
      load_gain<N>(w, i, gain);
      for (int j = 0; j < N; ++j) v[j] = v[j] * scale * gain[j];
      store<N>(v, y + i);
    }
  });
}

/// gx = rstd (g w - xhat mean(g w xhat)) + skip, xhat = x rstd; columns += g xhat.
/// `skip` is the gradient that reaches x past the norm; it and `columns` (d sums of the gain's
/// gradient, for this team alone) may be null. gx may be `skip`.
template <int N, typename Team, typename X, typename Y>
TAILOR_BODY void rms_norm_backward_row(Team team, const Y* g, const X* x, const float* w,
                                       float rstd, const X* skip, std::int64_t d, X* gx,
                                       float* columns) {
  const float dot = team.sum([&](int lane) {
    float sum = 0;
    for (std::int64_t i = lane * N; i < d; i += Team::kLanes * N) {
      float grad[N];
      float v[N];
      float gain[N];
      load<N>(g + i, grad);
      load<N>(x + i, v);
      load_gain<N>(w, i, gain);
      for (int j = 0; j < N; ++j) sum += grad[j] * gain[j] * v[j];
    }
    return sum;
  });
  const float shrink = dot * rstd * rstd / static_cast<float>(d);
  team.each([&](int lane) {
    for (std::int64_t i = lane * N; i < d; i += Team::kLanes * N) {
      float grad[N];
      float v[N];
      float gain[N];
      float out[N];
      load<N>(g + i, grad);
      load<N>(x + i, v);
      load_gain<N>(w, i, gain);
      if (skip != nullptr) {
        load<N>(skip + i, out);
      } else {
        for (int j = 0; j < N; ++j) out[j] = 0;
      }
      for (int j = 0; j < N; ++j) out[j] += rstd * (grad[j] * gain[j] - v[j] * shrink);
      store<N>(out, gx + i);
      if (columns != nullptr) {
        for (int j = 0; j < N; ++j) columns[i + j] += grad[j] * v[j] * rstd;
      }
    }
  });
}

// ---- SwiGLU:  y = silu(gate) up; a row holds f gates, then f ups

template <int N, typename Team, typename T>
TAILOR_BODY void swiglu_row(Team team, const T* gate_up, std::int64_t f, T* y) {
  team.each([&](int lane) {
    for (std::int64_t i = lane * N; i < f; i += Team::kLanes * N) {
      float gate[N];
      float up[N];
      load<N>(gate_up + i, gate);
      load<N>(gate_up + f + i, up);
      for (int j = 0; j < N; ++j) up[j] *= gate[j] / (1.0f + expf(-gate[j]));
      store<N>(up, y + i);
    }
  });
}

template <int N, typename Team, typename T>
TAILOR_BODY void swiglu_backward_row(Team team, const T* g, const T* gate_up, std::int64_t f,
                                     T* out) {
  team.each([&](int lane) {
    for (std::int64_t i = lane * N; i < f; i += Team::kLanes * N) {
      float grad[N];
      float gate[N];
      float up[N];
      load<N>(g + i, grad);
      load<N>(gate_up + i, gate);
      load<N>(gate_up + f + i, up);
      for (int j = 0; j < N; ++j) {
        const float s = 1.0f / (1.0f + expf(-gate[j]));
        const float of_up = grad[j] * gate[j] * s;
        gate[j] = grad[j] * up[j] * s * (1.0f + gate[j] * (1.0f - s));
        up[j] = of_up;
      }
      store<N>(gate, out + i);
      store<N>(up, out + f + i);
    }
  });
}

// ---- RoPE, half-split form: pair (i, i + e/2) of a head turns by the angle of its position

/// Elements from one batch, head or position to the next; the last dimension is dense.
struct HeadStrides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t time = 0;
};

/// q, k and v of one packed row or of its gradient.
template <typename T>
struct Heads {
  T* q = nullptr;
  T* k = nullptr;
  T* v = nullptr;
  HeadStrides q_strides, k_strides, v_strides;
};

/// Moves row (b, t) between the packed matrix and the heads: `split` packed -> heads, turned
/// forward; otherwise heads -> packed, turned back (the transpose, for gradients). N divides e/2.
template <int N, bool split, typename Team, typename T>
TAILOR_BODY void rope_row(Team team, T* packed, RopeShape shape, std::int64_t b, std::int64_t t,
                          const float* cos, const float* sin, const Heads<T>& heads) {
  const int half = static_cast<int>(shape.head_dim / 2);
  const int per_half = half / N;
  const int turned = static_cast<int>(shape.heads + shape.kv_heads) * per_half;
  const int all = turned + static_cast<int>(shape.kv_heads) * 2 * per_half;
  const auto place = [&](T* base, const HeadStrides& strides, int head) {
    return base + b * strides.batch + head * strides.head + t * strides.time;
  };
  team.each([&](int lane) {
    for (int unit = lane; unit < all; unit += Team::kLanes) {
      if (unit < turned) {
        const int head = unit / per_half;
        const int i = unit % per_half * N;
        T* row = packed + head * shape.head_dim + i;
        T* out = (head < shape.heads
                      ? place(heads.q, heads.q_strides, head)
                      : place(heads.k, heads.k_strides, head - static_cast<int>(shape.heads))) +
                 i;
        float c[N];
        float s[N];
        float first[N];
        float second[N];
        load<N>(cos + t * half + i, c);
        load<N>(sin + t * half + i, s);
        load<N>(split ? row : out, first);
        load<N>((split ? row : out) + half, second);
        for (int j = 0; j < N; ++j) {
          const float a = first[j];
          const float turn = split ? s[j] : -s[j];
          first[j] = a * c[j] - second[j] * turn;
          second[j] = second[j] * c[j] + a * turn;
        }
        store<N>(first, split ? out : row);
        store<N>(second, (split ? out : row) + half);
      } else {
        const int head = (unit - turned) / (2 * per_half);
        const int i = (unit - turned) % (2 * per_half) * N;
        T* row = packed + (shape.heads + shape.kv_heads + head) * shape.head_dim + i;
        T* out = place(heads.v, heads.v_strides, head) + i;
        float copied[N];
        load<N>(split ? row : out, copied);
        store<N>(copied, split ? out : row);
      }
    }
  });
}

// ---- Cross-entropy of a row of scores, the gradient in their place

/// Running maximum and sum of exp(x - top).
struct MaxSum {
  float top = -FLT_MAX;  // not -infinity: infinity minus itself is NaN
  float sum = 0;
};

TAILOR_BODY MaxSum join(MaxSum a, MaxSum b) {
  MaxSum out;
  out.top = fmaxf(a.top, b.top);
  out.sum = a.sum * expf(a.top - out.top) + b.sum * expf(b.top - out.top);
  return out;
}

/// log Z - row[target] + z_loss log^2 Z, Z = sum of exp(row). `with_grad` replaces the row by
/// (softmax (1 + 2 z_loss log Z) - onehot) scale. A negative target is skipped: no loss, no
/// gradient. The result is known to every lane.
template <int N, typename Team, typename T>
TAILOR_BODY double cross_entropy_row(Team team, T* row, std::int64_t target, std::int64_t v,
                                     float scale, bool with_grad, double z_loss) {
  if (target < 0) {
    if (with_grad) {
      team.each([&](int lane) {
        const float zeros[N] = {};
        for (std::int64_t i = lane * N; i < v; i += Team::kLanes * N) store<N>(zeros, row + i);
      });
    }
    return 0;
  }
  const float at_target = widen(row[target]);  // before any lane overwrites it: max_sum waits
  const MaxSum all = team.max_sum([&](int lane) {
    MaxSum running;
    for (std::int64_t i = lane * N; i < v; i += Team::kLanes * N) {
      float x[N];
      load<N>(row + i, x);
      MaxSum here;
      for (int j = 0; j < N; ++j) here.top = fmaxf(here.top, x[j]);
      here.top = fmaxf(here.top, running.top);
      for (int j = 0; j < N; ++j) here.sum += expf(x[j] - here.top);
      here.sum += running.sum * expf(running.top - here.top);
      running = here;
    }
    return running;
  });
  const double log_z = log(static_cast<double>(all.sum)) + static_cast<double>(all.top);
  if (with_grad) {
    const float factor = scale * static_cast<float>(1 + 2 * z_loss * log_z) / all.sum;
    team.each([&](int lane) {
      for (std::int64_t i = lane * N; i < v; i += Team::kLanes * N) {
        float x[N];
        load<N>(row + i, x);
        for (int j = 0; j < N; ++j) {
          x[j] = expf(x[j] - all.top) * factor - (i + j == target ? scale : 0.0f);
        }
        store<N>(x, row + i);
      }
    });
  }
  return log_z - static_cast<double>(at_target) + z_loss * log_z * log_z;
}

// ---- Sum of squares

/// The part of lane `lane` of `lanes`: every lanes-th group of 4 values;
/// `x` at a multiple of 16 bytes.
TAILOR_BODY double sum_squares_lane(const float* x, std::int64_t n, std::int64_t lane,
                                    std::int64_t lanes) {
  double sum = 0;
  const std::int64_t whole = n / 4;
  for (std::int64_t i = lane; i < whole; i += lanes) {
    float v[4];
    load<4>(x + i * 4, v);
    for (int j = 0; j < 4; ++j) sum += static_cast<double>(v[j]) * static_cast<double>(v[j]);
  }
  for (std::int64_t i = whole * 4 + lane; i < n; i += lanes) {
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return sum;
}

}  // namespace tailor::kernels::cuda
