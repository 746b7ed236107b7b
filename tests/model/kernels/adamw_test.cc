// The CPU's AdamW against the formula in double, over several updates and sizes around the blocks.
#include "model/kernels/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/support.h"

namespace tailor::kernels {
namespace {

TEST(AdamWTest, UpdatesFollowTheFormula) {
  AdamWRates rates{0.01, 0.9, 0.95, 1e-8, 0.1, 0.5, 0};
  for (const std::int64_t n : {1, 33, 16384, 16384 + 100}) {
    at::Tensor w = at::randn({n});
    at::Tensor m = at::zeros({n});
    at::Tensor v = at::zeros({n});
    at::Tensor low = at::empty({n}, at::kBFloat16);
    at::Tensor w2 = w.to(at::kDouble);
    at::Tensor m2 = m.to(at::kDouble);
    at::Tensor v2 = v.to(at::kDouble);
    for (rates.t = 1; rates.t <= 5; ++rates.t) {
      const at::Tensor g = at::randn({n});
      const at::Tensor given = g.clone();
      adamw_cpu(w, g, m, v, low, rates);
      EXPECT_TRUE(test::same_bits(g, given));
      const at::Tensor scaled = g.to(at::kDouble) * 0.5;
      m2 = m2 * 0.9 + scaled * 0.1;
      v2 = v2 * 0.95 + scaled * scaled * 0.05;
      const double t = static_cast<double>(rates.t);
      const at::Tensor root = at::sqrt(v2) / std::sqrt(1 - std::pow(0.95, t)) + 1e-8;
      w2 = w2 * (1 - 0.01 * 0.1) - m2 / root * (0.01 / (1 - std::pow(0.9, t)));
    }
    EXPECT_LT(test::relative_difference(w, w2), 1e-6) << n;
    EXPECT_LT(test::relative_difference(m, m2), 1e-6) << n;
    EXPECT_LT(test::relative_difference(v, v2), 1e-6) << n;
    EXPECT_TRUE(test::same_bits(low, w.to(at::kBFloat16))) << n;
    at::Tensor none;
    adamw_cpu(w, at::randn({n}), m, v, none, rates);  // without a rounded copy
  }
}

}  // namespace
}  // namespace tailor::kernels
