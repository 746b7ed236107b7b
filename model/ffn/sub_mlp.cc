#include "model/ffn/sub_mlp.h"

#include <ATen/TensorOperators.h>

#include "model/kernels/ops.h"
#include "model/net/linear.h"

namespace tailor::ffn {

SubMlp::SubMlp(std::int64_t d_model, std::int64_t d_h, SubNorm norm, double eps,
               const std::string& name, const std::string& norm_name, const std::string& key,
               net::ParameterSet& parameters)
    : d_model_(d_model), d_h_(d_h), norm_(norm), eps_(eps) {
  using net::Init;
  using net::Part;
  gate_up_ =
      &parameters.add_matrix({Part{name + "gate_proj.weight", key + "gate", Init::kNormal, d_h},
                              Part{name + "up_proj.weight", key + "up", Init::kNormal, d_h}},
                             d_model);
  down_ = &parameters.add_matrix(
      {Part{name + "down_proj.weight", key + "down", Init::kResidual, d_model}}, d_h);
  if (norm == SubNorm::kPre || norm == SubNorm::kPost) {
    gain_ = &parameters.add_vector(norm_name, key + "norm", d_model);
  }
}

at::Tensor SubMlp::gated(const at::Tensor& z_nd) const {
  return kernels::swiglu(net::linear(z_nd, *gate_up_));
}

at::Tensor SubMlp::update(const at::Tensor& z_nd) const { return net::linear(gated(z_nd), *down_); }

at::Tensor SubMlp::add_to(const at::Tensor& h_nd) const {
  switch (norm_) {
    case SubNorm::kPre:
    case SubNorm::kPreGainless: {
      const at::Tensor z_nd =
          kernels::rms_norm(h_nd, gain_ != nullptr ? gain_->compute : at::Tensor(), eps_,
                            gate_up_->compute.scalar_type());
      return net::residual_linear(h_nd, gated(z_nd), *down_);
    }
    case SubNorm::kPost:
      return h_nd + kernels::rms_norm(update(h_nd), gain_->compute, eps_, h_nd.scalar_type());
    case SubNorm::kNone:
      break;
  }
  return net::residual_linear(h_nd, gated(h_nd), *down_);
}

}  // namespace tailor::ffn
