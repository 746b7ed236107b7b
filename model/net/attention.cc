#include "model/net/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "model/kernels/ops.h"
#include "model/net/linear.h"

namespace tailor::net {
namespace {

constexpr std::int64_t kQueriesAtOnce = 256;

}  // namespace

RopeTable make_rope_table(std::int64_t length, const std::vector<double>& frequencies,
                          const at::TensorOptions& options) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor angle = at::outer(at::arange(0, length, wide), at::tensor(frequencies, wide));
  return {at::cos(angle).to(options), at::sin(angle).to(options)};
}

at::Tensor windowed_attention(const at::Tensor& q_bhte, const at::Tensor& k_bgte,
                              const at::Tensor& v_bgte, double scale, std::int64_t window,
                              double cap) {
  const std::int64_t batch = q_bhte.size(0);
  const std::int64_t heads = q_bhte.size(1);
  const std::int64_t time = q_bhte.size(2);
  const std::int64_t head_dim = q_bhte.size(3);
  const std::int64_t kv_heads = k_bgte.size(1);
  const std::int64_t group = heads / kv_heads;
  const at::ScalarType type = q_bhte.scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor positions = at::arange(time, q_bhte.options().dtype(at::kLong));
  std::vector<at::Tensor> mixed;
  for (std::int64_t begin = 0; begin < time; begin += kQueriesAtOnce) {
    const std::int64_t count = std::min(kQueriesAtOnce, time - begin);
    const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, begin - window + 1) : 0;
    const std::int64_t keys = begin + count - first;
    // The query heads of one key head side by side: one product, no copies of k and v.
    const at::Tensor q =
        q_bhte.narrow(2, begin, count).reshape({batch, kv_heads, group * count, head_dim});
    at::Tensor scores =
        at::matmul(q, k_bgte.narrow(2, first, keys).transpose(2, 3)).to(wide) * scale;
    if (cap > 0) scores = at::tanh(scores / cap) * cap;
    const at::Tensor behind = positions.narrow(0, begin, count).unsqueeze(1) -
                              positions.narrow(0, first, keys).unsqueeze(0);
    at::Tensor hidden = behind.lt(0);
    if (window > 0) hidden = hidden.logical_or(behind.ge(window));
    scores = scores.view({batch, kv_heads, group, count, keys})
                 .masked_fill(hidden, -std::numeric_limits<double>::infinity());
    const at::Tensor weights =
        at::softmax(scores, -1).to(type).view({batch, kv_heads, group * count, keys});
    mixed.push_back(
        at::matmul(weights, v_bgte.narrow(2, first, keys)).view({batch, heads, count, head_dim}));
  }
  return mixed.size() == 1 ? mixed.front() : at::cat(mixed, 2);
}

Attention::Attention(const DecoderForm& form, std::size_t layer, const std::string& layer_prefix,
                     const std::string& key_prefix, ParameterSet& parameters)
    : heads_(form.heads),
      kv_heads_(form.kv_heads),
      head_dim_(form.head_dim),
      qk_norm_(form.qk_norm),
      cap_(form.score_cap),
      window_(form.layers[layer].window),
      write_scale_(form.write_scales(layer).front()) {
  if (form.attention_scale > 0) scale_ = form.attention_scale;
  const std::string name = layer_prefix + "self_attn.";
  const std::string key = key_prefix + "attention.";
  const std::int64_t d = form.d_model;
  qkv_ = &parameters.add_matrix(
      {Part{name + "q_proj.weight", key + "q", Init::kNormal, heads_ * head_dim_},
       Part{name + "k_proj.weight", key + "k", Init::kNormal, kv_heads_ * head_dim_},
       Part{name + "v_proj.weight", key + "v", Init::kNormal, kv_heads_ * head_dim_}},
      d);
  out_ = &parameters.add_matrix({Part{name + "o_proj.weight", key + "o", Init::kResidual, d}},
                                heads_ * head_dim_);
  const auto norm = [&](const std::string& stored, const std::string& place, std::int64_t size,
                        double scale) {
    return Norm(&parameters.add_vector(stored, key + place, size), form.norm_eps,
                form.gain_plus_one, scale);
  };
  const double scale = form.norm_scale(layer);
  if (form.attention_norm_before) {
    before_ = norm(layer_prefix + "input_layernorm.weight", "norm", d, scale);
  }
  if (form.attention_norm_behind) {
    behind_ = norm(layer_prefix + "post_attention_layernorm.weight",
                   form.attention_norm_before ? "norm_behind" : "norm", d, scale);
  }
  if (qk_norm_ != QkNorm::kNone) {
    const bool whole = qk_norm_ == QkNorm::kWhole;
    q_norm_ = norm(name + "q_norm.weight", "q_norm", whole ? heads_ * head_dim_ : head_dim_, 1);
    k_norm_ = norm(name + "k_norm.weight", "k_norm", whole ? kv_heads_ * head_dim_ : head_dim_, 1);
  }
}

at::Tensor Attention::normed_qk(const at::Tensor& qkv_n) const {
  const std::int64_t q_width = heads_ * head_dim_;
  const std::int64_t k_width = kv_heads_ * head_dim_;
  at::Tensor q_n = qkv_n.narrow(1, 0, q_width);
  at::Tensor k_n = qkv_n.narrow(1, q_width, k_width);
  const at::ScalarType type = qkv_n.scalar_type();
  if (qk_norm_ == QkNorm::kWhole) {
    q_n = (*q_norm_)(q_n, type);
    k_n = (*k_norm_)(k_n, type);
  } else {
    q_n = (*q_norm_)(q_n.reshape({-1, head_dim_}), type).view({-1, q_width});
    k_n = (*k_norm_)(k_n.reshape({-1, head_dim_}), type).view({-1, k_width});
  }
  return at::cat({q_n, k_n, qkv_n.narrow(1, q_width + k_width, k_width)}, 1);
}

at::Tensor Attention::mix(const at::Tensor& q_bhte, const at::Tensor& k_bgte,
                          const at::Tensor& v_bgte) const {
  if (cap_ > 0 || (window_ > 0 && window_ < q_bhte.size(2))) {
    return windowed_attention(q_bhte, k_bgte, v_bgte,
                              scale_.value_or(1.0 / std::sqrt(static_cast<double>(head_dim_))),
                              window_, cap_);
  }
  return at::scaled_dot_product_attention(q_bhte, k_bgte, v_bgte, {}, 0.0, /*is_causal=*/true,
                                          scale_, /*enable_gqa=*/heads_ != kv_heads_);
}

at::Tensor Attention::forward(const at::Tensor& x_nd, std::int64_t batch,
                              const RopeTable& rope) const {
  const at::ScalarType type = qkv_->compute.scalar_type();
  // The stream goes two ways: into the norm, and past everything.
  at::Tensor skip_nd = x_nd;
  at::Tensor z_nd = x_nd;
  if (before_) std::tie(skip_nd, z_nd) = before_->fork(x_nd, type);
  at::Tensor qkv_n = linear_widened(z_nd, *qkv_);
  if (q_norm_) qkv_n = normed_qk(qkv_n);
  const auto [q_bhte, k_bgte, v_bgte] =
      kernels::rope_split(qkv_n, rope.cos, rope.sin, batch, heads_, kv_heads_);
  const at::Tensor mixed_n =
      mix(q_bhte, k_bgte, v_bgte).transpose(1, 2).reshape({x_nd.size(0), heads_ * head_dim_});
  if (!behind_) return residual_linear(skip_nd, mixed_n, *out_, write_scale_);
  return at::add(skip_nd, (*behind_)(linear(mixed_n, *out_), x_nd.scalar_type()), write_scale_);
}

}  // namespace tailor::net
