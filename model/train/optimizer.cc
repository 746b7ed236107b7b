#include "model/train/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "model/kernels/ops.h"

namespace tailor::train {

AdamW::AdamW(net::ParameterSet& parameters, const protocol::OptimizerSpec& spec)
    : parameters_(parameters), spec_(spec) {
  const auto options = parameters.flat().options().requires_grad(false);
  m_ = at::zeros({parameters.size()}, options);
  v_ = at::zeros({parameters.size()}, options);
  matrix_step_ = at::zeros({}, options);
  vector_step_ = at::zeros({}, options);
  bad_ = at::zeros({}, options);
  if (!parameters.flat().device().is_cpu()) device_rate_ = at::zeros({}, options);
}

void AdamW::set_rate(double lr) {
  rate_ = lr;
  if (device_rate_.defined()) device_rate_.fill_(lr);
}

void AdamW::set_steps(std::int64_t steps) {
  steps_ = steps;
  matrix_step_.fill_(static_cast<double>(steps));
  vector_step_.fill_(static_cast<double>(steps));
}

at::Tensor AdamW::step(double lr, const at::Tensor& loss) {
  set_rate(lr);
  const at::Tensor numbers = update(loss);
  count_step();
  return numbers;
}

at::Tensor AdamW::update(const at::Tensor& loss) {
  const c10::NoGradGuard no_grad;
  at::Tensor gradient = parameters_.gradient();
  const at::Tensor norm = kernels::sum_squares(gradient).sqrt_();
  const at::Tensor numbers = at::stack({loss.detach(), norm});
  // x - x is 0 for finite numbers, NaN otherwise.
  at::maximum_out(bad_, bad_, (numbers - numbers).ne(0).any().to(at::kFloat));
  if (spec_.clip > 0) {
    gradient.mul_((norm + 1e-6).reciprocal_().mul_(spec_.clip).clamp_max_(1.0).to(at::kFloat));
  }
  const auto update_group = [&](std::int64_t begin, std::int64_t count, at::Tensor& step,
                                double decay) {
    if (count == 0) return;
    step.add_(1);
    at::Tensor weight = parameters_.flat().narrow(0, begin, count);
    at::Tensor grad = gradient.narrow(0, begin, count);
    at::Tensor m = m_.narrow(0, begin, count);
    at::Tensor v = v_.narrow(0, begin, count);
    const auto adamw = [&](const auto& rate) {
      at::_fused_adamw_({weight}, {grad}, {m}, {v}, {}, {step}, rate, spec_.beta1, spec_.beta2,
                        decay, spec_.eps, /*amsgrad=*/false, /*maximize=*/false, std::nullopt,
                        bad_);
    };
    device_rate_.defined() ? adamw(device_rate_) : adamw(rate_);
  };
  const std::int64_t matrices = parameters_.matrix_size();
  update_group(0, matrices, matrix_step_, spec_.weight_decay);
  update_group(matrices, parameters_.size() - matrices, vector_step_, 0.0);
  parameters_.refresh();
  return numbers;
}

}  // namespace tailor::train
