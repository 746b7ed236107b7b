// DecoderForm: everything that changes the forward mathematics of one decoder, as a value.
//
// An Architecture (what the search varies and Tailor trains) is one kind of form; the families of
// pretrained models (Llama 3, OLMo 2, Mistral, Gemma 2 and 3) are others. The network is built from
// the form alone. Torch-free.
//
//   x = s_E E[tokens]
//   per layer: x = x + r n(Attn(n(x))), x = ffn(x)   n: where attention_norm, ffn_norm say;
//                                                    r: write scale
//   h = n(x);  scores = cap(h W_head^T, c_z)         cap(z, c) = c tanh(z / c), or z when c = 0
//   Attn: softmax over the visible keys of cap(s_a q k, c_a), q and k turned by RoPE after their
//         norms
//   n(x) = x / sqrt(mean(x^2) + eps) * g             g = w or 1 + w, times the layer's norm scale
//
// Symbols as in shape/architecture.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/shape/architecture.h"

namespace tailor::net {

/// Of the gate: silu(x) = x sigmoid(x); gelu as x Phi(x), or with Phi's tanh approximation.
enum class Activation { kSilu, kGeluTanh, kGelu };

/// Norms of the projected q and k, before RoPE.
enum class QkNorm {
  kNone,
  kWhole,    ///< over all heads together, gains of H e and H_kv e (OLMo 2)
  kPerHead,  ///< over each head, gains of e shared by the heads (Gemma 3)
};

/// What may differ between layers.
struct LayerForm {
  shape::LayerWidths widths;  ///< K hidden widths
  std::int64_t window = 0;    ///< keys that a query sees, its own included; 0 = all up to itself
  std::size_t rope = 0;       ///< index into DecoderForm::ropes
  friend bool operator==(const LayerForm&, const LayerForm&) = default;
};

/// See the top of this file.
struct DecoderForm {
  std::int64_t d_model = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab_size = 0;
  bool tied_head = true;
  double embedding_scale = 1;  ///< s_E; rounded to the type of the products
  double logit_cap = 0;        ///< c_z; 0 = none

  double norm_eps = 1e-5;
  bool gain_plus_one = false;  ///< g = 1 + w (Gemma)

  bool attention_norm_before = true;
  bool attention_norm_behind = false;
  QkNorm qk_norm = QkNorm::kNone;
  double attention_scale = 0;  ///< s_a; 0 = 1/sqrt(e)
  double score_cap = 0;        ///< c_a; 0 = none
  /// Inverse frequencies of RoPE: angle of position t and pair i is t * ropes[.][i]; e/2 each.
  std::vector<std::vector<double>> ropes;

  shape::FfnKind ffn_kind = shape::FfnKind::kSwiglu;
  shape::FfnNorm ffn_norm = shape::FfnNorm::kPerSub;
  bool ffn_norm_behind = false;  ///< a norm behind each sub-MLP besides (Gemma)
  bool ffn_outer_residual = false;
  Activation activation = Activation::kSilu;

  /// Norms of layer l = 1, 2, ... give 1/sqrt(l) of their value (arXiv 2502.05795). Not the final
  /// norm, not those of q and k.
  bool norm_scaling = false;
  /// The i-th residual write of the network, i = 1, 2, ..., is scaled by 1/sqrt(i).
  bool residual_scaling = false;

  std::vector<LayerForm> layers;

  std::int64_t depth() const { return static_cast<std::int64_t>(layers.size()); }
  /// s_a with its default resolved.
  double score_scale() const;
  /// Factor of the norms of layer `layer` (from 0).
  double norm_scale(std::size_t layer) const;
  /// Factors of the 1 + K residual writes of layer `layer`: attention, then each sub-MLP.
  std::vector<double> write_scales(std::size_t layer) const;
  friend bool operator==(const DecoderForm&, const DecoderForm&) = default;
};

/// The form of a network that Tailor trains. REQUIRES: validate(architecture) is ok.
DecoderForm form_of(const shape::Architecture& architecture);

/// theta^(-2i/e), i = 0 .. e/2 - 1. REQUIRES: head_dim even and above 0.
std::vector<double> rope_frequencies(std::int64_t head_dim, double theta);

/// Llama 3.1's stretching of RoPE for longer contexts. With wavelength l = 2 pi / f and original
/// context T0: l < T0/high keeps f, l > T0/low gives f/factor, between them a blend linear in T0/l.
struct Llama3Scaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_positions = 8192;
};
void scale_llama3(const Llama3Scaling& scaling, std::vector<double>& frequencies);

}  // namespace tailor::net
