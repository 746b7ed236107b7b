// The derivatives of linear.h.
#include "model/kernels/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/kernels/ops.h"
#include "model/kernels/products.h"

namespace tailor::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Where the gradient of a leaf is kept, or undefined.
at::Tensor kept_gradient(const at::Tensor& weight) {
  if (!weight.is_leaf()) return at::Tensor();
  const at::Tensor& kept = weight.grad();
  return kept.defined() && kept.sizes() == weight.sizes() ? kept : at::Tensor();
}

struct Linear : torch::autograd::Function<Linear> {
  // `base` undefined: x W^T; else base + x W^T.
  // `working` is what is multiplied, without a gradient.
  static at::Tensor forward(AutogradContext* context, const std::optional<at::Tensor>& base,
                            const at::Tensor& x_in, const at::Tensor& weight,
                            const at::Tensor& working, at::ScalarType out) {
    const at::Tensor x = x_in.to(working.scalar_type());
    at::Tensor y;
    if (base) {
      y = at::empty_like(*base, at::MemoryFormat::Contiguous);
      add_product(y, *base, x, working.t());
    } else {
      y = at::empty({x.size(0), working.size(0)}, x.options().dtype(out));
      multiply_into(y, x, working.t(), /*add=*/false);
    }
    context->save_for_backward({x, working, weight});
    context->saved_data["x_type"] = static_cast<std::int64_t>(x_in.scalar_type());
    context->saved_data["based"] = base.has_value();
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& working = saved[1];
    const at::Tensor& weight = saved[2];
    const auto x_type = static_cast<at::ScalarType>(context->saved_data["x_type"].toInt());
    const bool based = context->saved_data["based"].toBool();
    // Inputs are counted without an absent base.
    const std::size_t first = based ? 1 : 0;
    const at::Tensor g = widened(working) ? grads[0] : grads[0].to(working.scalar_type());
    at::Tensor gx;
    if (context->needs_input_grad(first)) gx = at::empty_like(x, x.options().dtype(x_type));
    at::Tensor gw;
    if (context->needs_input_grad(first + 1)) {
      const at::Tensor kept = kept_gradient(weight);
      at::Tensor sum = kept.defined() ? kept : at::zeros_like(weight);
      multiply_backward(gx, sum, g, x, working);
      if (!kept.defined()) gw = sum;
    } else if (gx.defined()) {
      multiply_into(gx, g.to(working.scalar_type()), working, /*add=*/false);
    }
    return {based ? grads[0] : at::Tensor(), gx, gw, at::Tensor(), at::Tensor()};
  }
};

struct Embed : torch::autograd::Function<Embed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& weight) {
    context->save_for_backward({tokens, weight});
    return at::embedding(weight, tokens);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor kept = kept_gradient(saved[1]);
    at::Tensor sum = kept.defined() ? kept : at::zeros_like(saved[1]);
    op::embed_backward_(sum, grads[0], saved[0]);
    return {at::Tensor(), kept.defined() ? at::Tensor() : sum};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x_nk, const at::Tensor& weight_mk, const at::Tensor& working) {
  return Linear::apply(std::nullopt, x_nk, weight_mk, working.detach(), working.scalar_type());
}

at::Tensor linear_widened(const at::Tensor& x_nk, const at::Tensor& weight_mk,
                          const at::Tensor& working) {
  return Linear::apply(std::nullopt, x_nk, weight_mk, working.detach(),
                       widened(working) ? at::kFloat : working.scalar_type());
}

at::Tensor linear_onto(const at::Tensor& base_nm, const at::Tensor& x_nk,
                       const at::Tensor& weight_mk, const at::Tensor& working) {
  return Linear::apply(std::optional<at::Tensor>(base_nm), x_nk, weight_mk, working.detach(),
                       base_nm.scalar_type());
}

at::Tensor embed(const at::Tensor& tokens_n, const at::Tensor& weight_vd) {
  // A GPU sorts the tokens first; LibTorch does that.
  const bool here = weight_vd.is_cpu() && weight_vd.scalar_type() == at::kFloat &&
                    weight_vd.is_contiguous() && tokens_n.scalar_type() == at::kLong;
  return here ? Embed::apply(tokens_n, weight_vd) : at::embedding(weight_vd, tokens_n);
}

}  // namespace tailor::kernels
