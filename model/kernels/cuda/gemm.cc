// LibTorch's addmm copies the base to the output first, which costs as much as adding afterwards,
// and has no fp32 output that is added to; cuBLASLt takes C and D of D = C + A B apart and in fp32.
// With it a residual write and the sum of a weight gradient cost no pass of their own.
//
// cuBLASLt is column-major: it sees the transpose of each row-major matrix, hence
//   D^T = C^T + B^T A^T.
#include "model/kernels/cuda/gemm.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

namespace tailor::kernels::cuda {
namespace {

constexpr std::int64_t kWorkspaceBytes = 32 << 20;  // what NVIDIA advises for sm_90

void check(cublasStatus_t status, const char* what) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "product_: ", what,
              " failed: ", cublasLtGetStatusString(status));
}

// Frees a cuBLASLt object.
template <typename Handle, cublasStatus_t (*destroy)(Handle)>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle != nullptr) destroy(handle);
  }
};
using Layout = Owned<cublasLtMatrixLayout_t, &cublasLtMatrixLayoutDestroy>;

// How a matrix lies in memory: dense rows, or (turned) dense columns;
// `stride` from one to the next.
struct Lie {
  bool turned = false;
  std::int64_t stride = 0;
  auto operator<=>(const Lie&) const = default;
};

bool dense_rows(const at::Tensor& x) {
  return x.stride(1) == 1 && (x.size(0) == 1 || x.stride(0) >= x.size(1));
}
bool dense_columns(const at::Tensor& x) {
  return x.stride(0) == 1 && (x.size(1) == 1 || x.stride(1) >= x.size(0));
}

Lie lie_of(const at::Tensor& x) {
  if (dense_rows(x)) return {false, std::max(x.stride(0), x.size(1))};
  TORCH_CHECK(dense_columns(x), "product_ takes matrices with dense rows or columns");
  return {true, std::max(x.stride(1), x.size(0))};
}

// All that the choice of an algorithm depends on.
struct Shape {
  std::int64_t device, n, m, k;
  Lie a, b;
  std::int64_t base_stride, out_stride;
  bool based;
  std::int64_t alignment;  // the largest power of two up to 256 that divides every address
  auto operator<=>(const Shape&) const = default;
};

// The objects that describe one product, and the algorithm that was chosen for it.
struct Plan {
  Owned<cublasLtMatmulDesc_t, &cublasLtMatmulDescDestroy> product;
  Layout a, b, base, out;
  cublasLtMatmulHeuristicResult_t choice{};
};

std::int64_t common_alignment(std::initializer_list<const void*> addresses) {
  std::uintptr_t bits = 256;
  for (const void* address : addresses) bits |= reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::int64_t>(bits & (~bits + 1));
}

std::unique_ptr<Plan> make_plan(cublasLtHandle_t handle, const Shape& shape) {
  auto plan = std::make_unique<Plan>();
  check(cublasLtMatmulDescCreate(&plan->product.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describing");
  // The first factor of cuBLASLt is our second.
  const auto turn = [&](cublasLtMatmulDescAttributes_t which, bool turned) {
    const cublasOperation_t operation = turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(plan->product.handle, which, &operation, sizeof operation),
          "describing");
  };
  turn(CUBLASLT_MATMUL_DESC_TRANSA, shape.b.turned);
  turn(CUBLASLT_MATMUL_DESC_TRANSB, shape.a.turned);
  // `rows` x `columns` in row-major words.
  const auto lay = [](Layout& to, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                      const Lie& lie) {
    if (lie.turned) std::swap(rows, columns);
    check(cublasLtMatrixLayoutCreate(&to.handle, type, static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), lie.stride),
          "describing");
  };
  lay(plan->a, CUDA_R_16BF, shape.n, shape.k, shape.a);
  lay(plan->b, CUDA_R_16BF, shape.k, shape.m, shape.b);
  lay(plan->base, CUDA_R_32F, shape.n, shape.m, {false, shape.base_stride});
  lay(plan->out, CUDA_R_32F, shape.n, shape.m, {false, shape.out_stride});

  Owned<cublasLtMatmulPreference_t, &cublasLtMatmulPreferenceDestroy> preference;
  check(cublasLtMatmulPreferenceCreate(&preference.handle), "preferring");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof value),
          "preferring");
  };
  const auto alignment = static_cast<std::uint32_t>(shape.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, plan->product.handle, plan->b.handle, plan->a.handle,
                                       plan->base.handle, plan->out.handle, preference.handle, 1,
                                       &plan->choice, &found),
        "choosing an algorithm");
  TORCH_CHECK(found == 1, "product_: cuBLASLt has no algorithm for ", shape.n, " x ", shape.k,
              " x ", shape.m);
  return plan;
}

// Plans live as long as the process: a network has a handful of shapes.
const Plan& plan_of(cublasLtHandle_t handle, const Shape& shape) {
  static std::mutex mutex;  // guards: plans
  static std::map<Shape, std::unique_ptr<Plan>> plans;
  const std::scoped_lock lock(mutex);
  std::unique_ptr<Plan>& plan = plans[shape];
  if (plan == nullptr) plan = make_plan(handle, shape);
  return *plan;
}

}  // namespace

void product_(at::Tensor& out, const std::optional<at::Tensor>& base, const at::Tensor& a_in,
              const at::Tensor& b_in) {
  if (out.numel() == 0) return;
  const bool based = base && base->defined();
  if (!dense_rows(out)) {
    at::Tensor copy = at::empty(out.sizes(), out.options());
    product_(copy, base, a_in, b_in);
    out.copy_(copy);
    return;
  }
  if (a_in.size(1) == 0) {  // no rows were multiplied: cuBLASLt has no algorithm for that
    if (!based) {
      out.zero_();
    } else if (!base->is_same(out)) {
      out.copy_(*base);
    }
    return;
  }
  const c10::cuda::CUDAGuard guard(out.device());
  const auto dense = [](const at::Tensor& m) {
    return dense_rows(m) || dense_columns(m) ? m : m.contiguous();
  };
  const at::Tensor a = dense(a_in);
  const at::Tensor b = dense(b_in);
  const at::Tensor sum = !based ? out : dense_rows(*base) ? *base : base->contiguous();
  const Shape shape{out.device().index(),
                    out.size(0),
                    out.size(1),
                    a.size(1),
                    lie_of(a),
                    lie_of(b),
                    lie_of(sum).stride,
                    lie_of(out).stride,
                    based,
                    common_alignment({a.const_data_ptr(), b.const_data_ptr(), sum.const_data_ptr(),
                                      out.const_data_ptr()})};
  const cublasLtHandle_t handle = at::cuda::getCurrentCUDABlasLtHandle();
  const Plan& plan = plan_of(handle, shape);
  // From LibTorch's allocator, in stream order: safe when captured and when streams overlap.
  const at::Tensor workspace = at::empty({kWorkspaceBytes}, out.options().dtype(at::kByte));
  const float one = 1;
  const float beta = based ? 1 : 0;
  check(cublasLtMatmul(handle, plan.product.handle, &one, b.const_data_ptr(), plan.b.handle,
                       a.const_data_ptr(), plan.a.handle, &beta, sum.const_data_ptr(),
                       plan.base.handle, out.mutable_data_ptr(), plan.out.handle, &plan.choice.algo,
                       workspace.mutable_data_ptr(), static_cast<std::size_t>(kWorkspaceBytes),
                       c10::cuda::getCurrentCUDAStream(out.device().index()).stream()),
        "multiplying");
}

}  // namespace tailor::kernels::cuda
