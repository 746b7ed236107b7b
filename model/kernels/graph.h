// Work of a GPU that is recorded once and replayed by a single launch. What implements it stands in
// libtailor_cuda.so (model/kernels/cuda/graph.cc);
// this interface is all that the program sees of it.
#pragma once

#include <functional>

namespace tailor::kernels {

/// Threads: one.
class Graph {
 public:
  virtual ~Graph() = default;

  /// Runs `body` on the stream that record() uses and returns when it is launched: for the steps
  /// before recording, so that libraries choose their algorithms and allocate what they keep.
  virtual void warm_up(const std::function<void()>& body) = 0;

  /// Records what `body` launches, without running it. Tensors that `body` makes live in memory of
  /// the graph and keep their address; those it only reads must too. `body` must not wait for the
  /// device or copy from ordinary host memory. Throws c10::Error if it cannot be recorded; nothing
  /// has run then.
  virtual void record(const std::function<void()>& body) = 0;

  /// Launches the recorded work on the current stream. REQUIRES: record() returned.
  virtual void replay() = 0;
};

}  // namespace tailor::kernels
