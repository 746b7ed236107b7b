// The inner loops of Tailor's CPU kernels, chosen once for the instruction set of this machine.
//
// cpu_loops.inc is compiled three times (baseline x86-64, AVX2, AVX-512) into three namespaces; the
// table below holds the functions of the best set that the machine has. The loops know no tensors
// and no threads: kernels/ops.cc cuts rows into ranges and calls them.
// bf16 values travel as their 16 bits.
//
// Every result depends only on its own row (or on a fixed block of rows), never on the number of
// threads, so a run is reproducible whatever `threads` is.
#pragma once

#include <cstdint>

#include "model/kernels/op_table.h"

namespace tailor::kernels {

/// Sizes of a packed q,k,v row: (heads + 2 kv_heads) * head_dim values.
struct RopeShape {
  std::int64_t sequence = 0;  ///< T
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  ///< even
};

/// Scalars of an AdamW update, made in double and rounded once:
/// model/kernels/adamw.h has the formula.
struct AdamWFactors {
  float gradient_scale = 1;
  float one_minus_beta1 = 0;
  float beta2 = 0;
  float one_minus_beta2 = 0;
  float keep = 1;        ///< 1 - lr decay
  float step = 0;        ///< lr / (1 - beta1^t)
  float root_scale = 1;  ///< 1 / sqrt(1 - beta2^t)
  float eps = 0;
};

/// One set of loops, one for each line of the lists of op_table.h. Row-major, `d` values a row.
struct CpuLoops {
  using f32 = float;
  using bf16 = std::uint16_t;  // in its 16 bits

  const char* name;

  // y = x * rstd * w, rstd = 1/sqrt(mean(x^2) + eps). `w` may be null (gainless). x rows are
  // `stride` apart.
#define TAILOR_CASE(X, Y)                                                                        \
  void (*rms_norm_##X##_##Y)(const X* x, std::int64_t stride, const float* w, std::int64_t rows, \
                             std::int64_t d, float eps, Y* y, float* rstd);
  TAILOR_NORM_TYPES(TAILOR_CASE)
#undef TAILOR_CASE
  // gx = rstd (g w - xhat mean(g w xhat)) + skip; gw += sum over rows of g xhat. `skip`, whose rows
  // are `skip_stride` apart, and gw may be null.
#define TAILOR_CASE(X, Y)                                                                          \
  void (*rms_norm_backward_##X##_##Y)(const Y* g, const X* x, std::int64_t stride, const float* w, \
                                      const float* rstd, const X* skip, std::int64_t skip_stride,  \
                                      std::int64_t rows, std::int64_t d, X* gx, float* gw);
  TAILOR_NORM_TYPES(TAILOR_CASE)
#undef TAILOR_CASE

  // gate_up rows hold f gates, then f ups. y = silu(gate) * up.
  // rope_split: rows [begin, end) of the packed (B*T, (H + 2 H_kv) e) matrix to q (B,H,T,e), k and
  // v (B,H_kv,T,e), q and k turned by RoPE (half-split). cos and sin are (T, e/2). rope_merge: the
  // transpose, gradients of q, k, v to the gradient of the packed rows.
  // cross_entropy: loss[r] = l - row[target] + z_loss l^2, l = logsumexp(row); with_grad replaces
  // the row by (softmax (1 + 2 z_loss l) - onehot) * scale. A negative target is skipped: no loss,
  // no gradient.
#define TAILOR_CASE(X, Y)                                                                          \
  void (*swiglu_##X)(const X* gate_up, std::int64_t rows, std::int64_t f, X* y);                   \
  void (*swiglu_backward_##X)(const X* g, const X* gate_up, std::int64_t rows, std::int64_t f,     \
                              X* ggate_up);                                                        \
  void (*rope_split_##X)(const X* qkv, std::int64_t begin, std::int64_t end, RopeShape shape,      \
                         const float* cos, const float* sin, X* q, X* k, X* v);                    \
  void (*rope_merge_##X)(const X* q, const X* k, const X* v, std::int64_t begin, std::int64_t end, \
                         RopeShape shape, const float* cos, const float* sin, X* qkv);             \
  void (*cross_entropy_##X)(X * logits, const std::int64_t* targets, std::int64_t rows,            \
                            std::int64_t v, float scale, bool with_grad, float z_loss,             \
                            double* loss);
  TAILOR_ONE_TYPE(TAILOR_CASE)
#undef TAILOR_CASE

  // Sum of squares of n values, accumulated in double.
  double (*sum_squares)(const float* x, std::int64_t n);

  // One AdamW update of n values, the weights also rounded to bf16 if `low` is not null.
  void (*adamw)(float* w, const float* g, float* m, float* v, std::uint16_t* low, std::int64_t n,
                AdamWFactors factors);

  // n bf16 values to fp32, exactly, and back, to nearest even.
  void (*widen)(const std::uint16_t* x, std::int64_t n, float* y);
  void (*narrow)(const float* x, std::int64_t n, std::uint16_t* y);
};

/// The loops for this machine. Threads: any.
const CpuLoops& cpu_loops();

/// Every set that this machine can run, the baseline first (tests compare them).
const CpuLoops* const* all_cpu_loops(int* count);

}  // namespace tailor::kernels
