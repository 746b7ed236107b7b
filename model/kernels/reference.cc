// Plain ATen definitions of the operators of ops.h: any device, any floating type. Slow and simple.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>

#include "model/kernels/ops.h"

namespace tailor::kernels::reference {
namespace {

at::ScalarType accumulate_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

bool present(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

// (B,H,T,e) turned by +angle (direction 1) or -angle (-1).
at::Tensor turn(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                double direction) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor a = x.narrow(-1, 0, half).to(cos.scalar_type());
  const at::Tensor b = x.narrow(-1, half, half).to(cos.scalar_type());
  const at::Tensor s = sin * direction;
  return at::cat({a * cos - b * s, b * cos + a * s}, -1).to(x.scalar_type());
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x,
                                            const std::optional<at::Tensor>& weight, double eps,
                                            at::ScalarType dtype) {
  const at::Tensor wide = x.to(accumulate_type(x));
  const at::Tensor rstd = at::rsqrt(wide.square().mean(-1, true) + eps);
  at::Tensor y = wide * rstd;
  if (present(weight)) y = y * *weight;
  return {y.to(dtype), rstd.squeeze(-1)};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                     const std::optional<at::Tensor>& weight,
                                                     const at::Tensor& rstd,
                                                     const std::optional<at::Tensor>& skip) {
  const at::ScalarType wide = accumulate_type(x);
  const at::Tensor g = grad.to(wide);
  const at::Tensor xhat = x.to(wide) * rstd.unsqueeze(-1);
  const at::Tensor gw = present(weight) ? g * *weight : g;
  at::Tensor gx = rstd.unsqueeze(-1) * (gw - xhat * (gw * xhat).mean(-1, true));
  if (present(skip)) gx = gx + skip->to(wide);
  at::Tensor grad_weight;
  if (present(weight)) grad_weight = (g * xhat).sum(0);
  return {gx.to(x.scalar_type()), grad_weight};
}

void product_(at::Tensor& out, const std::optional<at::Tensor>& base, const at::Tensor& a,
              const at::Tensor& b) {
  const at::Tensor product = at::mm(a.to(out.scalar_type()), b.to(out.scalar_type()));
  out.copy_(present(base) ? *base + product : product);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const std::int64_t f = gate_up.size(-1) / 2;
  const at::ScalarType wide = accumulate_type(gate_up);
  return (at::silu(gate_up.narrow(-1, 0, f).to(wide)) * gate_up.narrow(-1, f, f).to(wide))
      .to(gate_up.scalar_type());
}

at::Tensor swiglu_backward(const at::Tensor& grad, const at::Tensor& gate_up) {
  const std::int64_t f = gate_up.size(-1) / 2;
  const at::ScalarType wide = accumulate_type(gate_up);
  const at::Tensor a = gate_up.narrow(-1, 0, f).to(wide);
  const at::Tensor u = gate_up.narrow(-1, f, f).to(wide);
  const at::Tensor g = grad.to(wide);
  const at::Tensor s = at::sigmoid(a);
  return at::cat({g * u * s * (a * (1 - s) + 1), g * a * s}, -1).to(gate_up.scalar_type());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv,
                                                          const at::Tensor& cos,
                                                          const at::Tensor& sin, std::int64_t batch,
                                                          std::int64_t heads,
                                                          std::int64_t kv_heads) {
  const std::int64_t time = qkv.size(0) / batch;
  const at::Tensor split = qkv.view({batch, time, heads + 2 * kv_heads, -1}).transpose(1, 2);
  return {turn(split.narrow(1, 0, heads), cos, sin, 1),
          turn(split.narrow(1, heads, kv_heads), cos, sin, 1),
          split.narrow(1, heads + kv_heads, kv_heads).contiguous()};
}

at::Tensor rope_merge(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor all = at::cat({turn(q, cos, sin, -1), turn(k, cos, sin, -1), v}, 1);
  return all.transpose(1, 2).reshape({q.size(0) * q.size(2), -1});
}

at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets, double scale,
                          bool with_grad, double z_loss) {
  const at::Tensor scored = targets.ge(0);  // a negative target is skipped
  const at::Tensor column = targets.clamp_min(0).unsqueeze(1);
  at::Tensor wide = logits.to(accumulate_type(logits));  // itself, unless the scores are narrow
  const at::Tensor log_z = at::logsumexp(wide, {1});
  at::Tensor loss = (log_z - wide.gather(1, column).squeeze(1)).to(at::kDouble) * scored;
  if (z_loss != 0) loss += log_z.to(at::kDouble).square() * scored * z_loss;
  if (with_grad) {
    wide.copy_(at::softmax(wide, 1));
    if (z_loss != 0) wide.mul_((log_z * (2 * z_loss) + 1).unsqueeze(1));
    wide.scatter_(1, column, wide.gather(1, column) - 1);
    wide.mul_(scored.unsqueeze(1) * scale);
    if (!wide.is_same(logits)) logits.copy_(wide);
  }
  return loss;
}

at::Tensor sum_squares(const at::Tensor& x) { return x.square().sum(at::kDouble); }

}  // namespace tailor::kernels::reference
