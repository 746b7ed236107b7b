#include "model/train/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "model/kernels/adamw.h"
#include "model/kernels/ops.h"

namespace tailor::train {

AdamW::AdamW(net::ParameterSet& parameters, const protocol::OptimizerSpec& spec,
             const LrFactor& factor, std::int64_t skip_limit)
    : parameters_(parameters), spec_(spec), skip_limit_(skip_limit) {
  const auto options = parameters.flat().options().requires_grad(false);
  m_ = at::zeros({parameters.size()}, options);
  v_ = at::zeros({parameters.size()}, options);
  step_ = at::zeros({}, options);
  skipped_ = at::zeros({}, options);
  bad_ = at::zeros({}, options);
  // Neighbours of one rate and decay make one slice: a buffer without factors has two.
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double rate = 1;
  bool decayed = false;
  for (const net::Part* part : parameters.parts()) {
    const double wanted = factor ? factor(*part) : 1.0;
    if (end > begin && (wanted != rate || (part->cols > 0) != decayed)) {
      add_slice(begin, end - begin, rate, decayed);
      begin = end;
    }
    rate = wanted;
    decayed = part->cols > 0;
    end = part->offset + part->size();
  }
  if (end > begin) add_slice(begin, end - begin, rate, decayed);
}

void AdamW::add_slice(std::int64_t begin, std::int64_t count, double factor, bool decayed) {
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& other) {
    return other.factor == factor && other.decayed == decayed;
  });
  if (group == groups_.end()) {
    groups_.emplace_back();
    group = groups_.end() - 1;
    group->factor = factor;
    group->decayed = decayed;
    if (!m_.device().is_cpu()) group->device_rate = at::zeros({}, m_.options());
  }
  const c10::NoGradGuard no_grad;
  at::Tensor gradient = parameters_.gradient();
  group->weights.push_back(parameters_.flat().narrow(0, begin, count));
  group->gradients.push_back(gradient.narrow(0, begin, count));
  group->m.push_back(m_.narrow(0, begin, count));
  group->v.push_back(v_.narrow(0, begin, count));
  group->steps.push_back(step_);
  const bool rounded = decayed && parameters_.low().defined();
  group->low.push_back(rounded ? parameters_.low().narrow(0, begin, count) : at::Tensor());
}

void AdamW::set_rate(double lr) {
  rate_ = lr;
  for (Group& group : groups_) {
    if (group.device_rate.defined()) group.device_rate.fill_(lr * group.factor);
  }
}

void AdamW::set_steps(std::int64_t steps, std::int64_t skipped) {
  steps_ = steps;
  step_.fill_(static_cast<double>(steps - skipped));
  skipped_.fill_(static_cast<double>(skipped));
}

at::Tensor AdamW::step(double lr, const at::Tensor& loss) {
  set_rate(lr);
  const at::Tensor numbers = update(loss);
  count_step();
  return numbers;
}

void AdamW::update_on_cpu(double gradient_scale) {
  kernels::AdamWRates rates;
  rates.beta1 = spec_.beta1;
  rates.beta2 = spec_.beta2;
  rates.eps = spec_.eps;
  rates.gradient_scale = gradient_scale;
  rates.t = static_cast<std::int64_t>(step_.item<float>());
  for (Group& group : groups_) {
    rates.lr = rate_ * group.factor;
    rates.decay = group.decayed ? spec_.weight_decay / group.factor : 0.0;
    for (std::size_t i = 0; i < group.weights.size(); ++i) {
      kernels::adamw_cpu(group.weights[i], group.gradients[i], group.m[i], group.v[i], group.low[i],
                         rates);
    }
  }
}

at::Tensor AdamW::update(const at::Tensor& loss) {
  const c10::NoGradGuard no_grad;
  at::Tensor gradient = parameters_.gradient();
  const at::Tensor norm = kernels::sum_squares(gradient).sqrt_();
  const at::Tensor numbers = at::stack({loss.detach(), norm});
  // x - x is 0 for finite numbers, NaN otherwise.
  const at::Tensor bad = (numbers - numbers).ne(0).any();
  skipped_.add_(bad);
  bad_.copy_(bad.logical_or(skipped_.gt(static_cast<double>(skip_limit_))));
  step_.add_(1).sub_(bad_);
  if (m_.is_cpu()) {  // nothing to wait for
    const double c =
        spec_.clip > 0 ? std::min(1.0, spec_.clip / (norm.item<double>() + 1e-6)) : 1.0;
    if (bad_.item<float>() == 0) update_on_cpu(c);
    return numbers;
  }
  if (spec_.clip > 0) {
    gradient.mul_((norm + 1e-6).reciprocal_().mul_(spec_.clip).clamp_max_(1.0).to(at::kFloat));
  }
  for (Group& group : groups_) {
    // The kernel multiplies the decay by the group's rate: divided by the factor, it is lr * decay.
    const double decay = group.decayed ? spec_.weight_decay / group.factor : 0.0;
    const auto adamw = [&](const auto& rate) {
      at::_fused_adamw_(group.weights, group.gradients, group.m, group.v, {}, group.steps, rate,
                        spec_.beta1, spec_.beta2, decay, spec_.eps, /*amsgrad=*/false,
                        /*maximize=*/false, std::nullopt, bad_);
    };
    group.device_rate.defined() ? adamw(group.device_rate) : adamw(rate_ * group.factor);
  }
  parameters_.refresh();
  return numbers;
}

}  // namespace tailor::train
