// CUDA kernels: which warp or block works on which row. The arithmetic is in bodies.h.
//
// All of them are bound by memory, so what matters is that each value is moved once, 16 bytes at a
// time: a warp takes a row (no barrier, no idle lanes for narrow rows), four rows a block; the long
// rows of the cross-entropy take a block of 512. The hourglass needs no kernel of its own that
// holds a whole sub-MLP on the chip: for d = 768 to 2048 a tile of rows, two weight panels and the
// hidden tile do not fit in shared memory beside the pipelines that tensor cores need, and a GEMM
// below cuBLAS's speed costs more than the traffic saved. Instead a sub-MLP is four launches
// forward (norm, GEMM, SwiGLU, GEMM that adds to the residual stream) and its launch cost goes with
// the CUDA graph of the whole step.
#include "model/kernels/cuda/bodies.h"
#include "model/kernels/cuda/launchers.h"

namespace tailor::kernels::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kRowsOfBlock = 4;     // warps, one row each at a time
constexpr int kRowsOfPartial = 32;  // rows whose gain gradients one block sums
constexpr int kLongBlock = 512;
constexpr int kSumBlock = 256;
constexpr std::int64_t kSharedFloats = 12288;  // 48 KiB: no opt-in needed on any device

template <typename T>
__device__ T warp_sum(T x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

/// A Team (bodies.h) of one warp.
struct Warp {
  static constexpr int kLanes = kWarp;
  int lane;
  template <typename F>
  __device__ void each(F f) {
    f(lane);
  }
  template <typename F>
  __device__ float sum(F f) {
    return warp_sum(f(lane));
  }
};

/// A Team of a block of kLongBlock threads.
struct Block {
  static constexpr int kLanes = kLongBlock;
  template <typename F>
  __device__ void each(F f) {
    f(static_cast<int>(threadIdx.x));
  }
  template <typename F>
  __device__ MaxSum max_sum(F f) {
    __shared__ float tops[kLanes / kWarp];
    __shared__ float sums[kLanes / kWarp];
    MaxSum mine = f(static_cast<int>(threadIdx.x));
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      MaxSum other;
      other.top = __shfl_xor_sync(~0u, mine.top, offset);
      other.sum = __shfl_xor_sync(~0u, mine.sum, offset);
      mine = join(mine, other);
    }
    if (threadIdx.x % kWarp == 0) {
      tops[threadIdx.x / kWarp] = mine.top;
      sums[threadIdx.x / kWarp] = mine.sum;
    }
    __syncthreads();
    MaxSum all;
    for (int i = 0; i < kLanes / kWarp; ++i) {
      MaxSum other;
      other.top = tops[i];
      other.sum = sums[i];
      all = join(all, other);
    }
    return all;
  }
};

__device__ inline Warp this_warp() { return Warp{static_cast<int>(threadIdx.x)}; }
// Blocks of the row kernels are (kWarp, kRowsOfBlock).
__device__ inline std::int64_t this_row() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

template <int N, typename X, typename Y>
__global__ void rms_norm_kernel(const X* x, std::int64_t stride, const float* w, std::int64_t rows,
                                std::int64_t d, float eps, Y* y, std::int64_t y_stride,
                                float* rstd) {
  const std::int64_t row = this_row();
  if (row >= rows) return;
  rms_norm_row<N>(this_warp(), x + row * stride, w, d, eps, y + row * y_stride, rstd + row);
}

// A block takes kRowsOfPartial rows, its warps in turn. `partial` (may be null) gets the block's
// column sums: each warp sums its rows in shared memory, then the warps are added in order. Rows
// that do not fit there (not `shared_sums`) have one warp, which sums in `partial` itself: a lane
// always meets the same columns, so none waits for another.
template <int N, typename X, typename Y>
__global__ void rms_norm_backward_kernel(const Y* g, std::int64_t g_stride, const X* x,
                                         std::int64_t stride, const float* w, const float* rstd,
                                         const X* skip, std::int64_t skip_stride, std::int64_t rows,
                                         std::int64_t d, X* gx, std::int64_t gx_stride,
                                         float* partial, bool shared_sums) {
  extern __shared__ float columns[];  // (warps, d)
  const int warps = static_cast<int>(blockDim.y);
  const int thread = static_cast<int>(threadIdx.y * kWarp + threadIdx.x);
  const int threads = warps * kWarp;
  float* mine = nullptr;
  if (partial != nullptr) {
    mine = shared_sums ? columns + threadIdx.y * d : partial + blockIdx.x * d;
    float* const sums = shared_sums ? columns : mine;
    for (std::int64_t i = thread; i < warps * d; i += threads) sums[i] = 0;
    __syncthreads();
  }
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kRowsOfPartial;
  const std::int64_t end = begin + kRowsOfPartial < rows ? begin + kRowsOfPartial : rows;
  for (std::int64_t row = begin + threadIdx.y; row < end; row += warps) {
    rms_norm_backward_row<N>(this_warp(), g + row * g_stride, x + row * stride, w, rstd[row],
                             skip != nullptr ? skip + row * skip_stride : nullptr, d,
                             gx + row * gx_stride, mine);
  }
  if (partial == nullptr || !shared_sums) return;
  __syncthreads();
  for (std::int64_t i = thread; i < d; i += threads) {
    float sum = 0;
    for (int warp = 0; warp < warps; ++warp) sum += columns[warp * d + i];
    partial[blockIdx.x * d + i] = sum;
  }
}

// Blocks of (32, 32): 32 columns; thread (x, y) adds rows y, y + 32, ...;
// then y = 0 adds the 32 sums.
__global__ void column_sum_kernel(const float* partial, std::int64_t rows, std::int64_t d,
                                  float* out) {
  __shared__ float sums[kWarp][kWarp + 1];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (column < d) {
    for (std::int64_t row = threadIdx.y; row < rows; row += kWarp) sum += partial[row * d + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= d) return;
  float total = 0;
  for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
  out[column] = total;
}

template <int N, typename T>
__global__ void swiglu_kernel(const T* gate_up, std::int64_t stride, std::int64_t rows,
                              std::int64_t f, T* y, std::int64_t y_stride) {
  const std::int64_t row = this_row();
  if (row >= rows) return;
  swiglu_row<N>(this_warp(), gate_up + row * stride, f, y + row * y_stride);
}

template <int N, typename T>
__global__ void swiglu_backward_kernel(const T* g, std::int64_t g_stride, const T* gate_up,
                                       std::int64_t stride, std::int64_t rows, std::int64_t f,
                                       T* out, std::int64_t out_stride) {
  const std::int64_t row = this_row();
  if (row >= rows) return;
  swiglu_backward_row<N>(this_warp(), g + row * g_stride, gate_up + row * stride, f,
                         out + row * out_stride);
}

template <int N, bool split, typename T>
__global__ void rope_kernel(T* packed, std::int64_t stride, std::int64_t rows, RopeShape shape,
                            const float* cos, const float* sin, Heads<T> heads) {
  const std::int64_t row = this_row();
  if (row >= rows) return;
  const std::int64_t b = row / shape.sequence;
  rope_row<N, split>(this_warp(), packed + row * stride, shape, b, row - b * shape.sequence, cos,
                     sin, heads);
}

template <int N, typename T>
__global__ void __launch_bounds__(kLongBlock)
    cross_entropy_kernel(T* scores, std::int64_t stride, const std::int64_t* targets,
                         std::int64_t v, float scale, bool with_grad, double z_loss, double* loss) {
  const std::int64_t row = blockIdx.x;
  const double value = cross_entropy_row<N>(Block{}, scores + row * stride, targets[row], v, scale,
                                            with_grad, z_loss);
  if (threadIdx.x == 0) loss[row] = value;
}

// Sum over a block of kSumBlock threads, in thread 0.
__device__ double block_sum(double x) {
  __shared__ double warps[kSumBlock / kWarp];
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  double total = 0;
  for (int i = 0; i < kSumBlock / kWarp; ++i) total += warps[i];
  return total;
}

__global__ void sum_squares_kernel(const float* x, std::int64_t n, double* partial) {
  const double sum = block_sum(
      sum_squares_lane(x, n, static_cast<std::int64_t>(blockIdx.x) * kSumBlock + threadIdx.x,
                       static_cast<std::int64_t>(gridDim.x) * kSumBlock));
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void sum_parts_kernel(const double* partial, double* out) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < kSumSquaresParts; i += kSumBlock)
    sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = sum;
}

// ---- launching

const dim3 kRowBlock(kWarp, kRowsOfBlock);

unsigned row_blocks(std::int64_t rows) {
  return static_cast<unsigned>((rows + kRowsOfBlock - 1) / kRowsOfBlock);
}

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }
// Every row starts where a Pack of 8 may stand (null: nothing to read).
bool packs(const Matrix& m) { return aligned(m.data) && m.stride % 8 == 0; }
bool packs(const HeadTensor& m) {
  return aligned(m.data) && m.batch_stride % 8 == 0 && m.head_stride % 8 == 0 &&
         m.time_stride % 8 == 0;
}

template <typename T>
T* typed(const Matrix& m) {
  return static_cast<T*>(m.data);
}

// The types of the lists of op_table.h.
struct Types {
  using f32 = float;
  using bf16 = Bf16;
};
constexpr Element element(Type type) {
  return type == Type::bf16 ? Element::kBf16 : Element::kFloat;
}

// Calls launch(pointer to X, pointer to Y, packs of 8 or 1 as a constant) for the types of a norm,
// one instance for each that op_table.h lists.
template <typename Launch>
cudaError_t for_types(Element x, Element y, bool by_eight, const Launch& launch) {
  [[maybe_unused]] const auto sized = [&](auto* of_x, auto* of_y) {
    by_eight ? launch(of_x, of_y, std::integral_constant<int, 8>())
             : launch(of_x, of_y, std::integral_constant<int, 1>());
    return cudaGetLastError();
  };
#define TAILOR_CASE(X, Y)                                                           \
  if (x == element(Type::X) && y == element(Type::Y)) {                             \
    return sized(static_cast<Types::X*>(nullptr), static_cast<Types::Y*>(nullptr)); \
  }
  TAILOR_NORM_TYPES(TAILOR_CASE)
#undef TAILOR_CASE
  return cudaErrorInvalidValue;
}

template <typename Pointer>
using Pointee = std::remove_pointer_t<Pointer>;

// The same for kernels with one type.
template <typename Launch>
cudaError_t for_type(Element x, bool by_eight, const Launch& launch) {
  [[maybe_unused]] const auto sized = [&](auto* of_x) {
    by_eight ? launch(of_x, std::integral_constant<int, 8>())
             : launch(of_x, std::integral_constant<int, 1>());
    return cudaGetLastError();
  };
#define TAILOR_CASE(X, Y) \
  if (x == element(Type::X)) return sized(static_cast<Types::X*>(nullptr));
  TAILOR_ONE_TYPE(TAILOR_CASE)
#undef TAILOR_CASE
  return cudaErrorInvalidValue;
}

template <bool split>
cudaError_t rope(Matrix packed, std::int64_t batch, RopeShape shape, const float* cos,
                 const float* sin, HeadTensor q, HeadTensor k, HeadTensor v, cudaStream_t stream) {
  const std::int64_t rows = batch * shape.sequence;
  if (rows == 0) return cudaSuccess;
  const bool by_eight = shape.head_dim % 16 == 0 && packs(packed) && packs(q) && packs(k) &&
                        packs(v) && aligned(cos) && aligned(sin);
  return for_type(packed.type, by_eight, [&](auto* type, auto n) {
    using T = Pointee<decltype(type)>;
    Heads<T> heads;
    const auto take = [](const HeadTensor& from, T** data, HeadStrides* strides) {
      *data = static_cast<T*>(from.data);
      *strides = {from.batch_stride, from.head_stride, from.time_stride};
    };
    take(q, &heads.q, &heads.q_strides);
    take(k, &heads.k, &heads.k_strides);
    take(v, &heads.v, &heads.v_strides);
    rope_kernel<n(), split, T><<<row_blocks(rows), kRowBlock, 0, stream>>>(
        typed<T>(packed), packed.stride, rows, shape, cos, sin, heads);
  });
}

}  // namespace

std::int64_t rms_norm_partial_rows(std::int64_t rows) {
  return (rows + kRowsOfPartial - 1) / kRowsOfPartial;
}

cudaError_t rms_norm(Matrix x, const float* w, std::int64_t rows, std::int64_t d, float eps,
                     Matrix y, float* rstd, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  const bool by_eight = d % 8 == 0 && packs(x) && packs(y) && aligned(w);
  return for_types(x.type, y.type, by_eight, [&](auto* x_type, auto* y_type, auto n) {
    using X = Pointee<decltype(x_type)>;
    using Y = Pointee<decltype(y_type)>;
    rms_norm_kernel<n(), X, Y><<<row_blocks(rows), kRowBlock, 0, stream>>>(
        typed<X>(x), x.stride, w, rows, d, eps, typed<Y>(y), y.stride, rstd);
  });
}

cudaError_t rms_norm_backward(Matrix g, Matrix x, const float* w, const float* rstd, Matrix skip,
                              std::int64_t rows, std::int64_t d, Matrix gx, float* gw,
                              float* partial, cudaStream_t stream) {
  if (rows == 0) {
    return gw == nullptr ? cudaSuccess
                         : cudaMemsetAsync(gw, 0, static_cast<std::size_t>(d) * sizeof *gw, stream);
  }
  const bool by_eight =
      d % 8 == 0 && packs(g) && packs(x) && packs(skip) && packs(gx) && aligned(w);
  // As many warps as have room for their column sums; one if none has.
  unsigned warps = kRowsOfBlock;
  while (gw != nullptr && warps > 1 && warps * d > kSharedFloats) warps /= 2;
  const bool shared_sums = d <= kSharedFloats;
  const std::size_t shared =
      gw != nullptr && shared_sums ? warps * static_cast<std::size_t>(d) * sizeof(float) : 0;
  const auto groups = static_cast<unsigned>(rms_norm_partial_rows(rows));
  const cudaError_t status =
      for_types(x.type, g.type, by_eight, [&](auto* x_type, auto* y_type, auto n) {
        using X = Pointee<decltype(x_type)>;
        using Y = Pointee<decltype(y_type)>;
        rms_norm_backward_kernel<n(), X, Y><<<groups, dim3(kWarp, warps), shared, stream>>>(
            typed<Y>(g), g.stride, typed<X>(x), x.stride, w, rstd, typed<X>(skip), skip.stride,
            rows, d, typed<X>(gx), gx.stride, gw != nullptr ? partial : nullptr, shared_sums);
      });
  if (status != cudaSuccess || gw == nullptr) return status;
  column_sum_kernel<<<static_cast<unsigned>((d + kWarp - 1) / kWarp), dim3(kWarp, kWarp), 0,
                      stream>>>(partial, groups, d, gw);
  return cudaGetLastError();
}

cudaError_t swiglu(Matrix gate_up, std::int64_t rows, std::int64_t f, Matrix y,
                   cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  return for_type(gate_up.type, f % 8 == 0 && packs(gate_up) && packs(y), [&](auto* type, auto n) {
    using T = Pointee<decltype(type)>;
    swiglu_kernel<n(), T><<<row_blocks(rows), kRowBlock, 0, stream>>>(
        typed<T>(gate_up), gate_up.stride, rows, f, typed<T>(y), y.stride);
  });
}

cudaError_t swiglu_backward(Matrix g, Matrix gate_up, std::int64_t rows, std::int64_t f,
                            Matrix ggate_up, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  const bool by_eight = f % 8 == 0 && packs(g) && packs(gate_up) && packs(ggate_up);
  return for_type(gate_up.type, by_eight, [&](auto* type, auto n) {
    using T = Pointee<decltype(type)>;
    swiglu_backward_kernel<n(), T><<<row_blocks(rows), kRowBlock, 0, stream>>>(
        typed<T>(g), g.stride, typed<T>(gate_up), gate_up.stride, rows, f, typed<T>(ggate_up),
        ggate_up.stride);
  });
}

cudaError_t rope_split(Matrix packed, std::int64_t batch, RopeShape shape, const float* cos,
                       const float* sin, HeadTensor q, HeadTensor k, HeadTensor v,
                       cudaStream_t stream) {
  return rope<true>(packed, batch, shape, cos, sin, q, k, v, stream);
}

cudaError_t rope_merge(Matrix packed, std::int64_t batch, RopeShape shape, const float* cos,
                       const float* sin, HeadTensor q, HeadTensor k, HeadTensor v,
                       cudaStream_t stream) {
  return rope<false>(packed, batch, shape, cos, sin, q, k, v, stream);
}

cudaError_t cross_entropy(Matrix scores, const std::int64_t* targets, std::int64_t rows,
                          std::int64_t v, float scale, bool with_grad, double z_loss, double* loss,
                          cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  return for_type(scores.type, v % 8 == 0 && packs(scores), [&](auto* type, auto n) {
    using T = Pointee<decltype(type)>;
    cross_entropy_kernel<n(), T><<<static_cast<unsigned>(rows), kLongBlock, 0, stream>>>(
        typed<T>(scores), scores.stride, targets, v, scale, with_grad, z_loss, loss);
  });
}

cudaError_t sum_squares(const float* x, std::int64_t n, double* partial, double* out,
                        cudaStream_t stream) {
  sum_squares_kernel<<<kSumSquaresParts, kSumBlock, 0, stream>>>(x, n, partial);
  sum_parts_kernel<<<1, kSumBlock, 0, stream>>>(partial, out);
  return cudaGetLastError();
}

}  // namespace tailor::kernels::cuda
