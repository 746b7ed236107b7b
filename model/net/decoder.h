// Decoder: a decoder-only transformer built from a DecoderForm (net/form.h has its mathematics).
//
//   x = s_E E[tokens]
//   per layer: x = attention(x), x = ffn(x)
//   h = n(x);  scores = cap(h W_head^T)
//
// W_head is E when tied. The residual stream is fp32; with bf16 precision the products are bf16.
// Parameters are counted exactly by model/shape/count.h (tests/model/net compares).
// Legend: B batch, T time, n = B*T rows, d = d_model, v = vocab_size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/ffn/ffn.h"
#include "model/net/attention.h"
#include "model/net/form.h"
#include "model/net/parameters.h"
#include "model/net/tap.h"
#include "model/shape/architecture.h"

namespace tailor::net {

class Decoder {
 public:
  /// Weights are zero until `initialise` or a load. REQUIRES: validate(architecture) is ok.
  Decoder(const shape::Architecture& architecture, at::Device device, bool bf16)
      : Decoder(form_of(architecture), device, bf16) {}
  /// With Use::kInference there are no gradients, and in bf16 no fp32 weights either. REQUIRES:
  /// sizes above 0, heads a multiple of kv_heads, layers' ropes in range with head_dim / 2
  /// frequencies each.
  Decoder(DecoderForm form, at::Device device, bool bf16, Use use = Use::kTraining);

  const DecoderForm& form() const { return form_; }
  ParameterSet& parameters() { return parameters_; }
  const ParameterSet& parameters() const { return parameters_; }
  at::Device device() const { return device_; }

  /// Training keeps only the inputs of layers and computes the rest again (recompute.h).
  void set_recompute(bool on) { recompute_ = on; }

  /// N(0, std), W_o and W_dn scaled by 1/sqrt(R), R = residual writes = L + sum of K
  /// (science.md 1.2).
  void initialise(std::uint64_t seed, double std);
  /// The same with a scale for each part (train/recipe.h).
  void initialise(std::uint64_t seed, const InitialScale& scale);

  /// h_nd, the rows after the final norm. tokens_bt: int64 on the device. A tap sees every place;
  /// the sub-MLPs' products are then not added where they are made, which may change last bits.
  at::Tensor hidden(const at::Tensor& tokens_bt, const Tap* tap = nullptr);
  /// The stream that enters layer 0, (n, d) in fp32.
  at::Tensor embedded(const at::Tensor& tokens_bt) const;
  /// scale * sum over tokens of -log p(target), a scalar of type double. With autograd on,
  /// `backward()` of it adds to the gradients. A negative target is skipped.
  /// `z_loss`: see kernels::linear_cross_entropy.
  at::Tensor loss(const at::Tensor& tokens_bt, const at::Tensor& targets_bt, double scale,
                  double z_loss = 0);
  /// (B) doubles on the device: of each sequence, the sum over its tokens of -log p(target). A
  /// negative target is skipped. No gradient.
  at::Tensor sequence_losses(const at::Tensor& tokens_bt, const at::Tensor& targets_bt);
  /// (n) doubles: -log p(target) of rows of the stream that leaves the last layer. A negative
  /// target is skipped. No gradient.
  at::Tensor row_losses(const at::Tensor& x_nd, const at::Tensor& targets_n) const;
  /// Scores of rows that `hidden` returned, (n, v) in fp32. The product is fp32 whatever the
  /// precision, so that log-probabilities keep their digits: for few rows (model/eval/scorer.h).
  at::Tensor scores(const at::Tensor& h_nd);
  /// (B, T, v) scores: for tests and small evaluations.
  at::Tensor logits(const at::Tensor& tokens_bt);

 private:
  struct Layer {
    std::unique_ptr<Attention> attention;
    std::unique_ptr<ffn::Ffn> ffn;
  };

  RopeTable& rope_table(std::size_t index, std::int64_t time);
  /// cap(z, logit_cap), in place where there is one.
  at::Tensor capped(at::Tensor scores) const;
  /// -log p(target) of each row that `hidden` returned: (n) doubles, without a gradient.
  at::Tensor losses_of(const at::Tensor& h_nd, const at::Tensor& targets_n) const;
  /// -log p(target) of each row when scores are capped, which the chunked kernels do not do: (n).
  at::Tensor capped_row_losses(const at::Tensor& h_nd, const at::Tensor& targets_n) const;

  DecoderForm form_;
  at::Device device_;
  bool recompute_ = false;
  ParameterSet parameters_;
  const Parameter* embedding_;  // (v, d)
  const Parameter* head_;       // (v, d); the embedding when tied
  std::optional<Norm> norm_;
  std::vector<Layer> layers_;
  std::vector<RopeTable> ropes_;
  std::vector<RopeTable> outgrown_;  // shorter ones, kept
  double embedding_scale_;
};

}  // namespace tailor::net
