// Accelerator: a device that takes over the three loops in which geometry spends its time.
//
//   squared differences   n^2 d     of pairwise_distances
//   products              2 n^3     of Gromov-Wasserstein
//   lunes                 n^3 / 64  of Vietoris-Rips persistence: each edge's lune and its
//                                   components
//
// What comes back is what kernels.h and rips.cc compute, bit for bit: sums run in the same order,
// every multiply-add is fused, and a lune is made of whole numbers. So a device changes the time a
// result takes and never the result, and whatever a device cannot do (no memory left, too many
// points, a lost device) the CPU does instead: every function says by its return value whether it
// did the work. `status` tells why it did not.
//
// Callers hand one in by the options of each function; null is the CPU. There is no global one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "geometry/kernels.h"
#include "geometry/sorted_edges.h"

namespace tailor::geometry {

/// For every edge of a list in order, one point of each connected component of its lune (rips.h):
/// the component's lowest point, components by rising lowest point.
struct EdgeLunes {
  std::vector<std::uint32_t> starts;  ///< edge e has representatives [starts[e], starts[e + 1])
  std::vector<std::uint16_t> representatives;

  std::span<const std::uint16_t> of(std::size_t edge) const {
    return std::span<const std::uint16_t>(representatives)
        .subspan(starts[edge], starts[edge + 1] - starts[edge]);
  }
};

/// Threads: every function may be called from any thread at once.
class Accelerator {
 public:
  virtual ~Accelerator() = default;

  /// What people call it: "cuda:0 (NVIDIA H100)".
  virtual std::string name() const = 0;
  /// Ok, or the first reason for which work was left to the CPU.
  virtual Status status() const = 0;

  /// out[i * n + j] = |x_i - x_j|^2 for j < i, n = rows.count; other entries are left alone. False:
  /// nothing was written.
  virtual bool squared_differences(const PaddedRows& rows, double* out) const = 0;
  /// out = a b as kernels.h's multiply. False: `out` is unspecified.
  virtual bool multiply(const PaddedRows& a, const PaddedRows& b, PaddedRows& out) const = 0;
  /// Lunes of `edges`, all edges up to a threshold in order, between `points` points. False:
  /// `out` is unspecified.
  virtual bool lunes(std::span<const Edge> edges, std::size_t points, EdgeLunes& out) const = 0;
};

/// Opens the device called `name` ("cuda:N") through the plugin libtailor_geometry_cuda.so that
/// lies in `folder`; an empty `folder` is that of the running program. "cpu" gives null. The plugin
/// stays loaded. Errors: kInvalidArgument for another name; kFailedPrecondition when the plugin or
/// the device is not there, with what to do.
Result<std::unique_ptr<Accelerator>> open_accelerator(std::string_view name,
                                                      const std::string& folder = {});

}  // namespace tailor::geometry
