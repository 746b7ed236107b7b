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

/// One set of loops. F = float, H = bf16 in 16 bits. Row-major, `d` values a row.
struct CpuLoops {
  const char* name;

  // y = x * rstd * w, rstd = 1/sqrt(mean(x^2) + eps). `w` may be null (gainless). x rows are
  // `stride` apart.
  void (*rms_norm_ff)(const float* x, std::int64_t stride, const float* w, std::int64_t rows,
                      std::int64_t d, float eps, float* y, float* rstd);
  void (*rms_norm_fh)(const float* x, std::int64_t stride, const float* w, std::int64_t rows,
                      std::int64_t d, float eps, std::uint16_t* y, float* rstd);
  void (*rms_norm_hh)(const std::uint16_t* x, std::int64_t stride, const float* w,
                      std::int64_t rows, std::int64_t d, float eps, std::uint16_t* y, float* rstd);
  // gx = rstd (g w - xhat mean(g w xhat)); gw += sum over rows of g xhat (gw may be null).
  void (*rms_norm_backward_ff)(const float* g, const float* x, std::int64_t stride, const float* w,
                               const float* rstd, std::int64_t rows, std::int64_t d, float* gx,
                               float* gw);
  void (*rms_norm_backward_fh)(const std::uint16_t* g, const float* x, std::int64_t stride,
                               const float* w, const float* rstd, std::int64_t rows, std::int64_t d,
                               float* gx, float* gw);
  void (*rms_norm_backward_hh)(const std::uint16_t* g, const std::uint16_t* x, std::int64_t stride,
                               const float* w, const float* rstd, std::int64_t rows, std::int64_t d,
                               std::uint16_t* gx, float* gw);

  // gate_up rows hold f gates, then f ups. y = silu(gate) * up.
  void (*swiglu_f)(const float* gate_up, std::int64_t rows, std::int64_t f, float* y);
  void (*swiglu_h)(const std::uint16_t* gate_up, std::int64_t rows, std::int64_t f,
                   std::uint16_t* y);
  void (*swiglu_backward_f)(const float* g, const float* gate_up, std::int64_t rows, std::int64_t f,
                            float* ggate_up);
  void (*swiglu_backward_h)(const std::uint16_t* g, const std::uint16_t* gate_up, std::int64_t rows,
                            std::int64_t f, std::uint16_t* ggate_up);

  // Rows [begin, end) of the packed (B*T, (H + 2 H_kv) e) matrix to q (B,H,T,e), k and v
  // (B,H_kv,T,e), q and k turned by RoPE (half-split). cos and sin are (T, e/2).
  void (*rope_split_f)(const float* qkv, std::int64_t begin, std::int64_t end, RopeShape shape,
                       const float* cos, const float* sin, float* q, float* k, float* v);
  void (*rope_split_h)(const std::uint16_t* qkv, std::int64_t begin, std::int64_t end,
                       RopeShape shape, const float* cos, const float* sin, std::uint16_t* q,
                       std::uint16_t* k, std::uint16_t* v);
  // The transpose of the above: gradients of q, k, v to the gradient of the packed rows.
  void (*rope_merge_f)(const float* q, const float* k, const float* v, std::int64_t begin,
                       std::int64_t end, RopeShape shape, const float* cos, const float* sin,
                       float* qkv);
  void (*rope_merge_h)(const std::uint16_t* q, const std::uint16_t* k, const std::uint16_t* v,
                       std::int64_t begin, std::int64_t end, RopeShape shape, const float* cos,
                       const float* sin, std::uint16_t* qkv);

  // loss[r] = l - row[target] + z_loss l^2, l = logsumexp(row); with_grad replaces the row by
  // (softmax (1 + 2 z_loss l) - onehot) * scale.
  // A negative target is skipped: no loss, no gradient.
  void (*cross_entropy_f)(float* logits, const std::int64_t* targets, std::int64_t rows,
                          std::int64_t v, float scale, bool with_grad, float z_loss, double* loss);

  // Sum of squares of n values, accumulated in double.
  double (*sum_squares_f)(const float* x, std::int64_t n);

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
