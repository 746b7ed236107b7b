// libtailor_geometry_cuda.so: the Accelerator on one GPU. Moves data, launches, waits. Every call
// has its own stream and takes memory from the device's pool,
// so calls from several threads overlap.
#include "geometry/cuda/plugin.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <tuple>

#include "geometry/accelerator.h"
#include "geometry/cuda/kernels.h"

namespace tailor::geometry::cuda {
namespace {

// One call's stream; its first error stops everything after it.
class Call {
 public:
  explicit Call(int device) {
    check(cudaSetDevice(device));
    if (ok()) check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~Call() {
    for (void* memory : memory_) cudaFreeAsync(memory, stream_);
    if (stream_ != nullptr) {
      cudaStreamSynchronize(stream_);
      cudaStreamDestroy(stream_);
    }
    if (!ok()) cudaGetLastError();  // the next call starts clean
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool ok() const { return error_ == cudaSuccess; }
  cudaError_t error() const { return error_; }
  cudaStream_t stream() const { return stream_; }
  void check(cudaError_t error) {
    if (ok()) error_ = error;
  }

  template <typename T>
  T* allocate(std::size_t count) {
    void* memory = nullptr;
    if (ok()) check(cudaMallocAsync(&memory, std::max<std::size_t>(count, 1) * sizeof(T), stream_));
    if (memory != nullptr) memory_.push_back(memory);
    return static_cast<T*>(memory);
  }
  template <typename T>
  T* upload(const T* values, std::size_t count) {
    T* memory = allocate<T>(count);
    if (ok()) {
      check(cudaMemcpyAsync(memory, values, count * sizeof(T), cudaMemcpyHostToDevice, stream_));
    }
    return memory;
  }
  template <typename T>
  void download(T* values, const T* memory, std::size_t count) {
    if (ok()) {
      check(cudaMemcpyAsync(values, memory, count * sizeof(T), cudaMemcpyDeviceToHost, stream_));
    }
  }
  void fill(void* memory, int byte, std::size_t size) {
    if (ok()) check(cudaMemsetAsync(memory, byte, size, stream_));
  }
  bool wait() {
    if (ok()) check(cudaStreamSynchronize(stream_));
    return ok();
  }

 private:
  cudaError_t error_ = cudaSuccess;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

class CudaAccelerator final : public Accelerator {
 public:
  CudaAccelerator(int device, std::string name) : device_(device), name_(std::move(name)) {}

  std::string name() const override { return name_; }

  Status status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  bool squared_differences(const PaddedRows& rows, double* out) const override {
    const std::size_t n = rows.count;
    if (n < 2) return true;
    Call call(device_);
    const double* x = call.upload(rows.values.data(), rows.values.size());
    double* squared = call.allocate<double>(n * n);
    if (call.ok()) {
      call.check(cuda::squared_differences(x, n, rows.stride, squared, call.stream()));
    }
    std::vector<double> whole(call.ok() ? n * n : 0);
    call.download(whole.data(), squared, whole.size());
    if (!call.wait()) return failed("distances", call);
    for (std::size_t i = 1; i < n; ++i) {
      std::copy_n(whole.data() + i * n, i, out + i * n);
    }
    return true;
  }

  bool multiply(const PaddedRows& a, const PaddedRows& b, PaddedRows& out) const override {
    const std::size_t n = a.count;
    if (n == 0) return false;
    if (out.count != n || out.stride != a.stride) out = PaddedRows(n, n);
    Call call(device_);
    const double* left = call.upload(a.values.data(), a.values.size());
    const double* right = call.upload(b.values.data(), b.values.size());
    double* product = call.allocate<double>(out.values.size());
    if (call.ok()) {
      call.check(cuda::multiply(left, right, n, a.stride, product, call.stream()));
    }
    call.download(out.values.data(), product, out.values.size());
    return call.wait() || failed("a product", call);
  }

  bool lunes(std::span<const Edge> edges, std::size_t points, EdgeLunes& out) const override {
    const std::size_t n = points;
    if (n > kLunePointsMax || edges.size() >= kNone) return false;
    std::vector<EdgePoints> pairs;
    pairs.reserve(edges.size());
    for (const Edge& edge : edges) pairs.push_back({edge.i, edge.j});

    Call call(device_);
    const EdgePoints* device_edges = call.upload(pairs.data(), pairs.size());
    std::uint32_t* rank = call.allocate<std::uint32_t>(n * n);
    call.fill(rank, 0xFF, n * n * sizeof(std::uint32_t));
    if (call.ok() && !pairs.empty()) {
      call.check(fill_ranks(device_edges, pairs.size(), n, rank, call.stream()));
    }
    std::uint32_t* first = call.allocate<std::uint32_t>(kBatch);
    std::uint32_t* extra_count = call.allocate<std::uint32_t>(1);
    // A few components an edge at most on average; a batch that has more is done again in halves.
    Extra* extras = call.allocate<Extra>(kExtrasMax);

    out.starts.assign(1, 0);
    out.starts.reserve(edges.size() + 1);
    out.representatives.clear();
    out.representatives.reserve(edges.size());
    std::vector<std::uint32_t> firsts(kBatch);
    std::vector<Extra> more;
    std::size_t size = kBatch;
    for (std::size_t begin = 0; begin < edges.size() && call.ok();) {
      const std::size_t count = std::min(size, edges.size() - begin);
      call.fill(extra_count, 0, sizeof(std::uint32_t));
      if (call.ok()) {
        call.check(cuda::lunes(device_edges, begin, count, n, rank, first, extras, kExtrasMax,
                               extra_count, call.stream()));
      }
      std::uint32_t found = 0;
      call.download(&found, extra_count, 1);
      call.download(firsts.data(), first, count);
      if (!call.wait()) break;
      if (found > kExtrasMax) {
        size = std::max<std::size_t>(count / 2, 1);  // one edge has fewer than kExtrasMax
        continue;
      }
      more.resize(found);
      call.download(more.data(), extras, found);
      if (!call.wait()) break;
      std::sort(more.begin(), more.end(), [](const Extra& x, const Extra& y) {
        return std::tie(x.edge, x.point) < std::tie(y.edge, y.point);
      });
      auto extra = more.begin();
      for (std::size_t e = 0; e < count; ++e) {
        if (firsts[e] != kNone) {
          out.representatives.push_back(static_cast<std::uint16_t>(firsts[e]));
        }
        for (; extra != more.end() && extra->edge == begin + e; ++extra) {
          out.representatives.push_back(static_cast<std::uint16_t>(extra->point));
        }
        out.starts.push_back(static_cast<std::uint32_t>(out.representatives.size()));
      }
      begin += count;
    }
    return call.ok() || failed("lunes", call);
  }

 private:
  static constexpr std::size_t kBatch = 1 << 20;
  static constexpr std::uint32_t kExtrasMax = 1 << 22;

  bool failed(const char* what, const Call& call) const {
    const std::lock_guard lock(mutex_);
    if (status_.is_ok()) {
      status_ = Status(
          call.error() == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kUnavailable,
          name_ + ": " + what + " were left to the CPU: " + cudaGetErrorString(call.error()));
    }
    return false;
  }

  int device_;
  std::string name_;
  mutable std::mutex mutex_;  // guards: status_
  mutable Status status_;
};

Accelerator* open(int index, std::string* reason) {
  int count = 0;
  const cudaError_t failure = cudaGetDeviceCount(&count);
  if (failure != cudaSuccess) {
    *reason = cudaGetErrorString(failure);
    return nullptr;
  }
  if (index >= count) {
    *reason = std::to_string(count) + " GPUs are visible to this process";
    return nullptr;
  }
  cudaDeviceProp properties{};
  const cudaError_t unknown = cudaGetDeviceProperties(&properties, index);
  if (unknown != cudaSuccess) {
    *reason = cudaGetErrorString(unknown);
    return nullptr;
  }
  return new CudaAccelerator(index, "cuda:" + std::to_string(index) + " (" + properties.name + ")");
}

}  // namespace
}  // namespace tailor::geometry::cuda

extern "C" __attribute__((visibility("default"))) tailor::geometry::Accelerator*
tailor_geometry_cuda_open_1(int index, std::string* reason) {
  return tailor::geometry::cuda::open(index, reason);
}
