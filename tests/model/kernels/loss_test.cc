// The chunked linear + cross-entropy against the whole matrix of scores in double.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <utility>

#include "model/kernels/ops.h"
#include "tests/model/support.h"

namespace tailor::kernels {
namespace {

using test::relative_difference;

TEST(LinearCrossEntropyTest, LossAndGradientsEqualTheNaiveOnesForEveryChunkSize) {
  const std::int64_t n = 37;
  const std::int64_t d = 24;
  const std::int64_t v = 50;
  const at::Tensor targets = at::randint(v, {n}, at::kLong);
  targets.mutable_data_ptr<std::int64_t>()[5] = -100;
  const at::Tensor x0 = at::randn({n, d});
  const at::Tensor w0 = at::randn({v, d});

  at::Tensor x = x0.to(at::kDouble).detach().set_requires_grad(true);
  at::Tensor w = w0.to(at::kDouble).detach().set_requires_grad(true);
  const at::Tensor naive = at::cross_entropy_loss(at::mm(x, w.t()), targets, {}, /*sum=*/2) * 0.125;
  naive.backward();

  for (const std::int64_t chunk : {0, 1, 8, 36, 37, 1000}) {
    at::Tensor x32 = x0.clone().set_requires_grad(true);
    at::Tensor w32 = w0.clone().set_requires_grad(true);
    const at::Tensor loss = linear_cross_entropy(x32, w32, targets, 0.125, chunk);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), naive.item<double>(), 1e-5) << chunk;
    EXPECT_LT(relative_difference(x32.grad(), x.grad()), 2e-6) << chunk;
    EXPECT_LT(relative_difference(w32.grad(), w.grad()), 2e-6) << chunk;
  }
}

TEST(LinearCrossEntropyTest, TheGradientScalesWithWhatComesAfterTheLoss) {
  const at::Tensor targets = at::randint(9, {4}, at::kLong);
  at::Tensor x = at::randn({4, 3}).set_requires_grad(true);
  const at::Tensor w = at::randn({9, 3});
  linear_cross_entropy(x, w, targets, 1.0).backward();
  const at::Tensor once = x.grad().clone();
  x.mutable_grad().zero_();
  (linear_cross_entropy(x, w, targets, 1.0) * -3.0).backward();
  EXPECT_LT(relative_difference(x.grad(), once * -3.0), 1e-6);
}

// z_loss against autograd through the formula, and against differences of the loss itself.
TEST(LinearCrossEntropyTest, TheZLossAddsItsSquareOfLogZAndItsGradient) {
  const std::int64_t n = 11;
  const std::int64_t d = 6;
  const std::int64_t v = 17;
  const double z = 0.03;
  const at::Tensor targets = at::randint(v, {n}, at::kLong);
  targets.mutable_data_ptr<std::int64_t>()[2] = -100;
  const at::Tensor x0 = at::randn({n, d});
  const at::Tensor w0 = at::randn({v, d});
  at::Tensor x = x0.to(at::kDouble).detach().set_requires_grad(true);
  at::Tensor w = w0.to(at::kDouble).detach().set_requires_grad(true);
  const at::Tensor scores = at::mm(x, w.t());
  const at::Tensor log_z = at::logsumexp(scores, {1}) * targets.ge(0);
  const at::Tensor naive =
      (at::cross_entropy_loss(scores, targets, {}, /*sum=*/2) + log_z.square().sum() * z) * 0.5;
  naive.backward();
  for (const std::int64_t chunk : {0, 4}) {
    at::Tensor x32 = x0.clone().set_requires_grad(true);
    at::Tensor w32 = w0.clone().set_requires_grad(true);
    const at::Tensor loss = linear_cross_entropy(x32, w32, targets, 0.5, chunk, z);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), naive.item<double>(), 1e-5);
    EXPECT_LT(relative_difference(x32.grad(), x.grad()), 2e-6);
    EXPECT_LT(relative_difference(w32.grad(), w.grad()), 2e-6);
  }
  const c10::NoGradGuard no_grad;
  at::Tensor probe = x0.clone();
  const float h = 1.0f / 256;  // fp32 scores: the difference keeps four digits
  for (const auto& [row, column] : {std::pair{0, 0}, {3, 5}, {10, 2}, {2, 1}}) {
    const auto at = probe[row][column].item<float>();
    probe[row][column] = at + h;
    const double up = linear_cross_entropy(probe, w0, targets, 0.5, 0, z).item<double>();
    probe[row][column] = at - h;
    const double down = linear_cross_entropy(probe, w0, targets, 0.5, 0, z).item<double>();
    probe[row][column] = at;
    EXPECT_NEAR((up - down) / (2 * h), x.grad()[row][column].item<double>(), 5e-4)
        << row << " " << column;
  }
}

TEST(LinearCrossEntropyTest, RowLossesSumToTheLossAndAreZeroWhereNothingIsScored) {
  const at::Tensor targets = at::randint(9, {40}, at::kLong);
  targets.mutable_data_ptr<std::int64_t>()[7] = -100;
  const at::Tensor x = at::randn({40, 3});
  const at::Tensor w = at::randn({9, 3});
  const at::Tensor rows = linear_row_losses(x, w, targets, 7);
  EXPECT_EQ(rows[7].item<double>(), 0);
  EXPECT_NEAR(rows.sum().item<double>(), linear_cross_entropy(x, w, targets, 1.0).item<double>(),
              1e-5);
  const at::Tensor wanted = at::cross_entropy_loss(at::mm(x, w.t()), targets, {}, /*none=*/0);
  EXPECT_LT(relative_difference(rows, wanted), 1e-6);
}

TEST(LinearCrossEntropyTest, WithoutGradientsTheLossIsTheSame) {
  const at::Tensor targets = at::randint(9, {40}, at::kLong);
  at::Tensor x = at::randn({40, 3}).set_requires_grad(true);
  const at::Tensor w = at::randn({9, 3});
  const double with = linear_cross_entropy(x, w, targets, 1.0, 7).item<double>();
  const c10::NoGradGuard no_grad;
  const at::Tensor without = linear_cross_entropy(x, w, targets, 1.0, 7);
  EXPECT_FALSE(without.requires_grad());
  EXPECT_DOUBLE_EQ(without.item<double>(), with);
}

}  // namespace
}  // namespace tailor::kernels
