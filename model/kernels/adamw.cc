#include "model/kernels/adamw.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "model/kernels/cpu_loops.h"
#include "model/kernels/ops.h"

namespace tailor::kernels {

void adamw_cpu(at::Tensor& w, const at::Tensor& g, at::Tensor& m, at::Tensor& v, at::Tensor& low,
               const AdamWRates& rates) {
  op::adamw_(w, g, m, v, low.defined() ? std::optional<at::Tensor>(low) : std::nullopt, rates.lr,
             rates.beta1, rates.beta2, rates.eps, rates.decay, rates.gradient_scale, rates.t);
}

void adamw_loops(at::Tensor& w, const at::Tensor& g, at::Tensor& m, at::Tensor& v, at::Tensor& low,
                 const AdamWRates& rates) {
  const std::int64_t n = w.numel();
  for (const at::Tensor* x : {&std::as_const(w), &g, &std::as_const(m), &std::as_const(v)}) {
    TAILOR_CHECK(x->is_cpu() && x->is_contiguous() && x->numel() == n);
  }
  const auto t = static_cast<double>(rates.t);
  AdamWFactors factors;
  factors.gradient_scale = static_cast<float>(rates.gradient_scale);
  factors.one_minus_beta1 = static_cast<float>(1 - rates.beta1);
  factors.beta2 = static_cast<float>(rates.beta2);
  factors.one_minus_beta2 = static_cast<float>(1 - rates.beta2);
  factors.keep = static_cast<float>(1 - rates.lr * rates.decay);
  factors.step = static_cast<float>(rates.lr / (1 - std::pow(rates.beta1, t)));
  factors.root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(rates.beta2, t)));
  factors.eps = static_cast<float>(rates.eps);
  auto* weight = w.mutable_data_ptr<float>();
  const auto* gradient = g.const_data_ptr<float>();
  auto* first = m.mutable_data_ptr<float>();
  auto* second = v.mutable_data_ptr<float>();
  std::uint16_t* rounded = nullptr;
  if (low.defined()) {
    TAILOR_CHECK(low.is_contiguous() && low.numel() == n);
    rounded = reinterpret_cast<std::uint16_t*>(low.mutable_data_ptr<c10::BFloat16>());
  }
  // Blocks whose weights are still in cache when they are rounded.
  constexpr std::int64_t kBlock = 1 << 14;
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  const CpuLoops& loops = cpu_loops();
  at::parallel_for(0, blocks, 1, [&](std::int64_t a, std::int64_t b) {
    for (std::int64_t block = a; block < b; ++block) {
      const std::int64_t at = block * kBlock;
      loops.adamw(weight + at, gradient + at, first + at, second + at,
                  rounded == nullptr ? nullptr : rounded + at, std::min(kBlock, n - at), factors);
    }
  });
}

}  // namespace tailor::kernels
