// Small helpers around matrix products with a Parameter.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>

#include "model/kernels/linear.h"
#include "model/net/parameters.h"

namespace tailor::net {

/// x_nf W_df^T in the type that products with `weight` use; x may have any floating type.
inline at::Tensor linear(const at::Tensor& x_nf, const Parameter& weight) {
  return kernels::linear(x_nf, weight.master, weight.compute);
}

/// The same for what attention works on: kernels/linear.h says when that is fp32.
inline at::Tensor linear_widened(const at::Tensor& x_nf, const Parameter& weight) {
  return kernels::linear_widened(x_nf, weight.master, weight.compute);
}

/// x_nd + scale * h_nf W_df^T in the type of x: without a scale the product
/// is added where it is made.
inline at::Tensor residual_linear(const at::Tensor& x_nd, const at::Tensor& h_nf,
                                  const Parameter& weight, double scale = 1) {
  if (scale != 1) return at::add(x_nd, linear(h_nf, weight).to(x_nd.scalar_type()), scale);
  return kernels::linear_onto(x_nd, h_nf, weight.master, weight.compute);
}

}  // namespace tailor::net
