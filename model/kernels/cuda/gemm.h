// Products of bf16 matrices that are added to fp32 ones, in one launch of cuBLASLt.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tailor::kernels::cuda {

/// tailor::product_ of model/kernels/ops.h. All tensors on one GPU; types and sizes are
/// checked by ops.cc.
/// Asynchronous; may be captured in a CUDA graph. Threads: any.
void product_(at::Tensor& out_nm, const std::optional<at::Tensor>& base_nm, const at::Tensor& a_nk,
              const at::Tensor& b_km);

}  // namespace tailor::kernels::cuda
