// NCCL for ranks on GPUs: part of libtailor_cuda.so, which alone links LibTorch's CUDA library.
#include <c10/cuda/CUDAGuard.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

/// A new c10d backend over NCCL, as a pointer that the caller owns (intrusive_ptr::reclaim).
/// `store` is a c10d::Store that it shares. Throws what LibTorch throws. A rank that is lost does
/// not end NCCL's own waiting: the group's watch aborts it, so NCCL's deadline is long.
extern "C" void* tailor_cuda_nccl(void* store, int rank, int size, int device) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::minutes(30);
  auto shared = c10::intrusive_ptr<c10d::Store>::reclaim_copy(static_cast<c10d::Store*>(store));
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(shared, rank, size, options);
  backend->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return static_cast<c10d::Backend*>(
      c10::intrusive_ptr<c10d::Backend>(std::move(backend)).release());
}
