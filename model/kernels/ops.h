// The differentiable operations that Tailor adds to LibTorch, and how to reach them.
//
// Each is an operator of the dispatcher's library "tailor". op_table.h lists the shapes and types
// that each takes; a call with others is an error that names the operator and the types, the same
// on every device. Implementations:
//   reference.cc  plain ATen in any type: the definition that the others are tested against
//   ops_cpu.cc    CPU, over the loops of cpu_loops.h
//   cuda/         CUDA, in libtailor_cuda.so, which registers itself when it is loaded
//   ops.cc        the meta level: sizes and types alone
// autograd.cc makes the functions below differentiable.
//
// Legend: n = B*T rows, d = width, f = hidden width, v = vocabulary, H = heads, G = kv_heads,
// e = head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "model/kernels/op_table.h"

namespace tailor::kernels {

/// y_nd = x_nd / sqrt(mean(x^2) + eps) * weight_d in type `dtype`. `weight` may be undefined
/// (gainless). x may have a row stride; its rows are dense. Statistics are fp32.
at::Tensor rms_norm(const at::Tensor& x_nd, const at::Tensor& weight_d, double eps,
                    at::ScalarType dtype);

/// {x, rms_norm(x)} for a sub-block x + f(norm(x)): the first is for the residual path. The two
/// gradients that meet in x are then added where the norm's own is made, not by a pass of its own.
std::tuple<at::Tensor, at::Tensor> rms_norm_fork(const at::Tensor& x_nd, const at::Tensor& weight_d,
                                                 double eps, at::ScalarType dtype);

/// silu(gate) * up for rows that hold f gates, then f ups: (n, 2f) -> (n, f).
at::Tensor swiglu(const at::Tensor& gate_up_n2f);

/// Splits packed rows (n, (H + 2G) e) into q (B,H,T,e), k (B,G,T,e) and v (B,G,T,e), q and k turned
/// by RoPE in the half-split form. `cos` and `sin` are (T, e/2), fp32.
std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv_n,
                                                          const at::Tensor& cos,
                                                          const at::Tensor& sin, std::int64_t batch,
                                                          std::int64_t heads,
                                                          std::int64_t kv_heads);

/// scale * sum over rows of -log softmax(x_nd W_vd^T)[target], as a scalar of type double.
/// Never holds more than `chunk_rows` rows of logits: the gradients of x and W are made chunk by
/// chunk in the forward pass and kept (n d + v d values). Scores are fp32 whatever the type of the
/// products. `chunk_rows` 0 = some million scores a chunk. Rows with a negative target are skipped:
/// no loss, no gradient. REQUIRES: targets < v.
/// With `z_loss` z > 0 each row also costs z log^2 Z, Z = sum of exp(scores): it keeps the scores
/// from drifting (arXiv 2204.02311, section 5; OLMo 2 uses 1e-5).
/// `leaf_vd`, where given, is the fp32 leaf that `weight_vd` is a copy of: it gets the gradient.
at::Tensor linear_cross_entropy(const at::Tensor& x_nd, const at::Tensor& weight_vd,
                                const at::Tensor& targets_n, double scale,
                                std::int64_t chunk_rows = 0, double z_loss = 0,
                                const at::Tensor& leaf_vd = {});

/// -log softmax(x_nd W_vd^T)[target] of each row, (n) of type double, 0 where the target is
/// negative. No gradient. Scores are held `chunk_rows` rows at a time, as above.
at::Tensor linear_row_losses(const at::Tensor& x_nd, const at::Tensor& weight_vd,
                             const at::Tensor& targets_n, std::int64_t chunk_rows = 0);

/// Sum of squares of a dense tensor, a scalar of type double on its device.
at::Tensor sum_squares(const at::Tensor& x);

/// The table's name of a tensor's type.
Type type_of(at::ScalarType type);

/// Plain ATen implementations (reference.cc): what every kernel must agree with.
namespace reference {
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x,
                                            const std::optional<at::Tensor>& weight, double eps,
                                            at::ScalarType dtype);
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(
    const at::Tensor& grad, const at::Tensor& x, const std::optional<at::Tensor>& weight,
    const at::Tensor& rstd, const std::optional<at::Tensor>& skip = std::nullopt);
void product_(at::Tensor& out, const std::optional<at::Tensor>& base, const at::Tensor& a,
              const at::Tensor& b);
at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor swiglu_backward(const at::Tensor& grad, const at::Tensor& gate_up);
std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv,
                                                          const at::Tensor& cos,
                                                          const at::Tensor& sin, std::int64_t batch,
                                                          std::int64_t heads,
                                                          std::int64_t kv_heads);
at::Tensor rope_merge(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& cos, const at::Tensor& sin);
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets, double scale,
                          bool with_grad, double z_loss = 0);
at::Tensor sum_squares(const at::Tensor& x);
}  // namespace reference

/// The raw operators through the dispatcher (no autograd); autograd.cc and tests use them. A call
/// that op_table.h does not list throws c10::NotImplementedError (types) or c10::Error (shapes).
namespace op {
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x,
                                            const std::optional<at::Tensor>& weight, double eps,
                                            at::ScalarType dtype);
/// `skip`: a gradient of x's shape and type that is added to x's.
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(
    const at::Tensor& grad, const at::Tensor& x, const std::optional<at::Tensor>& weight,
    const at::Tensor& rstd, const std::optional<at::Tensor>& skip = std::nullopt);
/// out_nm = a_nk b_km, or base_nm + a_nk b_km, for fp32 `out` and `base` (which may be `out`) and
/// bf16 factors, either of which may be transposed. A GPU adds in fp32 where the product is made:
/// one launch; a CPU as linear.h says, and where it multiplies bf16 itself each product is rounded
/// to bf16 before it is added.
void product_(at::Tensor& out, const std::optional<at::Tensor>& base, const at::Tensor& a,
              const at::Tensor& b);
at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor swiglu_backward(const at::Tensor& grad, const at::Tensor& gate_up);
std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv,
                                                          const at::Tensor& cos,
                                                          const at::Tensor& sin, std::int64_t batch,
                                                          std::int64_t heads,
                                                          std::int64_t kv_heads);
at::Tensor rope_merge(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& cos, const at::Tensor& sin);
/// Row losses -log p(target) + z_loss log^2 Z in double; with_grad replaces the logits by
/// (softmax (1 + 2 z_loss log Z) - onehot) * scale.
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets, double scale,
                          bool with_grad, double z_loss = 0);
at::Tensor sum_squares(const at::Tensor& x);
/// adamw.h; CPU alone.
void adamw_(at::Tensor& w, const at::Tensor& g, at::Tensor& m, at::Tensor& v,
            const std::optional<at::Tensor>& low, double lr, double beta1, double beta2, double eps,
            double decay, double gradient_scale, std::int64_t t);
/// sum_vd[tokens] += grad_nd; CPU alone. REQUIRES: tokens in range.
void embed_backward_(at::Tensor& sum, const at::Tensor& grad, const at::Tensor& tokens);
}  // namespace op

}  // namespace tailor::kernels
