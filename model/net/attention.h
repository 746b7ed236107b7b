// Causal self-attention with its norms and residual write: MHA, GQA or MQA, full or in a window.
//
//   x + r n_b(W_o Attn(RoPE(n_q(W_q z)), RoPE(n_k(W_k z)), W_v z)),  z = n_a(x)
//
// Which norms there are (n_a, n_b, n_q, n_k), the scale, the soft cap and the window: net/form.h.
// LLaMA has n_a; OLMo 2 n_b, n_q and n_k; Gemma 3 all four.
//
// W_q: (H e, d), W_k, W_v: (G e, d) packed with it, W_o: (d, H e); RoPE half-split. H e need not
// equal d. d H e + 2 d G e + H e d parameters; gains of d, and of H e + G e or 2 e for q and k.
// Legend: n = B*T, d = d_model, H = heads, G = kv_heads, e = head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/net/form.h"
#include "model/net/norm.h"
#include "model/net/parameters.h"

namespace tailor::net {

/// Cosines and sines of RoPE, (T, e/2): angle of position t and pair i is t * frequencies[i].
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
  std::int64_t length() const { return cos.defined() ? cos.size(0) : 0; }
};

/// Computed in double, rounded once to `options`' type.
RopeTable make_rope_table(std::int64_t length, const std::vector<double>& frequencies,
                          const at::TensorOptions& options);

/// Softmax attention written out, for what at::scaled_dot_product_attention has no fast way: a
/// query sees `window` keys (0 = all) up to its own, and scores are capped (0 = not) before the
/// mask. q (B,H,T,e), k, v (B,G,T,e); gives (B,H,T,e). Holds the scores of 256 queries at a time.
at::Tensor windowed_attention(const at::Tensor& q_bhte, const at::Tensor& k_bgte,
                              const at::Tensor& v_bgte, double scale, std::int64_t window,
                              double cap);

class Attention {
 public:
  Attention(const DecoderForm& form, std::size_t layer, const std::string& layer_prefix,
            const std::string& key_prefix, ParameterSet& parameters);

  /// x_nd: residual stream, rows ordered (b, t). Returns the stream after attention.
  at::Tensor forward(const at::Tensor& x_nd, std::int64_t batch, const RopeTable& rope) const;

 private:
  at::Tensor normed_qk(const at::Tensor& qkv_n) const;
  at::Tensor mix(const at::Tensor& q_bhte, const at::Tensor& k_bgte,
                 const at::Tensor& v_bgte) const;

  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  QkNorm qk_norm_;
  std::optional<double> scale_;  // unless 1/sqrt(e)
  double cap_;
  std::int64_t window_;
  double write_scale_;
  const Parameter* qkv_;  // ((H + 2G) e, d)
  const Parameter* out_;  // (d, H e)
  std::optional<Norm> before_;
  std::optional<Norm> behind_;
  std::optional<Norm> q_norm_;
  std::optional<Norm> k_norm_;
};

}  // namespace tailor::net
