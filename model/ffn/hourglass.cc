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
#include <ATen/ops/add.h>
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "model/ffn/ffn.h"
#include "model/ffn/sub_mlp.h"

namespace tailor::ffn {
namespace {

class Hourglass final : public Ffn {
 public:
  Hourglass(std::vector<SubMlp> stack, std::optional<net::Norm> first_norm, bool outer_residual)
      : stack_(std::move(stack)), first_norm_(first_norm), outer_residual_(outer_residual) {}

  at::Tensor forward(const at::Tensor& x_nd, const net::FfnTap* tap) const override {
    const at::Tensor y_nd =
        first_norm_ ? forward_first_only(x_nd, tap) : forward_per_sub(x_nd, tap);
    return outer_residual_ ? x_nd + y_nd : y_nd;
  }

  std::int64_t count() const override {
    std::int64_t total = 0;
    for (const SubMlp& mlp : stack_) total += mlp.count();
    return total;
  }

 private:
  at::Tensor forward_per_sub(const at::Tensor& x_nd, const net::FfnTap* tap) const {
    at::Tensor h_nd = x_nd;
    for (const SubMlp& mlp : stack_) h_nd = mlp.add_to(h_nd, tap);
    return h_nd;
  }

  at::Tensor forward_first_only(const at::Tensor& x_nd, const net::FfnTap* tap) const {
    at::Tensor z_nd = (*first_norm_)(x_nd, x_nd.scalar_type());
    at::Tensor y_nd = x_nd;  // x + the updates, so that K = 1 loses nothing to z_K - z_0
    for (const SubMlp& mlp : stack_) {
      const at::Tensor u_nd = mlp.update(z_nd, tap);
      y_nd = at::add(y_nd, u_nd, mlp.write_scale());
      z_nd = at::add(z_nd, u_nd, mlp.write_scale());
      if (tap != nullptr) (*tap)(net::Place::kAfterSubMlp, y_nd);
    }
    return y_nd;
  }

  std::vector<SubMlp> stack_;
  std::optional<net::Norm> first_norm_;
  bool outer_residual_;
};

}  // namespace

std::unique_ptr<Ffn> make_hourglass(const FfnShape& shape, net::ParameterSet& parameters) {
  std::optional<net::Norm> first_norm;
  if (shape.norm == shape::FfnNorm::kFirstOnly) {
    first_norm.emplace(&parameters.add_vector(shape.layer_prefix + "mlp.norm.weight",
                                              shape.key_prefix + "ffn.norm", shape.d_model),
                       shape.eps, shape.gain_plus_one, shape.norm_scale);
  }
  std::vector<SubMlp> stack;
  for (std::size_t i = 0; i < shape.widths.size(); ++i) {
    const std::string name = fmt::format("{}mlp.blocks.{}.", shape.layer_prefix, i);
    const bool both = shape.norm != shape::FfnNorm::kPerSubPost && shape.norm_behind;
    stack.emplace_back(shape, i,
                       SubMlpNames{name, name + "norm.weight",
                                   name + (both ? "norm_behind.weight" : "norm.weight")},
                       parameters);
  }
  return std::make_unique<Hourglass>(std::move(stack), first_norm, shape.outer_residual);
}

}  // namespace tailor::ffn
