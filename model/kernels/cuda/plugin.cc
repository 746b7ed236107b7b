// libtailor_cuda.so: registers the CUDA kernels for operators that kernels/ops.cc defines in the
// program. Loaded with dlopen when a trial asks for a CUDA device; brings libtorch_cuda with it. To
// add a kernel: a launcher in kernels.cu, a function here, a line in TORCH_LIBRARY_IMPL. Operators
// without a line run on kernels/reference.cc.
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

std::tuple<at::Tensor, at::Tensor> rms_norm_backward_cuda(
    const at::Tensor& grad_in, const at::Tensor& x_in, const std::optional<at::Tensor>& weight,
    const at::Tensor& rstd, const std::optional<at::Tensor>& skip_in) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor grad = with_dense_rows(grad_in);
  const at::Tensor x = with_dense_rows(x_in);
  const at::Tensor gx = at::empty(x.sizes(), x.options());
  const at::Tensor skip = present(skip_in) ? with_dense_rows(*skip_in) : at::Tensor();
  TORCH_CHECK(!skip.defined() || skip.scalar_type() == x.scalar_type(),
              "rms_norm_backward: skip is of another type than x");
  TORCH_CHECK(!present(weight) || x.size(1) <= kNormWidthMax,
              "rms_norm_backward takes rows of up to ", kNormWidthMax, " values, these have ",
              x.size(1));
  const auto wide = x.options().dtype(at::kFloat);
  at::Tensor gw;
  at::Tensor partial;
  if (present(weight)) {
    gw = at::empty({x.size(1)}, wide);
    partial = at::empty({rms_norm_partial_rows(x.size(0)), x.size(1)}, wide);
  }
  check(rms_norm_backward(
            matrix(grad), matrix(x), present(weight) ? weight->const_data_ptr<float>() : nullptr,
            rstd.const_data_ptr<float>(), skip.defined() ? matrix(skip) : Matrix(), x.size(0),
            x.size(1), matrix(gx), gw.defined() ? gw.mutable_data_ptr<float>() : nullptr,
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

// (B, heads, T, e) with a dense last dimension.
HeadTensor heads_of(const at::Tensor& x) {
  return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)};
}

at::Tensor dense_heads(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

void check_angles(const at::Tensor& cos, const at::Tensor& sin, const RopeShape& shape) {
  for (const at::Tensor& angles : {cos, sin}) {
    TORCH_CHECK(angles.scalar_type() == at::kFloat && angles.is_contiguous() && angles.dim() == 2 &&
                    angles.size(0) >= shape.sequence && angles.size(1) == shape.head_dim / 2,
                "RoPE on a GPU takes dense fp32 cosines and sines of (T, head_dim / 2)");
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split_cuda(
    const at::Tensor& qkv_in, const at::Tensor& cos, const at::Tensor& sin, std::int64_t batch,
    std::int64_t heads, std::int64_t kv_heads) {
  const c10::cuda::CUDAGuard guard(qkv_in.device());
  const at::Tensor qkv = with_dense_rows(qkv_in);
  const RopeShape shape{qkv.size(0) / batch, heads, kv_heads, qkv.size(1) / (heads + 2 * kv_heads)};
  check_angles(cos, sin, shape);
  const auto make = [&](std::int64_t count) {
    return at::empty({batch, count, shape.sequence, shape.head_dim}, qkv.options());
  };
  const at::Tensor q = make(heads);
  const at::Tensor k = make(kv_heads);
  const at::Tensor v = make(kv_heads);
  check(rope_split(matrix(qkv), batch, shape, cos.const_data_ptr<float>(),
                   sin.const_data_ptr<float>(), heads_of(q), heads_of(k), heads_of(v),
                   stream_of(qkv)),
        "rope_split");
  return {q, k, v};
}

at::Tensor rope_merge_cuda(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                           const at::Tensor& cos, const at::Tensor& sin) {
  const c10::cuda::CUDAGuard guard(q_in.device());
  // Attention's gradients come as (B, T, heads, e) in memory: read as they lie.
  const at::Tensor q = dense_heads(q_in);
  const at::Tensor k = dense_heads(k_in);
  const at::Tensor v = dense_heads(v_in);
  const RopeShape shape{q.size(2), q.size(1), k.size(1), q.size(3)};
  check_angles(cos, sin, shape);
  TORCH_CHECK(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(),
              "rope_merge: q, k and v are of different types");
  const at::Tensor qkv =
      at::empty({q.size(0) * shape.sequence, (shape.heads + 2 * shape.kv_heads) * shape.head_dim},
                q.options());
  check(
      rope_merge(matrix(qkv), q.size(0), shape, cos.const_data_ptr<float>(),
                 sin.const_data_ptr<float>(), heads_of(q), heads_of(k), heads_of(v), stream_of(q)),
      "rope_merge");
  return qkv;
}

at::Tensor cross_entropy_cuda(at::Tensor& scores, const at::Tensor& targets_in, double scale,
                              bool with_grad, double z_loss) {
  const c10::cuda::CUDAGuard guard(scores.device());
  // In place: a copy with dense rows would take the gradient with it.
  TORCH_CHECK(scores.dim() == 2 && scores.stride(1) == 1 &&
                  (scores.scalar_type() == at::kFloat || scores.scalar_type() == at::kBFloat16),
              "cross_entropy_ on a GPU takes fp32 or bf16 scores with dense rows");
  const at::Tensor targets = targets_in.contiguous();
  TORCH_CHECK(targets.scalar_type() == at::kLong && targets.numel() == scores.size(0),
              "cross_entropy_ takes one int64 target a row");
  const at::Tensor loss = at::empty({scores.size(0)}, scores.options().dtype(at::kDouble));
  check(cross_entropy(matrix(scores), targets.const_data_ptr<std::int64_t>(), scores.size(0),
                      scores.size(1), static_cast<float>(scale), with_grad, z_loss,
                      loss.mutable_data_ptr<double>(), stream_of(scores)),
        "cross_entropy_");
  return loss;
}

at::Tensor sum_squares_cuda(const at::Tensor& x_in) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  TORCH_CHECK(x_in.scalar_type() != at::kDouble, "sum_squares on a GPU takes fp32 or bf16");
  at::Tensor x = x_in.to(at::kFloat).contiguous();
  if (reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16 != 0) x = x.clone();
  const auto wide = x.options().dtype(at::kDouble);
  const at::Tensor out = at::empty({}, wide);
  const at::Tensor partial = at::empty({kSumSquaresParts}, wide);
  check(sum_squares(x.const_data_ptr<float>(), x.numel(), partial.mutable_data_ptr<double>(),
                    out.mutable_data_ptr<double>(), stream_of(x)),
        "sum_squares");
  return out;
}

// LibTorch refuses products in a fixed order (model/train/step.h) unless cuBLAS's workspace is of
// this form, and reads the variable when it makes its first handle: after this library is loaded.
[[maybe_unused]] const int workspace_set = ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);

}  // namespace

TORCH_LIBRARY_IMPL(tailor, CUDA, library) {
  library.impl("rms_norm", &rms_norm_cuda);
  library.impl("rms_norm_backward", &rms_norm_backward_cuda);
  library.impl("product_", &product_);
  library.impl("swiglu", &swiglu_cuda);
  library.impl("swiglu_backward", &swiglu_backward_cuda);
  library.impl("rope_split", &rope_split_cuda);
  library.impl("rope_merge", &rope_merge_cuda);
  library.impl("cross_entropy_", &cross_entropy_cuda);
  library.impl("sum_squares", &sum_squares_cuda);
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
