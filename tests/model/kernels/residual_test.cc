// A norm that forks the residual stream, and a product that is added to it: values and gradients
// against the plain operations.
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "model/kernels/linear.h"
#include "model/kernels/ops.h"
#include "tests/model/support.h"

namespace tailor::kernels {
namespace {

at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }

TEST(ResidualTest, AForkedNormAddsTheTwoGradientsThatMeet) {
  const at::Tensor x0 = at::randn({9, 24});
  const at::Tensor w0 = at::randn({24});
  const at::Tensor to_skip = at::randn({9, 24});
  const at::Tensor to_norm = at::randn({9, 24});
  for (const bool gain : {true, false}) {
    at::Tensor x = leaf(x0);
    at::Tensor w = leaf(w0);
    const auto [skip, y] = rms_norm_fork(x, gain ? w : at::Tensor(), 1e-5, at::kFloat);
    EXPECT_TRUE(test::same_bits(skip, x0));
    (skip * to_skip + y * to_norm).sum().backward();

    at::Tensor x2 = leaf(x0.to(at::kDouble));
    at::Tensor w2 = leaf(w0.to(at::kDouble));
    at::Tensor plain = x2 * (x2.square().mean(-1, true) + 1e-5).rsqrt();
    if (gain) plain = plain * w2;
    (x2 * to_skip + plain * to_norm).sum().backward();
    EXPECT_LT(test::relative_difference(y, plain), 2e-6);
    EXPECT_LT(test::relative_difference(x.grad(), x2.grad()), 2e-6);
    if (gain) {
      EXPECT_LT(test::relative_difference(w.grad(), w2.grad()), 2e-6);
    }
  }
}

TEST(ResidualTest, EitherPathOfAForkMayBeUnused) {
  const at::Tensor x0 = at::randn({3, 8});
  const at::Tensor weight = at::randn({3, 8});
  at::Tensor x = leaf(x0);
  (std::get<0>(rms_norm_fork(x, {}, 1e-5, at::kFloat)) * weight).sum().backward();
  EXPECT_TRUE(test::same_bits(x.grad(), weight));
  at::Tensor forked = leaf(x0);
  (std::get<1>(rms_norm_fork(forked, {}, 1e-5, at::kFloat)) * weight).sum().backward();
  at::Tensor normed = leaf(x0);
  (rms_norm(normed, {}, 1e-5, at::kFloat) * weight).sum().backward();
  EXPECT_TRUE(test::same_bits(forked.grad(), normed.grad()));
}

TEST(ResidualTest, AProductIsMadeOrAddedForEveryLayoutOfItsFactors) {
  const at::Tensor a = at::randn({5, 7}).to(at::kBFloat16);
  const at::Tensor b = at::randn({7, 4}).to(at::kBFloat16);
  const at::Tensor a_t = a.t().contiguous().t();
  const at::Tensor b_t = b.t().contiguous().t();
  const at::Tensor base = at::randn({5, 4});
  const at::Tensor wanted = at::mm(a.to(at::kDouble), b.to(at::kDouble));
  for (const at::Tensor& left : {a, a_t}) {
    for (const at::Tensor& right : {b, b_t}) {
      at::Tensor out = at::randn({5, 4});
      for (const bool multiplied : {false, true}) {
        const Bf16ProductsAs as(multiplied);
        // bf16 products of a CPU are rounded to bf16 before they are added.
        const double rounding = multiplied ? 1.0 / 128 : 1e-6;
        op::product_(out, std::nullopt, left, right);
        EXPECT_LT(test::relative_difference(out, wanted), rounding);
        op::product_(out, base, left, right);
        EXPECT_LT(test::relative_difference(out, wanted + base), rounding);
        op::product_(out, out, left, right);
        EXPECT_LT(test::relative_difference(out, wanted * 2 + base), rounding);
      }
    }
  }
}

}  // namespace
}  // namespace tailor::kernels
