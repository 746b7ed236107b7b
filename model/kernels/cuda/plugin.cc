// libtailor_cuda.so: registers the CUDA kernels for operators that kernels/ops.cc defines in the
// program. Loaded with dlopen when a trial asks for a CUDA device; brings libtorch_cuda with it. To
// add a kernel: a launcher in kernels.cu, a function here, a line in TORCH_LIBRARY_IMPL. Operators
// without a line run on kernels/reference.cc.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "model/kernels/cuda/launchers.h"

namespace tailor::kernels::cuda {
namespace {

bool present(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

// A two-dimensional view with dense rows; fp32 or bf16 only.
at::Tensor with_dense_rows(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 2 && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16),
              "tailor's CUDA kernels take fp32 or bf16 matrices");
  return x.stride(1) == 1 ? x : x.contiguous();
}

Matrix matrix(const at::Tensor& x) {
  return {x.data_ptr(), x.scalar_type() == at::kFloat ? Element::kFloat : Element::kBf16,
          x.stride(0)};
}

cudaStream_t stream_of(const at::Tensor& x) {
  return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

void check(cudaError_t status, const char* what) {
  TORCH_CHECK(status == cudaSuccess, what, " failed to launch: ", cudaGetErrorString(status));
}

std::tuple<at::Tensor, at::Tensor> rms_norm_cuda(const at::Tensor& x_in,
                                                 const std::optional<at::Tensor>& weight,
                                                 double eps, at::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor x = with_dense_rows(x_in);
  const at::Tensor y = at::empty(x.sizes(), x.options().dtype(dtype));
  const at::Tensor rstd = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
  check(rms_norm(matrix(x), present(weight) ? weight->const_data_ptr<float>() : nullptr, x.size(0),
                 x.size(1), static_cast<float>(eps), matrix(y), rstd.mutable_data_ptr<float>(),
                 stream_of(x)),
        "rms_norm");
  return {y, rstd};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward_cuda(const at::Tensor& grad_in,
                                                          const at::Tensor& x_in,
                                                          const std::optional<at::Tensor>& weight,
                                                          const at::Tensor& rstd) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor grad = with_dense_rows(grad_in);
  const at::Tensor x = with_dense_rows(x_in);
  const at::Tensor gx = at::empty(x.sizes(), x.options());
  const auto wide = x.options().dtype(at::kFloat);
  at::Tensor gw;
  at::Tensor partial;
  if (present(weight)) {
    gw = at::empty({x.size(1)}, wide);
    partial = at::empty({rms_norm_partial_rows(x.size(0)), x.size(1)}, wide);
  }
  check(rms_norm_backward(
            matrix(grad), matrix(x), present(weight) ? weight->const_data_ptr<float>() : nullptr,
            rstd.const_data_ptr<float>(), x.size(0), x.size(1), matrix(gx),
            gw.defined() ? gw.mutable_data_ptr<float>() : nullptr,
            partial.defined() ? partial.mutable_data_ptr<float>() : nullptr, stream_of(x)),
        "rms_norm_backward");
  return {gx, gw};
}

at::Tensor swiglu_cuda(const at::Tensor& gate_up_in) {
  const c10::cuda::CUDAGuard guard(gate_up_in.device());
  const at::Tensor gate_up = with_dense_rows(gate_up_in);
  const std::int64_t f = gate_up.size(1) / 2;
  const at::Tensor y = at::empty({gate_up.size(0), f}, gate_up.options());
  check(swiglu(matrix(gate_up), gate_up.size(0), f, matrix(y), stream_of(gate_up)), "swiglu");
  return y;
}

at::Tensor swiglu_backward_cuda(const at::Tensor& grad_in, const at::Tensor& gate_up_in) {
  const c10::cuda::CUDAGuard guard(gate_up_in.device());
  const at::Tensor grad = with_dense_rows(grad_in);
  const at::Tensor gate_up = with_dense_rows(gate_up_in);
  const at::Tensor out = at::empty(gate_up.sizes(), gate_up.options());
  check(swiglu_backward(matrix(grad), matrix(gate_up), gate_up.size(0), gate_up.size(1) / 2,
                        matrix(out), stream_of(gate_up)),
        "swiglu_backward");
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(tailor, CUDA, library) {
  library.impl("rms_norm", &rms_norm_cuda);
  library.impl("rms_norm_backward", &rms_norm_backward_cuda);
  library.impl("swiglu", &swiglu_cuda);
  library.impl("swiglu_backward", &swiglu_backward_cuda);
}

}  // namespace tailor::kernels::cuda

/// Number of usable GPUs; 0 when there is no driver.
extern "C" int tailor_cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/// The name of GPU `index`, valid until the next call from the same thread.
extern "C" const char* tailor_cuda_device_name(int index) {
  thread_local cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, index) == cudaSuccess ? properties.name
                                                                    : "unknown GPU";
}
