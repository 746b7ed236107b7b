// RMSNorm of a decoder: with or without gain, gain w or 1 + w, times a constant of the layer.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <tuple>

#include "model/kernels/ops.h"
#include "model/net/parameters.h"

namespace tailor::net {

class Norm {
 public:
  /// `gain` may be nullptr (none); it must outlive this.
  Norm(const Parameter* gain, double eps, bool plus_one, double scale)
      : gain_(gain), eps_(eps), plus_one_(plus_one), scale_(scale) {}

  /// x_nd / sqrt(mean(x^2) + eps) * gain in type `type`.
  at::Tensor operator()(const at::Tensor& x_nd, at::ScalarType type) const {
    return kernels::rms_norm(x_nd, gain(x_nd), eps_, type);
  }

  /// {x_nd for the residual path, what operator() gives}: kernels::rms_norm_fork says why.
  std::tuple<at::Tensor, at::Tensor> fork(const at::Tensor& x_nd, at::ScalarType type) const {
    return kernels::rms_norm_fork(x_nd, gain(x_nd), eps_, type);
  }

  /// What rows of x are multiplied by, (d) fp32; undefined for one. The parameter itself unless an
  /// option asks for more.
  at::Tensor gain(const at::Tensor& x_nd) const {
    if (gain_ == nullptr) {
      if (scale_ == 1) return {};
      return at::full({x_nd.size(1)}, scale_, x_nd.options().dtype(at::kFloat));
    }
    at::Tensor gain = gain_->compute;
    if (plus_one_) gain = gain + 1;
    return scale_ == 1 ? gain : gain * scale_;
  }
  double eps() const { return eps_; }

 private:
  const Parameter* gain_;
  double eps_;
  bool plus_one_;
  double scale_;
};

}  // namespace tailor::net
