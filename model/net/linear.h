// Small helpers around matrix products with a Parameter's working copy.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "model/net/parameters.h"

namespace tailor::net {

/// `x` in the type that products with `weight` use.
inline at::Tensor to_compute(const at::Tensor& x, const Parameter& weight) {
  return x.to(weight.compute.scalar_type());
}

/// x_nd + h_nf W_df^T. One call when the types agree: the product is added where it is made.
inline at::Tensor residual_linear(const at::Tensor& x_nd, const at::Tensor& h_nf,
                                  const Parameter& weight) {
  if (x_nd.scalar_type() == h_nf.scalar_type()) return at::addmm(x_nd, h_nf, weight.compute.t());
  return x_nd + at::mm(h_nf, weight.compute.t());
}

}  // namespace tailor::net
