// Launchers of the kernels in kernels.cu: plain pointers to device memory, one stream, no waiting.
// Each returns the launch's error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tailor::geometry::cuda {

/// Points of one edge; i > j.
struct EdgePoints {
  std::uint16_t i, j;
};

/// A representative beyond the first of an edge's lune.
struct Extra {
  std::uint32_t edge;
  std::uint32_t point;
};

/// "No edge" in a rank matrix and "no point" in `first`.
inline constexpr std::uint32_t kNone = 0xFFFFFFFFu;

/// out[i * n + j] = |x_i - x_j|^2 for j < i; x: n rows of `stride` numbers, a multiple of 8. The
/// order of the sums is that of geometry/kernels.cc.
cudaError_t squared_differences(const double* x, std::size_t n, std::size_t stride, double* out,
                                cudaStream_t stream);

/// out = a b; all n x stride (columns beyond n are zero), summed over rising k.
cudaError_t multiply(const double* a, const double* b, std::size_t n, std::size_t stride,
                     double* out, cudaStream_t stream);

/// rank[i * n + j] = rank[j * n + i] = e for edge e = (i, j). REQUIRES: the rest is kNone.
cudaError_t fill_ranks(const EdgePoints* edges, std::size_t count, std::size_t n,
                       std::uint32_t* rank, cudaStream_t stream);

/// For edges [begin, begin + count): first[e - begin] = lowest point of the lune of edge e, or
/// kNone. The lowest points of its other components are appended to `extras`, in any order;
/// `extra_count` counts them also beyond `extras_max`, where they are not written.
cudaError_t lunes(const EdgePoints* edges, std::size_t begin, std::size_t count, std::size_t n,
                  const std::uint32_t* rank, std::uint32_t* first, Extra* extras,
                  std::uint32_t extras_max, std::uint32_t* extra_count, cudaStream_t stream);

/// Points beyond which `lunes` has no room for a lune in shared memory.
inline constexpr std::size_t kLunePointsMax = 32768;

}  // namespace tailor::geometry::cuda
