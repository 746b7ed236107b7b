// Operators on the CPU, over the loops of cpu_loops.h. ops.cc has checked types and shapes; what is
// left here is how a matrix lies in memory: where rows must be dense and are not, a copy is made.
#include "model/kernels/ops_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "model/kernels/adamw.h"
#include "model/kernels/cpu_loops.h"
#include "model/kernels/products.h"

namespace tailor::kernels {
namespace {

// Rows of a range below which a second thread costs more than it gives.
constexpr std::int64_t kValuesPerTask = 32768;

// The values as the loops take them: float, or the 16 bits of bf16.
template <typename T>
const T* values(const at::Tensor& x) {
  if constexpr (std::is_same_v<T, float>) {
    return x.const_data_ptr<float>();
  } else {
    return reinterpret_cast<const T*>(x.const_data_ptr<c10::BFloat16>());
  }
}
template <typename T>
T* values(at::Tensor& x) {
  if constexpr (std::is_same_v<T, float>) {
    return x.mutable_data_ptr<float>();
  } else {
    return reinterpret_cast<T*>(x.mutable_data_ptr<c10::BFloat16>());
  }
}

constexpr at::ScalarType scalar(Type type) {
  return type == Type::bf16 ? at::kBFloat16 : at::kFloat;
}

bool has(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

const float* gains(const std::optional<at::Tensor>& weight) {
  return has(weight) ? weight->const_data_ptr<float>() : nullptr;
}

at::Tensor dense_rows(const at::Tensor& x) { return x.stride(1) == 1 ? x : x.contiguous(); }

// Runs body(begin, end) over rows of `width` values.
template <typename Body>
void over_rows(std::int64_t rows, std::int64_t width, const Body& body) {
  at::parallel_for(
      0, rows, std::max<std::int64_t>(1, kValuesPerTask / std::max<std::int64_t>(1, width)), body);
}

// In each operator TAILOR_CASE returns run(loop) with the loop of the call's types, from the lists
// of op_table.h. ops.cc lets no other types through.
[[noreturn]] void no_loop(const char* name) {
  TORCH_INTERNAL_ASSERT(false, "tailor::", name, " has no loop for types that its table lists");
}

namespace cpu {

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x_in,
                                            const std::optional<at::Tensor>& weight_in, double eps,
                                            at::ScalarType dtype) {
  const at::Tensor x = dense_rows(x_in);
  const std::optional<at::Tensor> weight =
      has(weight_in) ? std::optional(weight_in->contiguous()) : std::nullopt;
  const auto run = [&]<typename X, typename Y>(void (*loop)(
                       const X*, std::int64_t, const float*, std::int64_t, std::int64_t, float, Y*,
                       float*)) -> std::tuple<at::Tensor, at::Tensor> {
    const std::int64_t rows = x.size(0);
    const std::int64_t d = x.size(1);
    const std::int64_t stride = x.stride(0);
    at::Tensor y = at::empty({rows, d}, x.options().dtype(dtype));
    at::Tensor rstd = at::empty({rows}, x.options().dtype(at::kFloat));
    const X* from = values<X>(x);
    Y* to = values<Y>(y);
    auto* scale = rstd.mutable_data_ptr<float>();
    over_rows(rows, d, [&](std::int64_t begin, std::int64_t end) {
      loop(from + begin * stride, stride, gains(weight), end - begin, d, static_cast<float>(eps),
           to + begin * d, scale + begin);
    });
    return {y, rstd};
  };
#define TAILOR_CASE(X, Y)                                               \
  if (x.scalar_type() == scalar(Type::X) && dtype == scalar(Type::Y)) { \
    return run(cpu_loops().rms_norm_##X##_##Y);                         \
  }
  TAILOR_NORM_TYPES(TAILOR_CASE)
#undef TAILOR_CASE
  no_loop("rms_norm");
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad_in,
                                                     const at::Tensor& x_in,
                                                     const std::optional<at::Tensor>& weight_in,
                                                     const at::Tensor& rstd_in,
                                                     const std::optional<at::Tensor>& skip_in) {
  const at::Tensor grad = grad_in.contiguous();
  const at::Tensor x = dense_rows(x_in);
  const at::Tensor rstd = rstd_in.contiguous();
  const at::Tensor skip = has(skip_in) ? dense_rows(*skip_in) : at::Tensor();
  const std::optional<at::Tensor> weight =
      has(weight_in) ? std::optional(weight_in->contiguous()) : std::nullopt;
  const auto run = [&]<typename X, typename Y>(
                       void (*loop)(const Y*, const X*, std::int64_t, const float*, const float*,
                                    const X*, std::int64_t, std::int64_t, std::int64_t, X*,
                                    float*)) -> std::tuple<at::Tensor, at::Tensor> {
    const std::int64_t rows = x.size(0);
    const std::int64_t d = x.size(1);
    const std::int64_t stride = x.stride(0);
    at::Tensor gx = at::empty({rows, d}, x.options());
    // The gradient of the gain is summed within blocks of fixed size, then over blocks in order:
    // the same bits whatever the number of threads.
    constexpr std::int64_t kBlock = 256;
    const std::int64_t blocks = (rows + kBlock - 1) / kBlock;
    const bool gain = has(weight);
    at::Tensor partial = at::zeros({gain ? blocks : 0, d}, x.options().dtype(at::kFloat));
    const Y* of_y = values<Y>(grad);
    const X* from = values<X>(x);
    const X* past = skip.defined() ? values<X>(std::as_const(skip)) : nullptr;
    const std::int64_t past_stride = skip.defined() ? skip.stride(0) : 0;
    const auto* scale = rstd.const_data_ptr<float>();
    X* to = values<X>(gx);
    auto* parts = partial.mutable_data_ptr<float>();
    at::parallel_for(0, blocks, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        const std::int64_t begin = block * kBlock;
        loop(of_y + begin * d, from + begin * stride, stride, gains(weight), scale + begin,
             past != nullptr ? past + begin * past_stride : nullptr, past_stride,
             std::min(kBlock, rows - begin), d, to + begin * d, gain ? parts + block * d : nullptr);
      }
    });
    at::Tensor grad_weight;
    if (gain) {
      grad_weight = at::zeros({d}, partial.options());
      auto* total = grad_weight.mutable_data_ptr<float>();
      for (std::int64_t block = 0; block < blocks; ++block) {
        for (std::int64_t i = 0; i < d; ++i) total[i] += parts[block * d + i];
      }
    }
    return {gx, grad_weight};
  };
#define TAILOR_CASE(X, Y)                                                            \
  if (x.scalar_type() == scalar(Type::X) && grad.scalar_type() == scalar(Type::Y)) { \
    return run(cpu_loops().rms_norm_backward_##X##_##Y);                             \
  }
  TAILOR_NORM_TYPES(TAILOR_CASE)
#undef TAILOR_CASE
  no_loop("rms_norm_backward");
}

void product_(at::Tensor& out, const std::optional<at::Tensor>& base, const at::Tensor& a,
              const at::Tensor& b) {
  product_cpu(out, base, a, b);
}

at::Tensor swiglu(const at::Tensor& gate_up_in) {
  const at::Tensor gate_up = gate_up_in.contiguous();
  const auto run = [&]<typename X>(void (*loop)(const X*, std::int64_t, std::int64_t, X*)) {
    const std::int64_t rows = gate_up.size(0);
    const std::int64_t f = gate_up.size(1) / 2;
    at::Tensor y = at::empty({rows, f}, gate_up.options());
    const X* from = values<X>(gate_up);
    X* to = values<X>(y);
    over_rows(rows, f, [&](std::int64_t begin, std::int64_t end) {
      loop(from + begin * 2 * f, end - begin, f, to + begin * f);
    });
    return y;
  };
#define TAILOR_CASE(X, Y) \
  if (gate_up.scalar_type() == scalar(Type::X)) return run(cpu_loops().swiglu_##X);
  TAILOR_ONE_TYPE(TAILOR_CASE)
#undef TAILOR_CASE
  no_loop("swiglu");
}

at::Tensor swiglu_backward(const at::Tensor& grad_in, const at::Tensor& gate_up_in) {
  const at::Tensor gate_up = gate_up_in.contiguous();
  const at::Tensor grad = grad_in.contiguous();
  const auto run =
      [&]<typename X>(void (*loop)(const X*, const X*, std::int64_t, std::int64_t, X*)) {
        const std::int64_t rows = gate_up.size(0);
        const std::int64_t f = gate_up.size(1) / 2;
        at::Tensor out = at::empty({rows, 2 * f}, gate_up.options());
        const X* of_y = values<X>(grad);
        const X* from = values<X>(gate_up);
        X* to = values<X>(out);
        over_rows(rows, f, [&](std::int64_t begin, std::int64_t end) {
          loop(of_y + begin * f, from + begin * 2 * f, end - begin, f, to + begin * 2 * f);
        });
        return out;
      };
#define TAILOR_CASE(X, Y) \
  if (gate_up.scalar_type() == scalar(Type::X)) return run(cpu_loops().swiglu_backward_##X);
  TAILOR_ONE_TYPE(TAILOR_CASE)
#undef TAILOR_CASE
  no_loop("swiglu_backward");
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv_in,
                                                          const at::Tensor& cos_in,
                                                          const at::Tensor& sin_in,
                                                          std::int64_t batch, std::int64_t heads,
                                                          std::int64_t kv_heads) {
  const at::Tensor qkv = qkv_in.contiguous();
  const at::Tensor cos = cos_in.contiguous();
  const at::Tensor sin = sin_in.contiguous();
  using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  const auto run = [&]<typename X>(void (*loop)(const X*, std::int64_t, std::int64_t, RopeShape,
                                                const float*, const float*, X*, X*, X*)) -> Result {
    const RopeShape shape{cos.size(0), heads, kv_heads, 2 * cos.size(1)};
    const auto make = [&](std::int64_t count) {
      return at::empty({batch, count, shape.sequence, shape.head_dim}, qkv.options());
    };
    at::Tensor q = make(heads);
    at::Tensor k = make(kv_heads);
    at::Tensor v = make(kv_heads);
    const X* from = values<X>(qkv);
    X* to_q = values<X>(q);
    X* to_k = values<X>(k);
    X* to_v = values<X>(v);
    over_rows(qkv.size(0), qkv.size(1), [&](std::int64_t begin, std::int64_t end) {
      loop(from, begin, end, shape, cos.const_data_ptr<float>(), sin.const_data_ptr<float>(), to_q,
           to_k, to_v);
    });
    return {q, k, v};
  };
#define TAILOR_CASE(X, Y) \
  if (qkv.scalar_type() == scalar(Type::X)) return run(cpu_loops().rope_split_##X);
  TAILOR_ONE_TYPE(TAILOR_CASE)
#undef TAILOR_CASE
  no_loop("rope_split");
}

at::Tensor rope_merge(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                      const at::Tensor& cos_in, const at::Tensor& sin_in) {
  const at::Tensor q = q_in.contiguous();
  const at::Tensor k = k_in.contiguous();
  const at::Tensor v = v_in.contiguous();
  const at::Tensor cos = cos_in.contiguous();
  const at::Tensor sin = sin_in.contiguous();
  const auto run = [&]<typename X>(void (*loop)(const X*, const X*, const X*, std::int64_t,
                                                std::int64_t, RopeShape, const float*, const float*,
                                                X*)) {
    const RopeShape shape{q.size(2), q.size(1), k.size(1), q.size(3)};
    const std::int64_t rows = q.size(0) * shape.sequence;
    const std::int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    at::Tensor qkv = at::empty({rows, width}, q.options());
    const X* from_q = values<X>(q);
    const X* from_k = values<X>(k);
    const X* from_v = values<X>(v);
    X* to = values<X>(qkv);
    over_rows(rows, width, [&](std::int64_t begin, std::int64_t end) {
      loop(from_q, from_k, from_v, begin, end, shape, cos.const_data_ptr<float>(),
           sin.const_data_ptr<float>(), to);
    });
    return qkv;
  };
#define TAILOR_CASE(X, Y) \
  if (q.scalar_type() == scalar(Type::X)) return run(cpu_loops().rope_merge_##X);
  TAILOR_ONE_TYPE(TAILOR_CASE)
#undef TAILOR_CASE
  no_loop("rope_merge");
}

at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets_in, double scale,
                          bool with_grad, double z_loss) {
  const at::Tensor targets = targets_in.contiguous();
  const auto run = [&]<typename X>(void (*loop)(X*, const std::int64_t*, std::int64_t, std::int64_t,
                                                float, bool, float, double*)) {
    const std::int64_t rows = logits.size(0);
    const std::int64_t v = logits.size(1);
    at::Tensor loss = at::empty({rows}, logits.options().dtype(at::kDouble));
    X* scores = values<X>(logits);
    const auto* target = targets.const_data_ptr<std::int64_t>();
    auto* to = loss.mutable_data_ptr<double>();
    over_rows(rows, v, [&](std::int64_t begin, std::int64_t end) {
      loop(scores + begin * v, target + begin, end - begin, v, static_cast<float>(scale), with_grad,
           static_cast<float>(z_loss), to + begin);
    });
    return loss;
  };
  // In place, and the loops take dense rows one behind the other: others are copied and put back.
  if (!logits.is_contiguous()) {
    at::Tensor dense = logits.contiguous();
    const at::Tensor loss = cross_entropy_(dense, targets, scale, with_grad, z_loss);
    if (with_grad) logits.copy_(dense);
    return loss;
  }
#define TAILOR_CASE(X, Y) \
  if (logits.scalar_type() == scalar(Type::X)) return run(cpu_loops().cross_entropy_##X);
  TAILOR_ONE_TYPE(TAILOR_CASE)
#undef TAILOR_CASE
  no_loop("cross_entropy_");
}

at::Tensor sum_squares(const at::Tensor& x_in) {
  const at::Tensor x = x_in.contiguous();
  constexpr std::int64_t kBlock = 1 << 18;
  const std::int64_t n = x.numel();
  std::vector<double> partial(static_cast<std::size_t>((n + kBlock - 1) / kBlock));
  const CpuLoops& loops = cpu_loops();
  const auto* from = x.const_data_ptr<float>();
  at::parallel_for(0, static_cast<std::int64_t>(partial.size()), 1,
                   [&](std::int64_t a, std::int64_t b) {
                     for (std::int64_t block = a; block < b; ++block) {
                       const std::int64_t begin = block * kBlock;
                       partial[static_cast<std::size_t>(block)] =
                           loops.sum_squares(from + begin, std::min(kBlock, n - begin));
                     }
                   });
  at::Tensor total = at::zeros({}, x.options().dtype(at::kDouble));
  for (const double value : partial) *total.mutable_data_ptr<double>() += value;
  return total;
}

void adamw_(at::Tensor& w, const at::Tensor& g, at::Tensor& m, at::Tensor& v,
            const std::optional<at::Tensor>& low, double lr, double beta1, double beta2, double eps,
            double decay, double gradient_scale, std::int64_t t) {
  at::Tensor rounded = has(low) ? *low : at::Tensor();
  adamw_loops(w, g, m, v, rounded, {lr, beta1, beta2, eps, decay, gradient_scale, t});
}

void embed_backward_(at::Tensor& sum, const at::Tensor& grad_in, const at::Tensor& tokens_in) {
  TORCH_CHECK(sum.is_contiguous(), "tailor::embed_backward_ adds to a dense matrix");
  const at::Tensor tokens = tokens_in.contiguous();
  const at::Tensor grad = grad_in.contiguous();
  const std::int64_t d = grad.size(1);
  const auto* token = tokens.const_data_ptr<std::int64_t>();
  const auto* from = grad.const_data_ptr<float>();
  auto* to = sum.mutable_data_ptr<float>();
  for (std::int64_t row = 0; row < tokens.size(0); ++row, from += d) {
    float* sum_row = to + token[row] * d;
    for (std::int64_t i = 0; i < d; ++i) sum_row[i] += from[i];
  }
}

}  // namespace cpu
}  // namespace

void register_cpu_operators(torch::Library& library) {
#define TAILOR_CASE(NAME) library.impl(#NAME, &cpu::NAME);
  TAILOR_OPERATORS(TAILOR_CASE)
#undef TAILOR_CASE
}

}  // namespace tailor::kernels
