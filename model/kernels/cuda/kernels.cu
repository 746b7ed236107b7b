// CUDA kernels; the mathematics stands in cpu_loops.inc and reference.cc beside them.
// One block a row where a row is reduced, one thread an element otherwise. Statistics are fp32.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "model/kernels/cuda/launchers.h"

namespace tailor::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kRowsOfPartial = 256;

__device__ inline float load(const float* p) { return *p; }
__device__ inline float load(const __nv_bfloat16* p) { return __bfloat162float(*p); }
__device__ inline void store(float* p, float x) { *p = x; }
__device__ inline void store(__nv_bfloat16* p, float x) { *p = __float2bfloat16_rn(x); }

// Sum over the block, the same value in every thread. REQUIRES: kThreads threads.
__device__ float block_sum(float x) {
  __shared__ float warps[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  __syncthreads();  // `warps` may still be read by an earlier sum
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < kThreads / 32; ++i) total += warps[i];
  return total;
}

template <typename X, typename Y>
__global__ void rms_norm_kernel(const X* x, std::int64_t stride, const float* w, std::int64_t d,
                                float eps, Y* y, std::int64_t y_stride, float* rstd) {
  const std::int64_t row = blockIdx.x;
  const X* in = x + row * stride;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < d; i += kThreads) {
    const float value = load(in + i);
    sum += value * value;
  }
  const float scale = rsqrtf(block_sum(sum) / static_cast<float>(d) + eps);
  if (threadIdx.x == 0) rstd[row] = scale;
  for (std::int64_t i = threadIdx.x; i < d; i += kThreads) {
    store(y + row * y_stride + i, load(in + i) * scale * (w != nullptr ? w[i] : 1.0f));
  }
}

template <typename X, typename Y>
__global__ void rms_norm_gx_kernel(const Y* g, std::int64_t g_stride, const X* x,
                                   std::int64_t stride, const float* w, const float* rstd,
                                   std::int64_t d, X* gx, std::int64_t gx_stride) {
  const std::int64_t row = blockIdx.x;
  const X* in = x + row * stride;
  const Y* grad = g + row * g_stride;
  const float scale = rstd[row];
  float dot = 0;
  for (std::int64_t i = threadIdx.x; i < d; i += kThreads) {
    dot += load(grad + i) * (w != nullptr ? w[i] : 1.0f) * load(in + i);
  }
  const float shrink = block_sum(dot) * scale * scale / static_cast<float>(d);
  for (std::int64_t i = threadIdx.x; i < d; i += kThreads) {
    const float gw = load(grad + i) * (w != nullptr ? w[i] : 1.0f);
    store(gx + row * gx_stride + i, scale * (gw - load(in + i) * shrink));
  }
}

// Block (column tile, group of rows): partial[group][column] = sum over the group of g * xhat.
template <typename X, typename Y>
__global__ void rms_norm_gw_kernel(const Y* g, std::int64_t g_stride, const X* x,
                                   std::int64_t stride, const float* rstd, std::int64_t rows,
                                   std::int64_t d, float* partial) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= d) return;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * kRowsOfPartial;
  const std::int64_t end = min(begin + kRowsOfPartial, rows);
  float sum = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    sum += load(g + row * g_stride + column) * load(x + row * stride + column) * rstd[row];
  }
  partial[blockIdx.y * d + column] = sum;
}

__global__ void column_sum_kernel(const float* partial, std::int64_t rows, std::int64_t d,
                                  float* out) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= d) return;
  float sum = 0;
  for (std::int64_t row = 0; row < rows; ++row) sum += partial[row * d + column];
  out[column] = sum;
}

template <typename T>
__global__ void swiglu_kernel(const T* gate_up, std::int64_t stride, std::int64_t count,
                              std::int64_t f, T* y, std::int64_t y_stride) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const std::int64_t row = at / f;
  const std::int64_t i = at % f;
  const T* in = gate_up + row * stride;
  const float a = load(in + i);
  store(y + row * y_stride + i, a / (1.0f + expf(-a)) * load(in + f + i));
}

template <typename T>
__global__ void swiglu_backward_kernel(const T* g, std::int64_t g_stride, const T* gate_up,
                                       std::int64_t stride, std::int64_t count, std::int64_t f,
                                       T* out, std::int64_t out_stride) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const std::int64_t row = at / f;
  const std::int64_t i = at % f;
  const T* in = gate_up + row * stride;
  const float a = load(in + i);
  const float u = load(in + f + i);
  const float s = 1.0f / (1.0f + expf(-a));
  const float go = load(g + row * g_stride + i);
  store(out + row * out_stride + i, go * u * s * (1.0f + a * (1.0f - s)));
  store(out + row * out_stride + f + i, go * a * s);
}

unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

template <typename T>
T* typed(const Matrix& m) {
  return static_cast<T*>(m.data);
}

template <typename X, typename Y>
void norm_backward(Matrix g, Matrix x, const float* w, const float* rstd, std::int64_t rows,
                   std::int64_t d, Matrix gx, float* gw, float* partial, cudaStream_t stream) {
  rms_norm_gx_kernel<X, Y><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      typed<Y>(g), g.stride, typed<X>(x), x.stride, w, rstd, d, typed<X>(gx), gx.stride);
  if (gw == nullptr) return;
  const std::int64_t groups = rms_norm_partial_rows(rows);
  const dim3 grid(blocks_of(d), static_cast<unsigned>(groups));
  rms_norm_gw_kernel<X, Y><<<grid, kThreads, 0, stream>>>(typed<Y>(g), g.stride, typed<X>(x),
                                                          x.stride, rstd, rows, d, partial);
  column_sum_kernel<<<blocks_of(d), kThreads, 0, stream>>>(partial, groups, d, gw);
}

}  // namespace

std::int64_t rms_norm_partial_rows(std::int64_t rows) {
  return (rows + kRowsOfPartial - 1) / kRowsOfPartial;
}

cudaError_t rms_norm(Matrix x, const float* w, std::int64_t rows, std::int64_t d, float eps,
                     Matrix y, float* rstd, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(rows);
  if (x.type == Element::kFloat && y.type == Element::kFloat) {
    rms_norm_kernel<float, float><<<grid, kThreads, 0, stream>>>(
        typed<float>(x), x.stride, w, d, eps, typed<float>(y), y.stride, rstd);
  } else if (x.type == Element::kFloat) {
    rms_norm_kernel<float, __nv_bfloat16><<<grid, kThreads, 0, stream>>>(
        typed<float>(x), x.stride, w, d, eps, typed<__nv_bfloat16>(y), y.stride, rstd);
  } else if (y.type == Element::kBf16) {
    rms_norm_kernel<__nv_bfloat16, __nv_bfloat16><<<grid, kThreads, 0, stream>>>(
        typed<__nv_bfloat16>(x), x.stride, w, d, eps, typed<__nv_bfloat16>(y), y.stride, rstd);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

cudaError_t rms_norm_backward(Matrix g, Matrix x, const float* w, const float* rstd,
                              std::int64_t rows, std::int64_t d, Matrix gx, float* gw,
                              float* partial, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  if (x.type == Element::kFloat && g.type == Element::kFloat) {
    norm_backward<float, float>(g, x, w, rstd, rows, d, gx, gw, partial, stream);
  } else if (x.type == Element::kFloat) {
    norm_backward<float, __nv_bfloat16>(g, x, w, rstd, rows, d, gx, gw, partial, stream);
  } else if (g.type == Element::kBf16) {
    norm_backward<__nv_bfloat16, __nv_bfloat16>(g, x, w, rstd, rows, d, gx, gw, partial, stream);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

cudaError_t swiglu(Matrix gate_up, std::int64_t rows, std::int64_t f, Matrix y,
                   cudaStream_t stream) {
  const std::int64_t count = rows * f;
  if (count == 0) return cudaSuccess;
  if (y.type == Element::kFloat) {
    swiglu_kernel<float><<<blocks_of(count), kThreads, 0, stream>>>(
        typed<float>(gate_up), gate_up.stride, count, f, typed<float>(y), y.stride);
  } else {
    swiglu_kernel<__nv_bfloat16><<<blocks_of(count), kThreads, 0, stream>>>(
        typed<__nv_bfloat16>(gate_up), gate_up.stride, count, f, typed<__nv_bfloat16>(y), y.stride);
  }
  return cudaGetLastError();
}

cudaError_t swiglu_backward(Matrix g, Matrix gate_up, std::int64_t rows, std::int64_t f,
                            Matrix ggate_up, cudaStream_t stream) {
  const std::int64_t count = rows * f;
  if (count == 0) return cudaSuccess;
  if (gate_up.type == Element::kFloat) {
    swiglu_backward_kernel<float><<<blocks_of(count), kThreads, 0, stream>>>(
        typed<float>(g), g.stride, typed<float>(gate_up), gate_up.stride, count, f,
        typed<float>(ggate_up), ggate_up.stride);
  } else {
    swiglu_backward_kernel<__nv_bfloat16><<<blocks_of(count), kThreads, 0, stream>>>(
        typed<__nv_bfloat16>(g), g.stride, typed<__nv_bfloat16>(gate_up), gate_up.stride, count, f,
        typed<__nv_bfloat16>(ggate_up), ggate_up.stride);
  }
  return cudaGetLastError();
}

}  // namespace tailor::kernels::cuda
