// Derivatives of the operators of ops.h. The only file that includes the autograd machinery, which
// takes ten seconds to compile.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "model/kernels/ops.h"

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

// Rows of scores held at once: `wanted`, or about half a million scores.
std::int64_t rows_of_chunk(std::int64_t wanted, const at::Tensor& weight_vd) {
  return wanted > 0 ? wanted : std::clamp<std::int64_t>((1 << 19) / weight_vd.size(0), 64, 4096);
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& targets, double scale, std::int64_t chunk_rows,
                            double z_loss, bool with_grad) {
    const std::int64_t rows = x.size(0);
    const std::int64_t chunk = rows_of_chunk(chunk_rows, weight);
    const at::Tensor weight_dv = weight.t();
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
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
      const std::int64_t count = std::min(chunk, rows - begin);
      const at::Tensor x_c = x.narrow(0, begin, count);
      at::Tensor scores = at::mm(x_c, weight_dv);
      if (low) scores = scores.to(at::kFloat);
      const at::Tensor losses =
          op::cross_entropy_(scores, targets.narrow(0, begin, count), scale, with_grad, z_loss);
      total.add_(losses.sum());
      if (!with_grad) continue;
      if (low) {
        const at::Tensor grad = scores.to(x.scalar_type());
        gx.narrow(0, begin, count).copy_(at::mm(grad, weight));
        gw.add_(at::mm(grad.t(), x_c));
      } else {
        at::Tensor gx_c = gx.narrow(0, begin, count);
        at::mm_out(gx_c, scores, weight);
        gw.addmm_(scores.t(), x_c);
      }
    }
    if (with_grad) context->save_for_backward({gx, low ? gw.to(weight.scalar_type()) : gw});
    return total * scale;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor gx = saved[0];
    at::Tensor gw = saved[1];
    // As the root of a backward pass the factor is one: no pass over the gradients then.
    const bool unit = grads[0].device().is_cpu() && grads[0].item<double>() == 1.0;
    if (!unit) {
      gx = gx * grads[0].to(gx.scalar_type());
      gw = gw * grads[0].to(gw.scalar_type());
    }
    return {gx, gw, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x_nd, const at::Tensor& weight_d, double eps,
                    at::ScalarType dtype) {
  return RmsNorm::apply(x_nd, optional_of(weight_d), eps, dtype);
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
                                double z_loss) {
  const bool with_grad =
      c10::GradMode::is_enabled() && (x_nd.requires_grad() || weight_vd.requires_grad());
  return LinearCrossEntropy::apply(x_nd, weight_vd, targets_n, scale, chunk_rows, z_loss,
                                   with_grad);
}

at::Tensor linear_row_losses(const at::Tensor& x_nd, const at::Tensor& weight_vd,
                             const at::Tensor& targets_n, std::int64_t chunk_rows) {
  const c10::NoGradGuard no_grad;
  const std::int64_t rows = x_nd.size(0);
  const std::int64_t chunk = rows_of_chunk(chunk_rows, weight_vd);
  at::Tensor losses = at::empty({rows}, x_nd.options().dtype(at::kDouble));
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t count = std::min(chunk, rows - begin);
    at::Tensor scores = at::mm(x_nd.narrow(0, begin, count), weight_vd.t());
    if (scores.scalar_type() != at::kDouble) scores = scores.to(at::kFloat);
    losses.narrow(0, begin, count)
        .copy_(op::cross_entropy_(scores, targets_n.narrow(0, begin, count), 1.0, false));
  }
  return losses;
}

}  // namespace tailor::kernels
