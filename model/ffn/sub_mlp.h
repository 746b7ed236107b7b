// One gated sub-MLP with its residual write, shared by the FFN variants:
//
//   z = norm(h);  u = W_dn (silu(W_g z) * (W_u z));  h' = h + u        (pre-norm)
//   u = norm(W_dn (silu(W_g h) * (W_u h)));          h' = h + u        (post-norm)
//
// W_g, W_u: d_h x d (packed), W_dn: d x d_h, no biases. 3 d d_h parameters and one optional gain of
// d.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "model/net/parameters.h"

namespace tailor::ffn {

/// Where the norm of a sub-MLP stands and whether it has a gain.
enum class SubNorm { kNone, kPre, kPreGainless, kPost };

class SubMlp {
 public:
  /// `name` is the exported prefix of the projections ("model.layers.3.mlp."), `norm_name` of the
  /// gain; `key` names the initial values ("layers.3.ffn.0.").
  SubMlp(std::int64_t d_model, std::int64_t d_h, SubNorm norm, double eps, const std::string& name,
         const std::string& norm_name, const std::string& key, net::ParameterSet& parameters);

  /// h_nd + u_nd.
  at::Tensor add_to(const at::Tensor& h_nd) const;
  /// u_nd of an input that is taken as it is (first_only normalises outside). No norm is applied.
  at::Tensor update(const at::Tensor& z_nd) const;

  std::int64_t count() const { return 3 * d_model_ * d_h_; }

 private:
  at::Tensor gated(const at::Tensor& z_nd) const;  // silu(W_g z) * (W_u z): (n, d_h)

  std::int64_t d_model_;
  std::int64_t d_h_;
  SubNorm norm_;
  double eps_;
  const net::Parameter* gate_up_;  // (2 d_h, d)
  const net::Parameter* down_;     // (d, d_h)
  const net::Parameter* gain_ = nullptr;
};

}  // namespace tailor::ffn
