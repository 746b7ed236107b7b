// libtailor_cuda.so: registers the CUDA kernels for operators that kernels/ops.cc defines in the
// program. Loaded with dlopen when a trial asks for a CUDA device; brings libtorch_cuda with it. To
// add a kernel: a launcher in kernels.cu and a function of the operator's name here; op_table.h
// says which there must be. kernels/ops.cc has checked types and shapes before these are called.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <cstdlib>
#include <optional>
#include <tuple>

#include "model/kernels/cuda/gemm.h"
#include "model/kernels/cuda/launchers.h"

namespace tailor::kernels::cuda {
namespace {

bool present(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

// A view with dense rows, or a copy where there is none.
at::Tensor with_dense_rows(const at::Tensor& x) { return x.stride(1) == 1 ? x : x.contiguous(); }

// Gains as the kernels take them.
at::Tensor dense(const std::optional<at::Tensor>& weight) {
  return present(weight) ? weight->contiguous() : at::Tensor();
}
const float* floats(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
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

// (B, heads, T, e) with a dense last dimension.
HeadTensor heads_of(const at::Tensor& x) {
  return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

at::Tensor dense_heads(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

// The operators under their names; launchers are cuda::NAME.
namespace ops {

using cuda::product_;

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x_in,
                                            const std::optional<at::Tensor>& weight_in, double eps,
                                            at::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor x = with_dense_rows(x_in);
  const at::Tensor weight = dense(weight_in);
  const at::Tensor y = at::empty(x.sizes(), x.options().dtype(dtype));
  const at::Tensor rstd = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
  check(cuda::rms_norm(matrix(x), floats(weight), x.size(0), x.size(1), static_cast<float>(eps),
                       matrix(y), rstd.mutable_data_ptr<float>(), stream_of(x)),
        "rms_norm");
  return {y, rstd};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad_in,
                                                     const at::Tensor& x_in,
                                                     const std::optional<at::Tensor>& weight_in,
                                                     const at::Tensor& rstd_in,
                                                     const std::optional<at::Tensor>& skip_in) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor grad = with_dense_rows(grad_in);
  const at::Tensor x = with_dense_rows(x_in);
  const at::Tensor weight = dense(weight_in);
  const at::Tensor rstd = rstd_in.contiguous();
  const at::Tensor gx = at::empty(x.sizes(), x.options());
  const at::Tensor skip = present(skip_in) ? with_dense_rows(*skip_in) : at::Tensor();
  const auto wide = x.options().dtype(at::kFloat);
  at::Tensor gw;
  at::Tensor partial;
  if (weight.defined()) {
    gw = at::empty({x.size(1)}, wide);
    partial = at::empty({rms_norm_partial_rows(x.size(0)), x.size(1)}, wide);
  }
  check(cuda::rms_norm_backward(matrix(grad), matrix(x), floats(weight), floats(rstd),
                                skip.defined() ? matrix(skip) : Matrix(), x.size(0), x.size(1),
                                matrix(gx), gw.defined() ? gw.mutable_data_ptr<float>() : nullptr,
                                partial.defined() ? partial.mutable_data_ptr<float>() : nullptr,
                                stream_of(x)),
        "rms_norm_backward");
  return {gx, gw};
}

at::Tensor swiglu(const at::Tensor& gate_up_in) {
  const c10::cuda::CUDAGuard guard(gate_up_in.device());
  const at::Tensor gate_up = with_dense_rows(gate_up_in);
  const std::int64_t f = gate_up.size(1) / 2;
  const at::Tensor y = at::empty({gate_up.size(0), f}, gate_up.options());
  check(cuda::swiglu(matrix(gate_up), gate_up.size(0), f, matrix(y), stream_of(gate_up)), "swiglu");
  return y;
}

at::Tensor swiglu_backward(const at::Tensor& grad_in, const at::Tensor& gate_up_in) {
  const c10::cuda::CUDAGuard guard(gate_up_in.device());
  const at::Tensor grad = with_dense_rows(grad_in);
  const at::Tensor gate_up = with_dense_rows(gate_up_in);
  const at::Tensor out = at::empty(gate_up.sizes(), gate_up.options());
  check(cuda::swiglu_backward(matrix(grad), matrix(gate_up), gate_up.size(0), gate_up.size(1) / 2,
                              matrix(out), stream_of(gate_up)),
        "swiglu_backward");
  return out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv_in,
                                                          const at::Tensor& cos_in,
                                                          const at::Tensor& sin_in,
                                                          std::int64_t batch, std::int64_t heads,
                                                          std::int64_t kv_heads) {
  const c10::cuda::CUDAGuard guard(qkv_in.device());
  const at::Tensor qkv = with_dense_rows(qkv_in);
  const at::Tensor cos = cos_in.contiguous();
  const at::Tensor sin = sin_in.contiguous();
  const RopeShape shape{cos.size(0), heads, kv_heads, 2 * cos.size(1)};
  const auto make = [&](std::int64_t count) {
    return at::empty({batch, count, shape.sequence, shape.head_dim}, qkv.options());
  };
  const at::Tensor q = make(heads);
  const at::Tensor k = make(kv_heads);
  const at::Tensor v = make(kv_heads);
  check(cuda::rope_split(matrix(qkv), batch, shape, floats(cos), floats(sin), heads_of(q),
                         heads_of(k), heads_of(v), stream_of(qkv)),
        "rope_split");
  return {q, k, v};
}

at::Tensor rope_merge(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                      const at::Tensor& cos_in, const at::Tensor& sin_in) {
  const c10::cuda::CUDAGuard guard(q_in.device());
  // Attention's gradients come as (B, T, heads, e) in memory: read as they lie.
  const at::Tensor q = dense_heads(q_in);
  const at::Tensor k = dense_heads(k_in);
  const at::Tensor v = dense_heads(v_in);
  const at::Tensor cos = cos_in.contiguous();
  const at::Tensor sin = sin_in.contiguous();
  const RopeShape shape{q.size(2), q.size(1), k.size(1), q.size(3)};
  const at::Tensor qkv =
      at::empty({q.size(0) * shape.sequence, (shape.heads + 2 * shape.kv_heads) * shape.head_dim},
                q.options());
  check(cuda::rope_merge(matrix(qkv), q.size(0), shape, floats(cos), floats(sin), heads_of(q),
                         heads_of(k), heads_of(v), stream_of(q)),
        "rope_merge");
  return qkv;
}

at::Tensor cross_entropy_(at::Tensor& scores, const at::Tensor& targets_in, double scale,
                          bool with_grad, double z_loss) {
  const c10::cuda::CUDAGuard guard(scores.device());
  // In place: the gradient in a copy with dense rows is put back.
  if (scores.stride(1) != 1) {
    at::Tensor copy = scores.contiguous();
    const at::Tensor loss = cross_entropy_(copy, targets_in, scale, with_grad, z_loss);
    if (with_grad) scores.copy_(copy);
    return loss;
  }
  const at::Tensor targets = targets_in.contiguous();
  const at::Tensor loss = at::empty({scores.size(0)}, scores.options().dtype(at::kDouble));
  check(cuda::cross_entropy(matrix(scores), targets.const_data_ptr<std::int64_t>(), scores.size(0),
                            scores.size(1), static_cast<float>(scale), with_grad, z_loss,
                            loss.mutable_data_ptr<double>(), stream_of(scores)),
        "cross_entropy_");
  return loss;
}

at::Tensor sum_squares(const at::Tensor& x_in) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  at::Tensor x = x_in.contiguous();
  if (reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 != 0) x = x.clone();
  const auto wide = x.options().dtype(at::kDouble);
  const at::Tensor out = at::empty({}, wide);
  const at::Tensor partial = at::empty({kSumSquaresParts}, wide);
  check(cuda::sum_squares(floats(x), x.numel(), partial.mutable_data_ptr<double>(),
                          out.mutable_data_ptr<double>(), stream_of(x)),
        "sum_squares");
  return out;
}

}  // namespace ops

// LibTorch refuses products in a fixed order (model/train/step.h) unless cuBLAS's workspace is of
// this form, and reads the variable when it makes its first handle: after this library is loaded.
[[maybe_unused]] const int workspace_set = ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);

}  // namespace

TORCH_LIBRARY_IMPL(tailor, CUDA, library) {
#define TAILOR_CASE(NAME) library.impl(#NAME, &ops::NAME);
  TAILOR_SHARED_OPERATORS(TAILOR_CASE)
#undef TAILOR_CASE
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
