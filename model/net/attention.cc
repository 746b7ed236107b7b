#include "model/net/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>

#include "model/kernels/ops.h"
#include "model/net/linear.h"

namespace tailor::net {

RopeTable make_rope_table(std::int64_t length, std::int64_t head_dim, double theta,
                          const at::TensorOptions& options) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor pairs = at::arange(0, head_dim, 2, wide);
  const at::Tensor frequency = at::pow(theta, pairs / -static_cast<double>(head_dim));
  const at::Tensor angle = at::outer(at::arange(0, length, wide), frequency);
  return {at::cos(angle).to(options), at::sin(angle).to(options)};
}

Attention::Attention(const shape::Architecture& architecture, const std::string& layer_prefix,
                     const std::string& key_prefix, ParameterSet& parameters)
    : heads_(architecture.heads),
      kv_heads_(architecture.kv_heads),
      head_dim_(architecture.head_dim),
      eps_(architecture.norm_eps),
      post_norm_(architecture.family == shape::Family::kOlmo2) {
  const std::string name = layer_prefix + "self_attn.";
  const std::string key = key_prefix + "attention.";
  const std::int64_t d = architecture.d_model;
  qkv_ = &parameters.add_matrix(
      {Part{name + "q_proj.weight", key + "q", Init::kNormal, heads_ * head_dim_},
       Part{name + "k_proj.weight", key + "k", Init::kNormal, kv_heads_ * head_dim_},
       Part{name + "v_proj.weight", key + "v", Init::kNormal, kv_heads_ * head_dim_}},
      d);
  out_ = &parameters.add_matrix({Part{name + "o_proj.weight", key + "o", Init::kResidual, d}},
                                heads_ * head_dim_);
  norm_ = &parameters.add_vector(
      layer_prefix + (post_norm_ ? "post_attention_layernorm.weight" : "input_layernorm.weight"),
      key + "norm", d);
  if (post_norm_) {
    q_norm_ = &parameters.add_vector(name + "q_norm.weight", key + "q_norm", heads_ * head_dim_);
    k_norm_ = &parameters.add_vector(name + "k_norm.weight", key + "k_norm", kv_heads_ * head_dim_);
  }
}

at::Tensor Attention::forward(const at::Tensor& x_nd, std::int64_t batch,
                              const RopeTable& rope) const {
  const at::ScalarType type = qkv_->compute.scalar_type();
  const at::Tensor z_nd = post_norm_ ? x_nd : kernels::rms_norm(x_nd, norm_->compute, eps_, type);
  at::Tensor qkv_n = linear_widened(z_nd, *qkv_);
  const std::int64_t q_width = heads_ * head_dim_;
  const std::int64_t k_width = kv_heads_ * head_dim_;
  if (post_norm_) {
    qkv_n = at::cat({kernels::rms_norm(qkv_n.narrow(1, 0, q_width), q_norm_->compute, eps_,
                                       qkv_n.scalar_type()),
                     kernels::rms_norm(qkv_n.narrow(1, q_width, k_width), k_norm_->compute, eps_,
                                       qkv_n.scalar_type()),
                     qkv_n.narrow(1, q_width + k_width, k_width)},
                    1);
  }
  const auto [q_bhte, k_bgte, v_bgte] =
      kernels::rope_split(qkv_n, rope.cos, rope.sin, batch, heads_, kv_heads_);
  const at::Tensor mixed_bhte = at::scaled_dot_product_attention(
      q_bhte, k_bgte, v_bgte, {}, 0.0, /*is_causal=*/true, std::nullopt,
      /*enable_gqa=*/heads_ != kv_heads_);
  const at::Tensor mixed_n = mixed_bhte.transpose(1, 2).reshape({x_nd.size(0), q_width});
  if (post_norm_) {
    const at::Tensor u_nd = linear(mixed_n, *out_);
    return x_nd + kernels::rms_norm(u_nd, norm_->compute, eps_, x_nd.scalar_type());
  }
  return residual_linear(x_nd, mixed_n, *out_);
}

}  // namespace tailor::net
