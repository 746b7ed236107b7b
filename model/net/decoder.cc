#include "model/net/decoder.h"

#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/kernels/ops.h"
#include "model/net/linear.h"
#include "model/net/recompute.h"

namespace tailor::net {

Decoder::Decoder(const shape::Architecture& architecture, at::Device device, bool bf16)
    : architecture_(architecture), device_(device) {
  const std::int64_t d = architecture.d_model;
  embedding_ = &parameters_.add_matrix(
      {Part{"model.embed_tokens.weight", "embedding", Init::kNormal, architecture.vocab_size}}, d);
  for (std::int32_t l = 0; l < architecture.layers(); ++l) {
    const std::string prefix = fmt::format("model.layers.{}.", l);
    const std::string key = fmt::format("layers.{}.", l);
    Layer layer;
    layer.attention = std::make_unique<Attention>(architecture, prefix, key, parameters_);
    ffn::FfnShape shape;
    shape.d_model = d;
    shape.widths = architecture.widths[static_cast<std::size_t>(l)];
    shape.norm = architecture.ffn_norm;
    shape.family = architecture.family;
    shape.outer_residual = architecture.ffn_outer_residual;
    shape.eps = architecture.norm_eps;
    shape.layer_prefix = prefix;
    shape.key_prefix = key;
    layer.ffn = ffn::variant(architecture.ffn_kind).make(shape, parameters_);
    layers_.push_back(std::move(layer));
  }
  norm_ = &parameters_.add_vector("model.norm.weight", "norm", d);
  head_ = architecture.tie_embeddings
              ? embedding_
              : &parameters_.add_matrix(
                    {Part{"lm_head.weight", "head", Init::kNormal, architecture.vocab_size}}, d);
  parameters_.allocate(device, bf16);
}

void Decoder::initialise(std::uint64_t seed, double std) {
  initialise(seed, [std](const Part& part) { return part.init == Init::kOnes ? 1.0 : std; });
}

void Decoder::initialise(std::uint64_t seed, const InitialScale& scale) {
  std::size_t writes = 0;
  for (const shape::LayerWidths& widths : architecture_.widths) writes += 1 + widths.size();
  parameters_.initialise(seed, scale, 1.0 / std::sqrt(static_cast<double>(writes)));
}

at::Tensor Decoder::hidden(const at::Tensor& tokens_bt, const Tap* tap) {
  const std::int64_t batch = tokens_bt.size(0);
  const std::int64_t time = tokens_bt.size(1);
  if (rope_.length() < time) {
    rope_ = make_rope_table(time, architecture_.head_dim, architecture_.rope_theta,
                            at::TensorOptions().device(device_).dtype(at::kFloat));
  }
  const RopeTable rope{rope_.cos.narrow(0, 0, time), rope_.sin.narrow(0, 0, time)};
  const auto show = [&](Place place, std::int64_t layer, const at::Tensor& x) {
    if (tap != nullptr) (*tap)(place, layer, x);
  };
  at::Tensor x_nd = kernels::embed(tokens_bt.reshape({-1}), embedding_->master);
  show(Place::kEmbedding, -1, x_nd);
  const bool again = recompute_ && tap == nullptr && c10::GradMode::is_enabled();
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (again) {
      x_nd = recomputed(
          [&layer = layers_[l], batch, rope](const at::Tensor& x) {
            return layer.ffn->forward(layer.attention->forward(x, batch, rope));
          },
          x_nd);
      continue;
    }
    x_nd = layers_[l].attention->forward(x_nd, batch, rope);
    show(Place::kAfterAttention, static_cast<std::int64_t>(l), x_nd);
    x_nd = layers_[l].ffn->forward(x_nd);
    show(Place::kAfterFfn, static_cast<std::int64_t>(l), x_nd);
  }
  at::Tensor h_nd =
      kernels::rms_norm(x_nd, norm_->compute, architecture_.norm_eps, head_->compute.scalar_type());
  show(Place::kFinal, static_cast<std::int64_t>(layers_.size()), h_nd);
  return h_nd;
}

at::Tensor Decoder::loss(const at::Tensor& tokens_bt, const at::Tensor& targets_bt, double scale,
                         double z_loss) {
  return kernels::linear_cross_entropy(hidden(tokens_bt), head_->compute, targets_bt.reshape({-1}),
                                       scale, /*chunk_rows=*/0, z_loss, head_->master);
}

at::Tensor Decoder::sequence_losses(const at::Tensor& tokens_bt, const at::Tensor& targets_bt) {
  const c10::NoGradGuard no_grad;
  return kernels::linear_row_losses(hidden(tokens_bt), head_->compute, targets_bt.reshape({-1}))
      .view(tokens_bt.sizes())
      .sum(1);
}

at::Tensor Decoder::scores(const at::Tensor& h_nd) {
  return at::mm(h_nd.to(at::kFloat), head_->master.t());
}

at::Tensor Decoder::logits(const at::Tensor& tokens_bt) {
  return linear(hidden(tokens_bt), *head_)
      .view({tokens_bt.size(0), tokens_bt.size(1), architecture_.vocab_size});
}

}  // namespace tailor::net
