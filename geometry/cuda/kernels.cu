// The kernels. Float64 sums use __fma_rn and __dadd_rn, of which the compiler makes nothing else,
// in the order of geometry/kernels.cc: results are those of the CPU, bit for bit.
#include "geometry/cuda/kernels.h"

namespace tailor::geometry::cuda {
namespace {

constexpr int kSide = 16;   // rows and columns of a tile of distances
constexpr int kChunk = 32;  // coordinates in shared memory at a time; a multiple of kLanes
constexpr int kLanes = 8;

__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }

// One thread an entry of a tile. Eight sums, as the eight lanes of the CPU's registers.
__global__ void squared_kernel(const double* x, std::size_t n, std::size_t stride, double* out) {
  const std::size_t i0 = static_cast<std::size_t>(blockIdx.y) * kSide;
  const std::size_t j0 = static_cast<std::size_t>(blockIdx.x) * kSide;
  if (j0 > i0) return;
  __shared__ double a[kSide][kChunk + 1];
  __shared__ double b[kSide][kChunk + 1];
  const int row = threadIdx.y, column = threadIdx.x;
  double sums[kLanes] = {};
  for (std::size_t k0 = 0; k0 < stride; k0 += kChunk) {
    for (int k = column; k < kChunk; k += kSide) {
      const bool inside = k0 + k < stride;
      a[row][k] = inside && i0 + row < n ? x[(i0 + row) * stride + k0 + k] : 0.0;
      b[row][k] = inside && j0 + row < n ? x[(j0 + row) * stride + k0 + k] : 0.0;
    }
    __syncthreads();
    const int length = stride - k0 < kChunk ? static_cast<int>(stride - k0) : kChunk;
    for (int k = 0; k < length; k += kLanes) {
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        const double v = __dsub_rn(a[row][k + lane], b[column][k + lane]);
        sums[lane] = __fma_rn(v, v, sums[lane]);
      }
    }
    __syncthreads();
  }
  const std::size_t i = i0 + row, j = j0 + column;
  if (i < n && j < i) {
    out[i * n + j] = add(add(add(sums[0], sums[4]), add(sums[2], sums[6])),
                         add(add(sums[1], sums[5]), add(sums[3], sums[7])));
  }
}

constexpr int kBlockRows = 64;  // of the product, by one block of 16 x 16 threads
constexpr int kDepth = 16;
constexpr int kPer = kBlockRows / kSide;  // rows, and columns, of one thread

__global__ void multiply_kernel(const double* a, const double* b, std::size_t n, std::size_t stride,
                                double* out) {
  __shared__ double left[kDepth][kBlockRows + 1];
  __shared__ double right[kDepth][kBlockRows + 1];
  const std::size_t i0 = static_cast<std::size_t>(blockIdx.y) * kBlockRows;
  const std::size_t j0 = static_cast<std::size_t>(blockIdx.x) * kBlockRows;
  const int thread = threadIdx.y * kSide + threadIdx.x;
  double sums[kPer][kPer] = {};
  for (std::size_t k0 = 0; k0 < n; k0 += kDepth) {
    for (int at = thread; at < kDepth * kBlockRows; at += kSide * kSide) {
      const int k = at % kDepth, r = at / kDepth;
      left[k][r] = i0 + r < n && k0 + k < n ? a[(i0 + r) * stride + k0 + k] : 0.0;
      const int kk = at / kBlockRows, c = at % kBlockRows;
      right[kk][c] = k0 + kk < n && j0 + c < stride ? b[(k0 + kk) * stride + j0 + c] : 0.0;
    }
    __syncthreads();
    const int depth = n - k0 < kDepth ? static_cast<int>(n - k0) : kDepth;
    for (int k = 0; k < depth; ++k) {
      double u[kPer], v[kPer];
#pragma unroll
      for (int q = 0; q < kPer; ++q) {
        u[q] = left[k][threadIdx.y + q * kSide];
        v[q] = right[k][threadIdx.x + q * kSide];
      }
#pragma unroll
      for (int q = 0; q < kPer; ++q) {
#pragma unroll
        for (int r = 0; r < kPer; ++r) sums[q][r] = __fma_rn(u[q], v[r], sums[q][r]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int q = 0; q < kPer; ++q) {
#pragma unroll
    for (int r = 0; r < kPer; ++r) {
      const std::size_t i = i0 + threadIdx.y + q * kSide, j = j0 + threadIdx.x + r * kSide;
      if (i < n && j < stride) out[i * stride + j] = sums[q][r];
    }
  }
}

__global__ void rank_kernel(const EdgePoints* edges, std::size_t count, std::size_t n,
                            std::uint32_t* rank) {
  const std::size_t e = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= count) return;
  const std::size_t i = edges[e].i, j = edges[e].j;
  rank[i * n + j] = static_cast<std::uint32_t>(e);
  rank[j * n + i] = static_cast<std::uint32_t>(e);
}

constexpr unsigned kWarp = 32;
constexpr unsigned kWhole = 0xFFFFFFFFu;

// Takes the lowest point out of a set of bits that is not empty; every lane gets it.
__device__ unsigned take_lowest(std::uint32_t* bits, unsigned words, unsigned from, unsigned lane) {
  for (unsigned w0 = from / kWarp * kWarp;; w0 += kWarp) {
    const unsigned w = w0 + lane;
    const std::uint32_t mine = w < words ? bits[w] : 0;
    const unsigned holders = __ballot_sync(kWhole, mine != 0);
    if (holders == 0) continue;
    const unsigned owner = __ffs(static_cast<int>(holders)) - 1;
    const std::uint32_t word = __shfl_sync(kWhole, mine, static_cast<int>(owner));
    const unsigned point = (w0 + owner) * kWarp + __ffs(static_cast<int>(word)) - 1;
    if (lane == owner) bits[w] = mine & (mine - 1);
    __syncwarp();
    return point;
  }
}

__device__ bool is_empty(const std::uint32_t* bits, unsigned words, unsigned lane) {
  for (unsigned w0 = 0; w0 < words; w0 += kWarp) {
    if (__any_sync(kWhole, w0 + lane < words && bits[w0 + lane] != 0)) return false;
  }
  return true;
}

// One warp an edge. The graph before edge e is all pairs whose rank is below e, so no edge waits
// for another. lune: points not reached yet; frontier: reached, and their neighbours not yet.
__global__ void lune_kernel(const EdgePoints* edges, std::size_t begin, std::size_t count,
                            std::size_t n, const std::uint32_t* rank, std::uint32_t* first,
                            Extra* extras, std::uint32_t extras_max, std::uint32_t* extra_count) {
  extern __shared__ std::uint32_t shared[];
  const unsigned words = static_cast<unsigned>((n + kWarp - 1) / kWarp);
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  std::uint32_t* lune = shared + 2 * words * warp;
  std::uint32_t* frontier = lune + words;
  const std::size_t at = static_cast<std::size_t>(blockIdx.x) * (blockDim.x / kWarp) + warp;
  if (at >= count) return;  // whole warps
  const std::uint32_t edge = static_cast<std::uint32_t>(begin + at);
  const std::uint32_t* ranks_i = rank + edges[edge].i * n;
  const std::uint32_t* ranks_j = rank + edges[edge].j * n;

  unsigned outside = 0;
  for (unsigned w = 0; w < words; ++w) {
    const std::size_t k = static_cast<std::size_t>(w) * kWarp + lane;
    const bool common = k < n && ranks_i[k] < edge && ranks_j[k] < edge;
    const std::uint32_t bits = __ballot_sync(kWhole, common);
    if (lane == 0) {
      lune[w] = bits;
      frontier[w] = 0;
    }
    outside += __popc(bits);
  }
  __syncwarp();
  if (outside == 0) {
    if (lane == 0) first[at] = kNone;
    return;
  }
  unsigned lowest_word = 0;
  for (unsigned component = 0; outside > 0; ++component) {
    unsigned point = take_lowest(lune, words, lowest_word, lane);
    lowest_word = point / kWarp;
    --outside;
    if (lane == 0) {
      if (component == 0) {
        first[at] = point;
      } else {
        const std::uint32_t slot = atomicAdd(extra_count, 1u);
        if (slot < extras_max) extras[slot] = {edge, point};
      }
    }
    while (outside > 0) {
      const std::uint32_t* ranks = rank + point * n;
      for (unsigned w = lowest_word; w < words; ++w) {
        const std::uint32_t bits = lune[w];
        if (bits == 0) continue;
        const std::size_t k = static_cast<std::size_t>(w) * kWarp + lane;
        const bool near = (bits >> lane & 1u) != 0 && ranks[k] < edge;
        const std::uint32_t reached = __ballot_sync(kWhole, near);
        if (lane == 0) {
          lune[w] = bits & ~reached;
          frontier[w] |= reached;
        }
        outside -= __popc(reached);
        __syncwarp();
      }
      __syncwarp();
      if (outside == 0 || is_empty(frontier, words, lane)) break;
      point = take_lowest(frontier, words, 0, lane);
    }
  }
}

unsigned blocks_of(std::size_t count, std::size_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace

cudaError_t squared_differences(const double* x, std::size_t n, std::size_t stride, double* out,
                                cudaStream_t stream) {
  const dim3 grid(blocks_of(n, kSide), blocks_of(n, kSide));
  squared_kernel<<<grid, dim3(kSide, kSide), 0, stream>>>(x, n, stride, out);
  return cudaGetLastError();
}

cudaError_t multiply(const double* a, const double* b, std::size_t n, std::size_t stride,
                     double* out, cudaStream_t stream) {
  const dim3 grid(blocks_of(stride, kBlockRows), blocks_of(n, kBlockRows));
  multiply_kernel<<<grid, dim3(kSide, kSide), 0, stream>>>(a, b, n, stride, out);
  return cudaGetLastError();
}

cudaError_t fill_ranks(const EdgePoints* edges, std::size_t count, std::size_t n,
                       std::uint32_t* rank, cudaStream_t stream) {
  rank_kernel<<<blocks_of(count, 256), 256, 0, stream>>>(edges, count, n, rank);
  return cudaGetLastError();
}

cudaError_t lunes(const EdgePoints* edges, std::size_t begin, std::size_t count, std::size_t n,
                  const std::uint32_t* rank, std::uint32_t* first, Extra* extras,
                  std::uint32_t extras_max, std::uint32_t* extra_count, cudaStream_t stream) {
  // As many warps a block as their sets find room for: 48 KiB at least are there.
  const std::size_t bytes = 2 * ((n + kWarp - 1) / kWarp) * sizeof(std::uint32_t);
  const std::size_t room = 48 * 1024 / bytes;
  const unsigned warps = static_cast<unsigned>(room < 1 ? 1 : room < 8 ? room : 8);
  lune_kernel<<<blocks_of(count, warps), warps * kWarp, warps * bytes, stream>>>(
      edges, begin, count, n, rank, first, extras, extras_max, extra_count);
  return cudaGetLastError();
}

}  // namespace tailor::geometry::cuda
