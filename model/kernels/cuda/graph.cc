// model/kernels/graph.h over CUDA graphs.
#include "model/kernels/graph.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

namespace tailor::kernels::cuda {
namespace {

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(c10::DeviceIndex device)
      : device_(device), stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)) {}

  void warm_up(const std::function<void()>& body) override {
    const c10::cuda::CUDAGuard guard(device_);
    aside(body);
  }

  void record(const std::function<void()>& body) override {
    const c10::cuda::CUDAGuard guard(device_);
    c10::cuda::device_synchronize();
    // What warm-up steps left cached would lie beside the graph's own memory.
    c10::cuda::CUDACachingAllocator::emptyCache();
    aside([&] {
      // Only calls of this thread can spoil the capture: others may copy and allocate meanwhile.
      graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      try {
        body();
      } catch (...) {
        try {
          graph_.capture_end();  // gives the stream back
        } catch (const c10::Error&) {
          // The first error says more.
        }
        graph_.reset();
        throw;
      }
      graph_.capture_end();
    });
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
  }

 private:
  // Runs `body` with our stream current; the streams wait for each other.
  void aside(const std::function<void()>& body) {
    const c10::cuda::CUDAStream outer = c10::cuda::getCurrentCUDAStream(device_);
    at::cuda::CUDAEvent before;
    before.record(outer);
    before.block(stream_);
    {
      const c10::cuda::CUDAStreamGuard guard(stream_);
      body();
    }
    at::cuda::CUDAEvent after;
    after.record(stream_);
    after.block(outer);
  }

  c10::DeviceIndex device_;
  c10::cuda::CUDAStream stream_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace
}  // namespace tailor::kernels::cuda

/// A new graph on GPU `index`; the caller owns it.
extern "C" tailor::kernels::Graph* tailor_cuda_make_graph(int index) {
  return new tailor::kernels::cuda::CudaGraph(static_cast<c10::DeviceIndex>(index));
}
