#include "model/net/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>
#include <c10/util/BFloat16.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/kernels/ops.h"
#include "model/net/linear.h"
#include "model/net/recompute.h"

namespace tailor::net {

namespace {

constexpr std::int64_t kCappedRows = 256;  // rows of scores held at a time

}  // namespace

Decoder::Decoder(DecoderForm form, at::Device device, bool bf16, Use use)
    : form_(std::move(form)), device_(device), ropes_(form_.ropes.size()) {
  const std::int64_t d = form_.d_model;
  // As the published models: the factor is rounded to the type that they compute in.
  embedding_scale_ =
      bf16 ? static_cast<float>(c10::BFloat16(static_cast<float>(form_.embedding_scale)))
           : static_cast<float>(form_.embedding_scale);
  embedding_ = &parameters_.add_matrix(
      {Part{"model.embed_tokens.weight", "embedding", Init::kNormal, form_.vocab_size}}, d);
  for (std::size_t l = 0; l < form_.layers.size(); ++l) {
    TAILOR_CHECK(form_.layers[l].rope < ropes_.size(), "layer {}", l);
    ffn::FfnShape shape = ffn::ffn_shape(form_, l);
    Layer layer;
    layer.attention =
        std::make_unique<Attention>(form_, l, shape.layer_prefix, shape.key_prefix, parameters_);
    layer.ffn = ffn::variant(form_.ffn_kind).make(shape, parameters_);
    layers_.push_back(std::move(layer));
  }
  norm_.emplace(&parameters_.add_vector("model.norm.weight", "norm", d), form_.norm_eps,
                form_.gain_plus_one, 1.0);
  head_ = form_.tied_head
              ? embedding_
              : &parameters_.add_matrix(
                    {Part{"lm_head.weight", "head", Init::kNormal, form_.vocab_size}}, d);
  parameters_.allocate(device, bf16, use);
}

void Decoder::initialise(std::uint64_t seed, double std) {
  initialise(seed, [std](const Part& part) { return part.init == Init::kOnes ? 1.0 : std; });
}

void Decoder::initialise(std::uint64_t seed, const InitialScale& scale) {
  std::size_t writes = 0;
  for (const LayerForm& layer : form_.layers) writes += 1 + layer.widths.size();
  parameters_.initialise(seed, scale, 1.0 / std::sqrt(static_cast<double>(writes)));
}

RopeTable& Decoder::rope_table(std::size_t index, std::int64_t time) {
  RopeTable& table = ropes_[index];
  if (table.length() < time) {
    // A recorded step (train/graphed_step.h) may still read the shorter one.
    if (table.length() > 0) outgrown_.push_back(table);
    table = make_rope_table(time, form_.ropes[index],
                            at::TensorOptions().device(device_).dtype(at::kFloat));
  }
  return table;
}

at::Tensor Decoder::embedded(const at::Tensor& tokens_bt) const {
  const at::Tensor x_nd =
      kernels::embed(tokens_bt.reshape({-1}), embedding_->master).to(at::kFloat);
  return embedding_scale_ != 1 ? x_nd * embedding_scale_ : x_nd;
}

at::Tensor Decoder::hidden(const at::Tensor& tokens_bt, const Tap* tap) {
  const std::int64_t batch = tokens_bt.size(0);
  const std::int64_t time = tokens_bt.size(1);
  std::vector<RopeTable> ropes;
  for (std::size_t i = 0; i < ropes_.size(); ++i) {
    const RopeTable& whole = rope_table(i, time);
    ropes.push_back({whole.cos.narrow(0, 0, time), whole.sin.narrow(0, 0, time)});
  }
  const auto show = [&](Place place, std::int64_t layer, const at::Tensor& x) {
    if (tap != nullptr) (*tap)(place, layer, x);
  };
  at::Tensor x_nd = embedded(tokens_bt);
  show(Place::kEmbedding, -1, x_nd);
  const bool again = recompute_ && tap == nullptr && c10::GradMode::is_enabled();
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const RopeTable& rope = ropes[form_.layers[l].rope];
    if (again) {
      x_nd = recomputed(
          [&layer = layers_[l], batch, rope](const at::Tensor& x) {
            return layer.ffn->forward(layer.attention->forward(x, batch, rope));
          },
          x_nd);
      continue;
    }
    const auto number = static_cast<std::int64_t>(l);
    x_nd = layers_[l].attention->forward(x_nd, batch, rope);
    show(Place::kAfterAttention, number, x_nd);
    if (tap != nullptr) {
      const FfnTap inside = [&](Place place, const at::Tensor& x) { (*tap)(place, number, x); };
      x_nd = layers_[l].ffn->forward(x_nd, &inside);
    } else {
      x_nd = layers_[l].ffn->forward(x_nd);
    }
    show(Place::kAfterFfn, number, x_nd);
  }
  at::Tensor h_nd = (*norm_)(x_nd, head_->compute.scalar_type());
  show(Place::kFinal, form_.depth(), h_nd);
  return h_nd;
}

at::Tensor Decoder::capped(at::Tensor scores) const {
  return form_.logit_cap > 0 ? at::tanh(scores / form_.logit_cap) * form_.logit_cap : scores;
}

at::Tensor Decoder::capped_row_losses(const at::Tensor& h_nd, const at::Tensor& targets_n) const {
  std::vector<at::Tensor> losses;
  for (std::int64_t begin = 0; begin < h_nd.size(0); begin += kCappedRows) {
    const std::int64_t count = std::min(kCappedRows, h_nd.size(0) - begin);
    const at::Tensor targets = targets_n.narrow(0, begin, count);
    const at::Tensor scores = capped(linear(h_nd.narrow(0, begin, count), *head_).to(at::kFloat));
    const at::Tensor logs = at::log_softmax(scores, -1, at::kDouble);
    losses.push_back(-at::gather(logs, 1, targets.clamp_min(0).unsqueeze(1)).squeeze(1) *
                     targets.ge(0));
  }
  return at::cat(losses);
}

at::Tensor Decoder::loss(const at::Tensor& tokens_bt, const at::Tensor& targets_bt, double scale,
                         double z_loss) {
  const at::Tensor targets_n = targets_bt.reshape({-1});
  if (form_.logit_cap > 0) {
    TAILOR_CHECK(z_loss == 0, "capped scores do not drift");
    return capped_row_losses(hidden(tokens_bt), targets_n).sum() * scale;
  }
  return kernels::linear_cross_entropy(hidden(tokens_bt), head_->compute, targets_n, scale,
                                       /*chunk_rows=*/0, z_loss, head_->master);
}

at::Tensor Decoder::sequence_losses(const at::Tensor& tokens_bt, const at::Tensor& targets_bt) {
  const c10::NoGradGuard no_grad;
  return losses_of(hidden(tokens_bt), targets_bt.reshape({-1})).view(tokens_bt.sizes()).sum(1);
}

at::Tensor Decoder::row_losses(const at::Tensor& x_nd, const at::Tensor& targets_n) const {
  const c10::NoGradGuard no_grad;
  return losses_of((*norm_)(x_nd, head_->compute.scalar_type()), targets_n);
}

at::Tensor Decoder::losses_of(const at::Tensor& h_nd, const at::Tensor& targets_n) const {
  return form_.logit_cap > 0 ? capped_row_losses(h_nd, targets_n)
                             : kernels::linear_row_losses(h_nd, head_->compute, targets_n);
}

at::Tensor Decoder::scores(const at::Tensor& h_nd) {
  return capped(at::mm(h_nd.to(at::kFloat), head_->master.to(at::kFloat).t()));
}

at::Tensor Decoder::logits(const at::Tensor& tokens_bt) {
  return capped(linear(hidden(tokens_bt), *head_))
      .view({tokens_bt.size(0), tokens_bt.size(1), form_.vocab_size});
}

}  // namespace tailor::net
