// One gated sub-MLP with its residual write, shared by the FFN variants:
//
//   u = W_dn (act(W_g z) * (W_u z)),  z = n_a(h);   h' = h + r n_b(u)
//
// with a norm n_a before, n_b behind, both or none, and a constant r (1 unless writes are scaled).
// W_g, W_u: d_h x d (packed), W_dn: d x d_h, no biases.
// 3 d d_h parameters and up to two gains of d.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "model/ffn/ffn.h"
#include "model/net/norm.h"
#include "model/net/parameters.h"

namespace tailor::ffn {

/// Exported names of sub-MLP `index` of a layer.
struct SubMlpNames {
  std::string projections;  ///< prefix: "model.layers.3.mlp."
  std::string norm_before;
  std::string norm_behind;
};

class SubMlp {
 public:
  /// Sub-MLP `index` of `shape`. With kFirstOnly it has no norm of its own (the stack has).
  SubMlp(const FfnShape& shape, std::size_t index, const SubMlpNames& names,
         net::ParameterSet& parameters);

  /// h_nd + r u_nd, with the norms.
  at::Tensor add_to(const at::Tensor& h_nd, const net::FfnTap* tap) const;
  /// u_nd of an input that is taken as it is (first_only normalises outside). No norm is applied.
  at::Tensor update(const at::Tensor& z_nd, const net::FfnTap* tap) const;

  double write_scale() const { return write_scale_; }
  std::int64_t count() const { return 3 * d_model_ * d_h_; }

 private:
  at::Tensor gated(const at::Tensor& z_nd) const;  // act(W_g z) * (W_u z): (n, d_h)

  std::int64_t d_model_;
  std::int64_t d_h_;
  net::Activation activation_;
  double write_scale_;
  const net::Parameter* gate_up_;  // (2 d_h, d)
  const net::Parameter* down_;     // (d, d_h)
  std::optional<net::Norm> before_;
  std::optional<net::Norm> behind_;
};

}  // namespace tailor::ffn
