// Launchers of Tailor's CUDA kernels: plain pointers and a stream, no LibTorch, so that nvcc
// compiles them in seconds. plugin.cc registers them. bf16 values are passed as their 16 bits.
//
// All matrices are row-major. Launchers are asynchronous and report a failed launch by its
// cudaError_t.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tailor::kernels::cuda {

/// Element types of a matrix.
enum class Element { kFloat, kBf16 };

/// A matrix of `Element`s; `stride` elements from row to row.
struct Matrix {
  void* data = nullptr;
  Element type = Element::kFloat;
  std::int64_t stride = 0;
};

/// y = x * rstd * w; rstd (rows) is written. `w` may be null. See model/kernels/ops.h.
cudaError_t rms_norm(Matrix x, const float* w, std::int64_t rows, std::int64_t d, float eps,
                     Matrix y, float* rstd, cudaStream_t stream);

/// gx, and gw (d) if `w` is given; `partial` then holds rms_norm_partial_rows(rows) * d floats.
cudaError_t rms_norm_backward(Matrix g, Matrix x, const float* w, const float* rstd,
                              std::int64_t rows, std::int64_t d, Matrix gx, float* gw,
                              float* partial, cudaStream_t stream);
/// Rows of the scratch matrix: fixed by `rows`, so sums have one order.
std::int64_t rms_norm_partial_rows(std::int64_t rows);

/// y (rows, f) = silu(gate) * up of gate_up (rows, 2f).
cudaError_t swiglu(Matrix gate_up, std::int64_t rows, std::int64_t f, Matrix y,
                   cudaStream_t stream);
cudaError_t swiglu_backward(Matrix g, Matrix gate_up, std::int64_t rows, std::int64_t f,
                            Matrix ggate_up, cudaStream_t stream);

}  // namespace tailor::kernels::cuda
