// Registers the operators of ops.h with the dispatcher and implements them for the CPU.
#include "model/kernels/ops.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "model/kernels/cpu_loops.h"

namespace tailor::kernels {
namespace {

using Half = std::uint16_t;

// Rows of a range below which a second thread costs more than it gives.
constexpr std::int64_t kValuesPerTask = 32768;

const Half* half_data(const at::Tensor& x) {
  return reinterpret_cast<const Half*>(x.const_data_ptr<c10::BFloat16>());
}
Half* half_data(at::Tensor& x) {
  return reinterpret_cast<Half*>(x.mutable_data_ptr<c10::BFloat16>());
}

bool is(const at::Tensor& x, at::ScalarType type) { return x.scalar_type() == type; }

bool present(const std::optional<at::Tensor>& tensor) { return tensor && tensor->defined(); }

// Runs body(begin, end) over rows of `width` values.
template <typename Body>
void over_rows(std::int64_t rows, std::int64_t width, const Body& body) {
  at::parallel_for(
      0, rows, std::max<std::int64_t>(1, kValuesPerTask / std::max<std::int64_t>(1, width)), body);
}

// ---- CPU implementations. What they do not cover (fp64 and odd layouts) is the reference's.

std::tuple<at::Tensor, at::Tensor> rms_norm_cpu(const at::Tensor& x,
                                                const std::optional<at::Tensor>& weight, double eps,
                                                at::ScalarType dtype) {
  const bool ff = is(x, at::kFloat) && dtype == at::kFloat;
  const bool fh = is(x, at::kFloat) && dtype == at::kBFloat16;
  const bool hh = is(x, at::kBFloat16) && dtype == at::kBFloat16;
  if (!(ff || fh || hh) || x.dim() != 2 || x.stride(1) != 1) {
    return reference::rms_norm(x, weight, eps, dtype);
  }
  const std::int64_t rows = x.size(0);
  const std::int64_t d = x.size(1);
  const std::int64_t stride = x.stride(0);
  at::Tensor y = at::empty({rows, d}, x.options().dtype(dtype));
  at::Tensor rstd = at::empty({rows}, x.options().dtype(at::kFloat));
  const float* w = present(weight) ? weight->const_data_ptr<float>() : nullptr;
  float* scale = rstd.mutable_data_ptr<float>();
  const auto e = static_cast<float>(eps);
  const CpuLoops& loops = cpu_loops();
  over_rows(rows, d, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t count = end - begin;
    if (ff) {
      loops.rms_norm_ff(x.const_data_ptr<float>() + begin * stride, stride, w, count, d, e,
                        y.mutable_data_ptr<float>() + begin * d, scale + begin);
    } else if (fh) {
      loops.rms_norm_fh(x.const_data_ptr<float>() + begin * stride, stride, w, count, d, e,
                        half_data(y) + begin * d, scale + begin);
    } else {
      loops.rms_norm_hh(half_data(x) + begin * stride, stride, w, count, d, e,
                        half_data(y) + begin * d, scale + begin);
    }
  });
  return {y, rstd};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward_cpu(const at::Tensor& grad_in,
                                                         const at::Tensor& x,
                                                         const std::optional<at::Tensor>& weight,
                                                         const at::Tensor& rstd,
                                                         const std::optional<at::Tensor>& skip) {
  const at::Tensor grad = grad_in.contiguous();
  const bool ff = is(x, at::kFloat) && is(grad, at::kFloat);
  const bool fh = is(x, at::kFloat) && is(grad, at::kBFloat16);
  const bool hh = is(x, at::kBFloat16) && is(grad, at::kBFloat16);
  if (!(ff || fh || hh) || x.dim() != 2 || x.stride(1) != 1) {
    return reference::rms_norm_backward(grad, x, weight, rstd, skip);
  }
  const std::int64_t rows = x.size(0);
  const std::int64_t d = x.size(1);
  const std::int64_t stride = x.stride(0);
  at::Tensor gx = at::empty({rows, d}, x.options());
  // The gradient of the gain is summed within blocks of fixed size, then over blocks in order: the
  // same bits whatever the number of threads.
  constexpr std::int64_t kBlock = 256;
  const std::int64_t blocks = (rows + kBlock - 1) / kBlock;
  const bool gain = present(weight);
  const float* w = gain ? weight->const_data_ptr<float>() : nullptr;
  at::Tensor partial = at::zeros({gain ? blocks : 0, d}, x.options().dtype(at::kFloat));
  const float* scale = rstd.const_data_ptr<float>();
  const CpuLoops& loops = cpu_loops();
  at::parallel_for(0, blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t begin = block * kBlock;
      const std::int64_t count = std::min(kBlock, rows - begin);
      float* gw = gain ? partial.mutable_data_ptr<float>() + block * d : nullptr;
      if (ff) {
        loops.rms_norm_backward_ff(
            grad.const_data_ptr<float>() + begin * d, x.const_data_ptr<float>() + begin * stride,
            stride, w, scale + begin, count, d, gx.mutable_data_ptr<float>() + begin * d, gw);
      } else if (fh) {
        loops.rms_norm_backward_fh(
            half_data(grad) + begin * d, x.const_data_ptr<float>() + begin * stride, stride, w,
            scale + begin, count, d, gx.mutable_data_ptr<float>() + begin * d, gw);
      } else {
        loops.rms_norm_backward_hh(half_data(grad) + begin * d, half_data(x) + begin * stride,
                                   stride, w, scale + begin, count, d, half_data(gx) + begin * d,
                                   gw);
      }
      // Here, where the block is still in cache.
      if (present(skip)) gx.narrow(0, begin, count).add_(skip->narrow(0, begin, count));
    }
  });
  at::Tensor grad_weight;
  if (gain) {
    grad_weight = at::zeros({d}, partial.options());
    auto* total = grad_weight.mutable_data_ptr<float>();
    const float* parts = partial.const_data_ptr<float>();
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t i = 0; i < d; ++i) total[i] += parts[block * d + i];
    }
  }
  return {gx, grad_weight};
}

at::Tensor swiglu_cpu(const at::Tensor& gate_up_in) {
  const at::Tensor gate_up = gate_up_in.contiguous();
  if (gate_up.dim() != 2 || !(is(gate_up, at::kFloat) || is(gate_up, at::kBFloat16))) {
    return reference::swiglu(gate_up);
  }
  const std::int64_t rows = gate_up.size(0);
  const std::int64_t f = gate_up.size(1) / 2;
  at::Tensor y = at::empty({rows, f}, gate_up.options());
  const CpuLoops& loops = cpu_loops();
  over_rows(rows, f, [&](std::int64_t begin, std::int64_t end) {
    if (is(gate_up, at::kFloat)) {
      loops.swiglu_f(gate_up.const_data_ptr<float>() + begin * 2 * f, end - begin, f,
                     y.mutable_data_ptr<float>() + begin * f);
    } else {
      loops.swiglu_h(half_data(gate_up) + begin * 2 * f, end - begin, f, half_data(y) + begin * f);
    }
  });
  return y;
}

at::Tensor swiglu_backward_cpu(const at::Tensor& grad_in, const at::Tensor& gate_up_in) {
  const at::Tensor gate_up = gate_up_in.contiguous();
  const at::Tensor grad = grad_in.contiguous();
  if (gate_up.dim() != 2 || !(is(gate_up, at::kFloat) || is(gate_up, at::kBFloat16))) {
    return reference::swiglu_backward(grad, gate_up);
  }
  const std::int64_t rows = gate_up.size(0);
  const std::int64_t f = gate_up.size(1) / 2;
  at::Tensor out = at::empty({rows, 2 * f}, gate_up.options());
  const CpuLoops& loops = cpu_loops();
  over_rows(rows, f, [&](std::int64_t begin, std::int64_t end) {
    if (is(gate_up, at::kFloat)) {
      loops.swiglu_backward_f(grad.const_data_ptr<float>() + begin * f,
                              gate_up.const_data_ptr<float>() + begin * 2 * f, end - begin, f,
                              out.mutable_data_ptr<float>() + begin * 2 * f);
    } else {
      loops.swiglu_backward_h(half_data(grad) + begin * f, half_data(gate_up) + begin * 2 * f,
                              end - begin, f, half_data(out) + begin * 2 * f);
    }
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split_cpu(
    const at::Tensor& qkv_in, const at::Tensor& cos, const at::Tensor& sin, std::int64_t batch,
    std::int64_t heads, std::int64_t kv_heads) {
  const at::Tensor qkv = qkv_in.contiguous();
  if (!(is(qkv, at::kFloat) || is(qkv, at::kBFloat16)) || !is(cos, at::kFloat)) {
    return reference::rope_split(qkv, cos, sin, batch, heads, kv_heads);
  }
  const RopeShape shape{qkv.size(0) / batch, heads, kv_heads, qkv.size(1) / (heads + 2 * kv_heads)};
  at::Tensor q = at::empty({batch, heads, shape.sequence, shape.head_dim}, qkv.options());
  at::Tensor k = at::empty({batch, kv_heads, shape.sequence, shape.head_dim}, qkv.options());
  at::Tensor v = at::empty({batch, kv_heads, shape.sequence, shape.head_dim}, qkv.options());
  const float* c = cos.const_data_ptr<float>();
  const float* s = sin.const_data_ptr<float>();
  const CpuLoops& loops = cpu_loops();
  over_rows(qkv.size(0), qkv.size(1), [&](std::int64_t begin, std::int64_t end) {
    if (is(qkv, at::kFloat)) {
      loops.rope_split_f(qkv.const_data_ptr<float>(), begin, end, shape, c, s,
                         q.mutable_data_ptr<float>(), k.mutable_data_ptr<float>(),
                         v.mutable_data_ptr<float>());
    } else {
      loops.rope_split_h(half_data(static_cast<const at::Tensor&>(qkv)), begin, end, shape, c, s,
                         half_data(q), half_data(k), half_data(v));
    }
  });
  return {q, k, v};
}

at::Tensor rope_merge_cpu(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                          const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor q = q_in.contiguous();
  const at::Tensor k = k_in.contiguous();
  const at::Tensor v = v_in.contiguous();
  if (!(is(q, at::kFloat) || is(q, at::kBFloat16)) || !is(cos, at::kFloat)) {
    return reference::rope_merge(q, k, v, cos, sin);
  }
  const RopeShape shape{q.size(2), q.size(1), k.size(1), q.size(3)};
  const std::int64_t rows = q.size(0) * shape.sequence;
  const std::int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  at::Tensor qkv = at::empty({rows, width}, q.options());
  const float* c = cos.const_data_ptr<float>();
  const float* s = sin.const_data_ptr<float>();
  const CpuLoops& loops = cpu_loops();
  over_rows(rows, width, [&](std::int64_t begin, std::int64_t end) {
    if (is(q, at::kFloat)) {
      loops.rope_merge_f(q.const_data_ptr<float>(), k.const_data_ptr<float>(),
                         v.const_data_ptr<float>(), begin, end, shape, c, s,
                         qkv.mutable_data_ptr<float>());
    } else {
      loops.rope_merge_h(half_data(q), half_data(k), half_data(v), begin, end, shape, c, s,
                         half_data(qkv));
    }
  });
  return qkv;
}

at::Tensor cross_entropy_cpu(at::Tensor& logits, const at::Tensor& targets_in, double scale,
                             bool with_grad, double z_loss) {
  if (!is(logits, at::kFloat) || !logits.is_contiguous()) {
    return reference::cross_entropy_(logits, targets_in, scale, with_grad, z_loss);
  }
  const at::Tensor targets = targets_in.contiguous();
  const std::int64_t rows = logits.size(0);
  const std::int64_t v = logits.size(1);
  at::Tensor loss = at::empty({rows}, logits.options().dtype(at::kDouble));
  const CpuLoops& loops = cpu_loops();
  over_rows(rows, v, [&](std::int64_t begin, std::int64_t end) {
    loops.cross_entropy_f(logits.mutable_data_ptr<float>() + begin * v,
                          targets.const_data_ptr<std::int64_t>() + begin, end - begin, v,
                          static_cast<float>(scale), with_grad, static_cast<float>(z_loss),
                          loss.mutable_data_ptr<double>() + begin);
  });
  return loss;
}

at::Tensor sum_squares_cpu(const at::Tensor& x) {
  if (!is(x, at::kFloat) || !x.is_contiguous()) return reference::sum_squares(x);
  constexpr std::int64_t kBlock = 1 << 18;
  const std::int64_t n = x.numel();
  std::vector<double> partial(static_cast<std::size_t>((n + kBlock - 1) / kBlock));
  const CpuLoops& loops = cpu_loops();
  at::parallel_for(
      0, static_cast<std::int64_t>(partial.size()), 1, [&](std::int64_t a, std::int64_t b) {
        for (std::int64_t block = a; block < b; ++block) {
          const std::int64_t begin = block * kBlock;
          partial[static_cast<std::size_t>(block)] =
              loops.sum_squares_f(x.const_data_ptr<float>() + begin, std::min(kBlock, n - begin));
        }
      });
  at::Tensor total = at::zeros({}, x.options().dtype(at::kDouble));
  for (const double value : partial) *total.mutable_data_ptr<double>() += value;
  return total;
}

// Looks an operator up once. `Signature` is the C++ type of its C++ implementations.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace

TORCH_LIBRARY(tailor, library) {
  library.def(
      "rms_norm(Tensor x, Tensor? weight, float eps, ScalarType dtype) -> (Tensor, Tensor)");
  library.def(
      "rms_norm_backward(Tensor grad, Tensor x, Tensor? weight, Tensor rstd, Tensor? skip=None) -> "
      "(Tensor, Tensor)");
  library.def("product_(Tensor(a!) out, Tensor? base, Tensor a, Tensor b) -> ()");
  library.def("swiglu(Tensor gate_up) -> Tensor");
  library.def("swiglu_backward(Tensor grad, Tensor gate_up) -> Tensor");
  library.def(
      "rope_split(Tensor qkv, Tensor cos, Tensor sin, int batch, int heads, int kv_heads) -> "
      "(Tensor, "
      "Tensor, Tensor)");
  library.def("rope_merge(Tensor q, Tensor k, Tensor v, Tensor cos, Tensor sin) -> Tensor");
  library.def(
      "cross_entropy_(Tensor(a!) logits, Tensor targets, float scale, bool with_grad, float "
      "z_loss=0) "
      "-> Tensor");
  library.def("sum_squares(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(tailor, CPU, library) {
  library.impl("rms_norm", &rms_norm_cpu);
  library.impl("rms_norm_backward", &rms_norm_backward_cpu);
  library.impl("swiglu", &swiglu_cpu);
  library.impl("swiglu_backward", &swiglu_backward_cpu);
  library.impl("rope_split", &rope_split_cpu);
  library.impl("rope_merge", &rope_merge_cpu);
  library.impl("cross_entropy_", &cross_entropy_cpu);
  library.impl("sum_squares", &sum_squares_cpu);
}

// Devices without a kernel of their own use the reference.
TORCH_LIBRARY_IMPL(tailor, CompositeExplicitAutograd, library) {
  library.impl("rms_norm", &reference::rms_norm);
  library.impl("rms_norm_backward", &reference::rms_norm_backward);
  library.impl("product_", &reference::product_);
  library.impl("swiglu", &reference::swiglu);
  library.impl("swiglu_backward", &reference::swiglu_backward);
  library.impl("rope_split", &reference::rope_split);
  library.impl("rope_merge", &reference::rope_merge);
  library.impl("cross_entropy_", &reference::cross_entropy_);
  library.impl("sum_squares", &reference::sum_squares);
}

namespace op {

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor& x,
                                            const std::optional<at::Tensor>& weight, double eps,
                                            at::ScalarType dtype) {
  static const auto handle = find<decltype(rms_norm_cpu)>("tailor::rms_norm");
  return handle.call(x, weight, eps, dtype);
}
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& x,
                                                     const std::optional<at::Tensor>& weight,
                                                     const at::Tensor& rstd,
                                                     const std::optional<at::Tensor>& skip) {
  static const auto handle = find<decltype(rms_norm_backward_cpu)>("tailor::rms_norm_backward");
  return handle.call(grad, x, weight, rstd, skip);
}
void product_(at::Tensor& out, const std::optional<at::Tensor>& base, const at::Tensor& a,
              const at::Tensor& b) {
  static const auto handle = find<decltype(reference::product_)>("tailor::product_");
  handle.call(out, base, a, b);
}
at::Tensor swiglu(const at::Tensor& gate_up) {
  static const auto handle = find<decltype(swiglu_cpu)>("tailor::swiglu");
  return handle.call(gate_up);
}
at::Tensor swiglu_backward(const at::Tensor& grad, const at::Tensor& gate_up) {
  static const auto handle = find<decltype(swiglu_backward_cpu)>("tailor::swiglu_backward");
  return handle.call(grad, gate_up);
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv,
                                                          const at::Tensor& cos,
                                                          const at::Tensor& sin, std::int64_t batch,
                                                          std::int64_t heads,
                                                          std::int64_t kv_heads) {
  static const auto handle = find<decltype(rope_split_cpu)>("tailor::rope_split");
  return handle.call(qkv, cos, sin, batch, heads, kv_heads);
}
at::Tensor rope_merge(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& cos, const at::Tensor& sin) {
  static const auto handle = find<decltype(rope_merge_cpu)>("tailor::rope_merge");
  return handle.call(q, k, v, cos, sin);
}
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& targets, double scale,
                          bool with_grad, double z_loss) {
  static const auto handle = find<decltype(cross_entropy_cpu)>("tailor::cross_entropy_");
  return handle.call(logits, targets, scale, with_grad, z_loss);
}
at::Tensor sum_squares(const at::Tensor& x) {
  static const auto handle = find<decltype(sum_squares_cpu)>("tailor::sum_squares");
  return handle.call(x);
}

}  // namespace op

at::Tensor sum_squares(const at::Tensor& x) { return op::sum_squares(x); }

}  // namespace tailor::kernels
