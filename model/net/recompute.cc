#include "model/net/recompute.h"

#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "base/check.h"

namespace tailor::net {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LayerCall : torch::CustomClassHolder {
  explicit LayerCall(std::function<at::Tensor(const at::Tensor&)> f) : forward(std::move(f)) {}
  std::function<at::Tensor(const at::Tensor&)> forward;
};

struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<LayerCall>& layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = c10::IValue::make_capsule(layer);
    return layer->forward(x);  // gradients are off in here: nothing is kept
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    const auto held = context->saved_data["layer"].toCapsule();
    const c10::AutoGradMode with_graph(true);
    static_cast<const LayerCall&>(*held).forward(x).backward(grads[0]);
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recomputed(std::function<at::Tensor(const at::Tensor& x_nd)> layer,
                      const at::Tensor& x_nd) {
  TAILOR_CHECK(c10::GradMode::is_enabled() && x_nd.requires_grad());
  return Recomputed::apply(x_nd, c10::make_intrusive<LayerCall>(std::move(layer)));
}

}  // namespace tailor::net
