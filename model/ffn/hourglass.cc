// The hourglass FFN: K gated MLPs of any hidden widths, joined by residual paths (science.md 1.2).
//
//   h_0 = x
//   h_i = h_{i-1} + W_dn,i ( SiLU(W_g,i n_i(h_{i-1})) * (W_u,i n_i(h_{i-1})) ),   i = 1..K
//   y   = h_K                                        (+ x with the option outer_residual)
//
// Options of the norm:
//   per_sub            n_i has its own gain (default)         per_sub_gainless   n_i without gain
//   per_sub_post       h_i = h_{i-1} + n_i(MLP_i(h_{i-1}))    none               no norm
//   first_only         z_0 = n(x), z_i = z_{i-1} + MLP_i(z_{i-1}), y = x + (z_K - z_0)
//
// 3 d * sum of d_h,i parameters and, by option, K d, 0, K d, 0 or d gains. K = 1 runs the same
// operations as swiglu.cc in the same order, hence the same bits. Exported names:
// model.layers.L.mlp.blocks.I.{norm,gate_proj,up_proj,down_proj}.weight.
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <vector>

#include "model/ffn/ffn.h"
#include "model/ffn/sub_mlp.h"
#include "model/kernels/ops.h"

namespace tailor::ffn {
namespace {

class Hourglass final : public Ffn {
 public:
  Hourglass(std::vector<SubMlp> stack, const net::Parameter* first_norm, double eps,
            bool outer_residual)
      : stack_(std::move(stack)),
        first_norm_(first_norm),
        eps_(eps),
        outer_residual_(outer_residual) {}

  at::Tensor forward(const at::Tensor& x_nd) const override {
    const at::Tensor y_nd =
        first_norm_ != nullptr ? forward_first_only(x_nd) : forward_per_sub(x_nd);
    return outer_residual_ ? x_nd + y_nd : y_nd;
  }

  std::int64_t count() const override {
    std::int64_t total = 0;
    for (const SubMlp& mlp : stack_) total += mlp.count();
    return total;
  }

 private:
  at::Tensor forward_per_sub(const at::Tensor& x_nd) const {
    at::Tensor h_nd = x_nd;
    for (const SubMlp& mlp : stack_) h_nd = mlp.add_to(h_nd);
    return h_nd;
  }

  at::Tensor forward_first_only(const at::Tensor& x_nd) const {
    at::Tensor z_nd = kernels::rms_norm(x_nd, first_norm_->compute, eps_, x_nd.scalar_type());
    at::Tensor y_nd = x_nd;  // x + the updates, so that K = 1 loses nothing to z_K - z_0
    for (const SubMlp& mlp : stack_) {
      const at::Tensor u_nd = mlp.update(z_nd);
      y_nd = y_nd + u_nd;
      z_nd = z_nd + u_nd;
    }
    return y_nd;
  }

  std::vector<SubMlp> stack_;
  const net::Parameter* first_norm_;
  double eps_;
  bool outer_residual_;
};

}  // namespace

std::unique_ptr<Ffn> make_hourglass(const FfnShape& shape, net::ParameterSet& parameters) {
  SubNorm norm = SubNorm::kNone;
  const net::Parameter* first_norm = nullptr;
  switch (shape.norm) {
    case shape::FfnNorm::kPerSub:
      norm = SubNorm::kPre;
      break;
    case shape::FfnNorm::kPerSubGainless:
      norm = SubNorm::kPreGainless;
      break;
    case shape::FfnNorm::kPerSubPost:
      norm = SubNorm::kPost;
      break;
    case shape::FfnNorm::kNone:
      break;
    case shape::FfnNorm::kFirstOnly:
      first_norm = &parameters.add_vector(shape.layer_prefix + "mlp.norm.weight",
                                          shape.key_prefix + "ffn.norm", shape.d_model);
      break;
  }
  std::vector<SubMlp> stack;
  for (std::size_t i = 0; i < shape.widths.size(); ++i) {
    const std::string name = fmt::format("{}mlp.blocks.{}.", shape.layer_prefix, i);
    stack.emplace_back(shape.d_model, shape.widths[i], norm, shape.eps, name, name + "norm.weight",
                       fmt::format("{}ffn.{}.", shape.key_prefix, i), parameters);
  }
  return std::make_unique<Hourglass>(std::move(stack), first_norm, shape.eps, shape.outer_residual);
}

}  // namespace tailor::ffn
