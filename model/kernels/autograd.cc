// Derivatives of the operators of ops.h. Only this file and linear.cc include the autograd
// machinery, which takes ten seconds to compile.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "model/kernels/ops.h"
#include "model/kernels/products.h"

namespace tailor::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Function::apply does not take undefined tensors.
std::optional<at::Tensor> optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& weight, double eps,
                            at::ScalarType dtype) {
    auto [y, rstd] = op::rms_norm(x, weight, eps, dtype);
    context->save_for_backward({x, weight.value_or(at::Tensor()), rstd});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    auto [gx, gw] = op::rms_norm_backward(grads[0], saved[0], optional_of(saved[1]), saved[2]);
    return {gx, gw, at::Tensor(), at::Tensor()};
  }
};

struct RmsNormFork : torch::autograd::Function<RmsNormFork> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& weight, double eps,
                               at::ScalarType dtype) {
    auto [y, rstd] = op::rms_norm(x, weight, eps, dtype);
    context->save_for_backward({x, weight.value_or(at::Tensor()), rstd});
    context->set_materialize_grads(false);
    return {x, y};
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[1].defined()) return {grads[0], at::Tensor(), at::Tensor(), at::Tensor()};
    const variable_list saved = context->get_saved_variables();
    auto [gx, gw] = op::rms_norm_backward(grads[1], saved[0], optional_of(saved[1]), saved[2],
                                          optional_of(grads[0]));
    return {gx, gw, at::Tensor(), at::Tensor()};
  }
};

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up) {
    context->save_for_backward({gate_up});
    return op::swiglu(gate_up);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {op::swiglu_backward(grads[0], context->get_saved_variables()[0])};
  }
};

struct RopeSplit : torch::autograd::Function<RopeSplit> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv,
                               const at::Tensor& cos, const at::Tensor& sin, std::int64_t batch,
                               std::int64_t heads, std::int64_t kv_heads) {
    context->save_for_backward({cos, sin});
    auto [q, k, v] = op::rope_split(qkv, cos, sin, batch, heads, kv_heads);
    return {q, k, v};
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    return {op::rope_merge(grads[0], grads[1], grads[2], saved[0], saved[1]),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }
};

// Rows of scores held at once: `wanted`, or those of 4 million scores on a CPU (16 MiB; fewer rows
// pack W and pass over its gradient too often), and of 268 million (512 MiB of bf16) on a GPU,
// where products should be large.
std::int64_t rows_of_chunk(std::int64_t wanted, const at::Tensor& weight_vd) {
  if (wanted > 0) return wanted;
  const bool cpu = weight_vd.is_cpu();
  return std::clamp<std::int64_t>((1 << (cpu ? 22 : 28)) / weight_vd.size(0), cpu ? 128 : 64,
                                  cpu ? 4096 : 65536);
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in,
                            const at::Tensor& weight_in, const std::optional<at::Tensor>& leaf,
                            const at::Tensor& targets, double scale, std::int64_t chunk_rows,
                            double z_loss, bool with_grad) {
    // Widened once here, not chunk by chunk.
    const bool wide = widened(x_in);
    const at::Tensor x = wide ? x_in.to(at::kFloat) : x_in;
    const at::Tensor weight = wide ? weight_in.to(at::kFloat) : weight_in;
    const std::int64_t rows = x.size(0);
    const std::int64_t chunk = rows_of_chunk(chunk_rows, weight);
    const bool low = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
    at::Tensor gx;
    at::Tensor gw;
    if (with_grad) {
      gx = at::empty_like(x);
      // Summed in fp32 over the chunks, also when the products are bf16.
      gw = at::zeros(weight.sizes(),
                     weight.options().dtype(low ? at::kFloat : weight.scalar_type()));
    }
    at::Tensor total = at::zeros({}, x.options().dtype(at::kDouble));
    at::Tensor all_scores = at::empty({std::min(chunk, rows), weight.size(0)}, x.options());
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
      const std::int64_t count = std::min(chunk, rows - begin);
      const at::Tensor x_c = x.narrow(0, begin, count);
      at::Tensor product = all_scores.narrow(0, 0, count);
      multiply_into(product, x_c, weight.t(), /*add=*/false);
      // The kernel widens bf16 scores itself and leaves the gradient in their place.
      const at::Tensor losses =
          op::cross_entropy_(product, targets.narrow(0, begin, count), scale, with_grad, z_loss);
      total.add_(losses.sum());
      if (!with_grad) continue;
      at::Tensor gx_c = gx.narrow(0, begin, count);
      multiply_backward(gx_c, gw, product, x_c, weight);
    }
    if (with_grad) {
      context->save_for_backward(
          {gx.to(x_in.scalar_type()), leaf ? gw : gw.to(weight_in.scalar_type())});
      context->saved_data["leaf"] = leaf.has_value();
    }
    return total * scale;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const bool leaf = context->saved_data["leaf"].toBool();
    at::Tensor gx = saved[0];
    at::Tensor gw = saved[1];
    // As the root of a backward pass the factor is one: no pass over the gradients then.
    const bool unit = grads[0].device().is_cpu() && grads[0].item<double>() == 1.0;
    if (!unit) {
      gx = gx * grads[0].to(gx.scalar_type());
      gw = gw * grads[0].to(gw.scalar_type());
    }
    return {gx,
            leaf ? at::Tensor() : gw,
            leaf ? gw : at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x_nd, const at::Tensor& weight_d, double eps,
                    at::ScalarType dtype) {
  return RmsNorm::apply(x_nd, optional_of(weight_d), eps, dtype);
}

std::tuple<at::Tensor, at::Tensor> rms_norm_fork(const at::Tensor& x_nd, const at::Tensor& weight_d,
                                                 double eps, at::ScalarType dtype) {
  variable_list out = RmsNormFork::apply(x_nd, optional_of(weight_d), eps, dtype);
  return {out[0], out[1]};
}

at::Tensor swiglu(const at::Tensor& gate_up_n2f) { return Swiglu::apply(gate_up_n2f); }

std::tuple<at::Tensor, at::Tensor, at::Tensor> rope_split(const at::Tensor& qkv_n,
                                                          const at::Tensor& cos,
                                                          const at::Tensor& sin, std::int64_t batch,
                                                          std::int64_t heads,
                                                          std::int64_t kv_heads) {
  variable_list out = RopeSplit::apply(qkv_n, cos, sin, batch, heads, kv_heads);
  return {out[0], out[1], out[2]};
}

at::Tensor linear_cross_entropy(const at::Tensor& x_nd, const at::Tensor& weight_vd,
                                const at::Tensor& targets_n, double scale, std::int64_t chunk_rows,
                                double z_loss, const at::Tensor& leaf_vd) {
  const bool with_grad =
      c10::GradMode::is_enabled() && (x_nd.requires_grad() || weight_vd.requires_grad() ||
                                      (leaf_vd.defined() && leaf_vd.requires_grad()));
  return LinearCrossEntropy::apply(x_nd, weight_vd, optional_of(leaf_vd), targets_n, scale,
                                   chunk_rows, z_loss, with_grad);
}

at::Tensor linear_row_losses(const at::Tensor& x_nd, const at::Tensor& weight_vd,
                             const at::Tensor& targets_n, std::int64_t chunk_rows) {
  const c10::NoGradGuard no_grad;
  const bool wide = widened(x_nd);
  const at::Tensor x = wide ? x_nd.to(at::kFloat) : x_nd;
  const at::Tensor weight = wide ? weight_vd.to(at::kFloat) : weight_vd;
  const std::int64_t rows = x.size(0);
  const std::int64_t chunk = rows_of_chunk(chunk_rows, weight);
  at::Tensor losses = at::empty({rows}, x_nd.options().dtype(at::kDouble));
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    at::Tensor scores = at::mm(x.narrow(0, begin, count), weight.t());
    losses.narrow(0, begin, count)
        .copy_(op::cross_entropy_(scores, targets_n.narrow(0, begin, count), 1.0, false));
  }
  return losses;
}

}  // namespace tailor::kernels
