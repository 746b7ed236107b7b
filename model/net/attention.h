// Causal self-attention with its norm and residual write, MHA, GQA or MQA.
//
//   LLaMA:   x + W_o Attn(RoPE(W_q z), RoPE(W_k z), W_v z),  z = n(x)
//   OLMo 2:  x + n(W_o Attn(RoPE(n_q(W_q x)), RoPE(n_k(W_k x)), W_v x)); n_q and n_k over the whole
//            projected vector, before the head split
//
// W_q: (H e, d), W_k, W_v: (G e, d) packed with it, W_o: (d, H e); scale 1/sqrt(e); RoPE
// half-split. H e need not equal d. d H e + 2 d G e + H e d parameters; a gain of d; OLMo 2: H e +
// G e more. Legend: n = B*T, d = d_model, H = heads, G = kv_heads, e = head_dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "model/net/parameters.h"
#include "model/shape/architecture.h"

namespace tailor::net {

/// Cosines and sines of RoPE, (T, e/2): angle of position t and pair i is t * theta^(-2i/e).
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
  std::int64_t length() const { return cos.defined() ? cos.size(0) : 0; }
};

/// Computed in double, rounded once to `dtype`.
RopeTable make_rope_table(std::int64_t length, std::int64_t head_dim, double theta,
                          const at::TensorOptions& options);

class Attention {
 public:
  Attention(const shape::Architecture& architecture, const std::string& layer_prefix,
            const std::string& key_prefix, ParameterSet& parameters);

  /// x_nd: residual stream, rows ordered (b, t). Returns the stream after attention.
  at::Tensor forward(const at::Tensor& x_nd, std::int64_t batch, const RopeTable& rope) const;

 private:
  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  double eps_;
  bool post_norm_;         // OLMo 2
  const Parameter* qkv_;   // ((H + 2G) e, d)
  const Parameter* out_;   // (d, H e)
  const Parameter* norm_;  // before (LLaMA) or behind (OLMo 2)
  const Parameter* q_norm_ = nullptr;
  const Parameter* k_norm_ = nullptr;
};

}  // namespace tailor::net
