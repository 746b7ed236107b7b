// Launchers of Tailor's CUDA kernels: plain pointers and a stream, no LibTorch, so that nvcc
// compiles them in seconds. plugin.cc registers them. bf16 values are passed as their 16 bits.
//
// All matrices are row-major with dense rows. Types are those of the lists of op_table.h; others
// give cudaErrorInvalidValue. Launchers are asynchronous, allocate nothing, may be captured in a
// CUDA graph, and report a failed launch by its cudaError_t. Results do not depend on the device or
// on timing: every sum has one order, fixed by the shape.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "model/kernels/cpu_loops.h"

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

/// gx = the norm's gradient + skip (of x's type; `skip.data` may be null), and gw (d) if it is
/// given; `partial` then holds rms_norm_partial_rows(rows) * d floats.
cudaError_t rms_norm_backward(Matrix g, Matrix x, const float* w, const float* rstd, Matrix skip,
                              std::int64_t rows, std::int64_t d, Matrix gx, float* gw,
                              float* partial, cudaStream_t stream);
/// Rows of the scratch matrix: fixed by `rows`, so sums have one order.
std::int64_t rms_norm_partial_rows(std::int64_t rows);

/// y (rows, f) = silu(gate) * up of gate_up (rows, 2f).
cudaError_t swiglu(Matrix gate_up, std::int64_t rows, std::int64_t f, Matrix y,
                   cudaStream_t stream);
cudaError_t swiglu_backward(Matrix g, Matrix gate_up, std::int64_t rows, std::int64_t f,
                            Matrix ggate_up, cudaStream_t stream);

/// q, k or v as (B, heads, T, e): elements from one batch, head, position to the next.
struct HeadTensor {
  void* data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t time_stride = 0;
};

/// Packed rows to q, k, v with q and k turned, or (rope_merge) gradients of q, k, v back to the
/// packed rows. All of `packed.type`; cos and sin (T, e/2).
cudaError_t rope_split(Matrix packed, std::int64_t batch, RopeShape shape, const float* cos,
                       const float* sin, HeadTensor q, HeadTensor k, HeadTensor v,
                       cudaStream_t stream);
cudaError_t rope_merge(Matrix packed, std::int64_t batch, RopeShape shape, const float* cos,
                       const float* sin, HeadTensor q, HeadTensor k, HeadTensor v,
                       cudaStream_t stream);

/// Row losses; with_grad replaces the scores by their gradient. See model/kernels/ops.h.
cudaError_t cross_entropy(Matrix scores, const std::int64_t* targets, std::int64_t rows,
                          std::int64_t v, float scale, bool with_grad, double z_loss, double* loss,
                          cudaStream_t stream);

/// out = sum of squares of n floats; `partial` holds kSumSquaresParts doubles.
constexpr int kSumSquaresParts = 1024;
cudaError_t sum_squares(const float* x, std::int64_t n, double* partial, double* out,
                        cudaStream_t stream);

}  // namespace tailor::kernels::cuda
