#include "model/ffn/sub_mlp.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/gelu.h>
#include <fmt/format.h>

#include <tuple>

#include "model/kernels/ops.h"
#include "model/net/linear.h"

namespace tailor::ffn {
namespace {

using shape::FfnNorm;

at::Tensor show(const net::FfnTap* tap, net::Place place, at::Tensor x) {
  if (tap != nullptr) (*tap)(place, x);
  return x;
}

}  // namespace

SubMlp::SubMlp(const FfnShape& shape, std::size_t index, const SubMlpNames& names,
               net::ParameterSet& parameters)
    : d_model_(shape.d_model),
      d_h_(shape.widths[index]),
      activation_(shape.activation),
      write_scale_(shape.write_scales.empty() ? 1.0 : shape.write_scales[index]) {
  using net::Init;
  using net::Part;
  const std::string key = fmt::format("{}ffn.{}.", shape.key_prefix, index);
  const std::string& name = names.projections;
  gate_up_ =
      &parameters.add_matrix({Part{name + "gate_proj.weight", key + "gate", Init::kNormal, d_h_},
                              Part{name + "up_proj.weight", key + "up", Init::kNormal, d_h_}},
                             d_model_);
  down_ = &parameters.add_matrix(
      {Part{name + "down_proj.weight", key + "down", Init::kResidual, d_model_}}, d_h_);
  const auto norm = [&](const net::Parameter* gain) {
    return net::Norm(gain, shape.eps, shape.gain_plus_one, shape.norm_scale);
  };
  const bool before = shape.norm == FfnNorm::kPerSub;
  const bool behind = shape.norm == FfnNorm::kPerSubPost || shape.norm_behind;
  if (shape.norm == FfnNorm::kPerSubGainless) before_ = norm(nullptr);
  if (before) before_ = norm(&parameters.add_vector(names.norm_before, key + "norm", d_model_));
  if (behind) {
    behind_ = norm(&parameters.add_vector(names.norm_behind,
                                          key + (before ? "norm_behind" : "norm"), d_model_));
  }
}

at::Tensor SubMlp::gated(const at::Tensor& z_nd) const {
  const at::Tensor gate_up = net::linear(z_nd, *gate_up_);
  if (activation_ == net::Activation::kSilu) return kernels::swiglu(gate_up);
  const auto* approximate = activation_ == net::Activation::kGeluTanh ? "tanh" : "none";
  return at::gelu(gate_up.narrow(1, 0, d_h_), approximate) * gate_up.narrow(1, d_h_, d_h_);
}

at::Tensor SubMlp::update(const at::Tensor& z_nd, const net::FfnTap* tap) const {
  const at::Tensor z = show(tap, net::Place::kMlpInput, z_nd);
  return show(tap, net::Place::kMlpOutput, net::linear(gated(z), *down_));
}

at::Tensor SubMlp::add_to(const at::Tensor& h_nd, const net::FfnTap* tap) const {
  at::Tensor skip_nd = h_nd;
  at::Tensor z_nd = h_nd;
  if (before_) std::tie(skip_nd, z_nd) = before_->fork(h_nd, gate_up_->compute.scalar_type());
  if (tap == nullptr && !behind_) {
    return net::residual_linear(skip_nd, gated(z_nd), *down_, write_scale_);
  }
  at::Tensor u_nd = update(z_nd, tap);
  if (behind_) u_nd = (*behind_)(u_nd, h_nd.scalar_type());
  return show(tap, net::Place::kAfterSubMlp, at::add(skip_nd, u_nd, write_scale_));
}

}  // namespace tailor::ffn
