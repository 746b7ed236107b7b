// AdamW on a CPU in one pass over its tensors: scaling of the gradient, both moments, decay, the
// update and the rounded copy of the weights. LibTorch's fused kernel needs a pass each for the
// first and the last, and a step of a small model is bound by these passes.
//
//   g' = c g;  m = b1 m + (1 - b1) g';  v = b2 v + (1 - b2) g'^2
//   w = (1 - lr decay) w - lr/(1 - b1^t) m / (sqrt(v)/sqrt(1 - b2^t) + eps)
//
// Loshchilov and Hutter, arXiv 1711.05101, algorithm 2.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tailor::kernels {

struct AdamWRates {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double decay = 0;
  double gradient_scale = 1;  ///< c
  std::int64_t t = 1;         ///< updates with this one
};

/// One update. `w`, `g`, `m` and `v` are fp32, on the CPU, contiguous and of one size; `low`, if
/// defined, is bf16 of that size and takes the new weights. `g` is not changed.
void adamw_cpu(at::Tensor& w, const at::Tensor& g, at::Tensor& m, at::Tensor& v, at::Tensor& low,
               const AdamWRates& rates);

/// The same without the look into op_table.h: the operator tailor::adamw_ (ops_cpu.cc) is this.
void adamw_loops(at::Tensor& w, const at::Tensor& g, at::Tensor& m, at::Tensor& v, at::Tensor& low,
                 const AdamWRates& rates);

}  // namespace tailor::kernels
