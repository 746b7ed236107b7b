// Products with weights: values and gradients against plain ATen, where gradients go, and bf16.
#include "model/kernels/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "model/kernels/products.h"
#include "tests/model/support.h"

namespace tailor::kernels {
namespace {

using test::relative_difference;

at::Tensor leaf(at::IntArrayRef shape) { return at::randn(shape).set_requires_grad(true); }
at::Tensor leaf_like(const at::Tensor& x) { return x.detach().clone().set_requires_grad(true); }
void give_gradient(at::Tensor& x, double value) {
  x.mutable_grad() = at::ones(x.sizes()).mul_(value);
}

TEST(LinearTest, ValuesAndGradientsAreThoseOfAPlainProduct) {
  at::Tensor x = leaf({37, 24});
  at::Tensor w = leaf({40, 24});
  at::Tensor base = leaf({37, 40});
  at::Tensor x2 = leaf_like(x);
  at::Tensor w2 = leaf_like(w);
  at::Tensor base2 = leaf_like(base);
  const at::Tensor g = at::randn({37, 40});
  const at::Tensor y = linear(x, w, w) + linear_onto(base, x, w, w) * 2;
  const at::Tensor y2 = at::matmul(x2, w2.t()) + (base2 + at::matmul(x2, w2.t())) * 2;
  EXPECT_LT(relative_difference(y, y2), 1e-6);
  y.backward(g);
  y2.backward(g);
  EXPECT_LT(relative_difference(x.grad(), x2.grad()), 1e-5);
  EXPECT_LT(relative_difference(w.grad(), w2.grad()), 1e-5);
  EXPECT_LT(relative_difference(base.grad(), base2.grad()), 1e-6);
}

TEST(LinearTest, AGradientThatIsKeptIsAddedToInPlace) {
  at::Tensor x = leaf({9, 8});
  at::Tensor w = leaf({5, 8});
  give_gradient(w, 3);
  const void* place = w.grad().data_ptr();
  const at::Tensor g = at::randn({9, 5});
  linear(x, w, w).backward(g);
  EXPECT_EQ(w.grad().data_ptr(), place);
  EXPECT_LT(relative_difference(w.grad(), at::matmul(g.t(), x.detach()) + 3), 1e-5);

  const at::Tensor frozen = at::randn({5, 8});  // without a gradient only x gets one
  at::Tensor x2 = leaf_like(x);
  linear(x2, frozen, frozen).backward(g);
  EXPECT_LT(relative_difference(x2.grad(), at::matmul(g, frozen)), 1e-5);
}

TEST(LinearTest, Bf16ProductsRoundTheInputsOnceAndTheOutputOnceWhateverTheRows) {
  // More rows than a block of widened ones, and a short last block.
  for (const std::int64_t rows : {1, 300, 1100}) {
    at::Tensor w = leaf({48, 33});
    give_gradient(w, 0.5);
    const at::Tensor working = w.detach().to(at::kBFloat16);
    at::Tensor x = leaf({rows, 33});
    at::Tensor base = leaf({rows, 48});
    const at::Tensor x_wide = x.detach().to(at::kBFloat16).to(at::kDouble);
    const at::Tensor w_wide = working.to(at::kDouble);
    const at::Tensor product = at::matmul(x_wide, w_wide.t());
    const at::Tensor y = linear(x, w, working);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_LT(relative_difference(y, product), 1.0 / 256) << rows;
    const at::Tensor onto = linear_onto(base, x, w, working);
    EXPECT_EQ(onto.scalar_type(), at::kFloat);
    EXPECT_LT(relative_difference(onto, product + base), 1.0 / 128) << rows;
    const at::Tensor g = at::randn({rows, 48});
    onto.backward(g);
    EXPECT_LT(relative_difference(x.grad(), at::matmul(g.to(at::kDouble), w_wide)), 1.0 / 64);
    EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
    EXPECT_LT(relative_difference(w.grad(), at::matmul(g.to(at::kDouble).t(), x_wide) + 0.5),
              1.0 / 64);
  }
}

TEST(LinearTest, BlocksOfRowsAddUpInEitherTypeOfOutput) {
  const at::Tensor g = at::randn({2500, 7}).to(at::kBFloat16);
  const at::Tensor x = at::randn({2500, 5}).to(at::kBFloat16);
  const at::Tensor wanted = at::matmul(g.to(at::kDouble).t(), x.to(at::kDouble));
  at::Tensor sum = at::zeros({7, 5});
  add_outer(sum, g, x);
  EXPECT_LT(relative_difference(sum, wanted), 1.0 / 128);
  at::Tensor low = at::zeros({7, 5}, at::kBFloat16);
  add_outer(low, g, x);
  EXPECT_LT(relative_difference(low, wanted), 1.0 / 64);
  at::Tensor out = at::ones({2500, 5}, at::kBFloat16);
  const at::Tensor w = at::randn({7, 5}).to(at::kBFloat16);
  multiply_into(out, g, w, /*add=*/true);
  EXPECT_LT(relative_difference(out, at::matmul(g.to(at::kDouble), w.to(at::kDouble)) + 1),
            1.0 / 64);
}

TEST(LinearTest, EmbeddedRowsGatherTheirGradients) {
  at::Tensor w = leaf({6, 4});
  at::Tensor w2 = leaf_like(w);
  give_gradient(w, 1);
  const at::Tensor tokens = at::randint(5, {50}, at::kLong);  // token 5 never: no gradient
  const at::Tensor g = at::randn({50, 4});
  const at::Tensor y = embed(tokens, w);
  const at::Tensor y2 = at::embedding(w2, tokens);
  EXPECT_TRUE(test::same_bits(y.detach(), y2.detach()));
  y.backward(g);
  y2.backward(g);
  EXPECT_LT(relative_difference(w.grad(), w2.grad() + 1), 1e-6);
}

}  // namespace
}  // namespace tailor::kernels
