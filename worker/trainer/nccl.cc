#include "worker/trainer/nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tailor::trainer {

void leave_ends_to_the_watch() {
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", 1);  // no handling: errors stay with the work
  ::setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", 1);   // the training thread meets them itself
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 1);     // an abort may outlast its heartbeat
}

train::ranks::MakeBackend nccl_backend() {
  return [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, at::Device device) {
    // Exported by the plugin (model/train/ranks/nccl.cc).
    using Make = void*(void* store, int rank, int size, int device);
    const auto make = reinterpret_cast<Make*>(::dlsym(RTLD_DEFAULT, "tailor_cuda_nccl"));
    TORCH_CHECK(
        make != nullptr,
        "libtailor_cuda.so was built without NCCL (nccl.h was not found): ranks on GPUs need it");
    return c10::intrusive_ptr<c10d::Backend>::reclaim(
        static_cast<c10d::Backend*>(make(store.get(), rank, size, device.index())));
  };
}

}  // namespace tailor::trainer
