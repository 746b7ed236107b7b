// Every set of CPU loops against the plain ATen reference in double,
// and the operators through the dispatcher.
#include "model/kernels/cpu_loops.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "model/kernels/ops.h"
#include "model/net/attention.h"
#include "model/net/form.h"
#include "tests/model/support.h"

namespace tailor::kernels {
namespace {

using test::relative_difference;

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

std::uint16_t* half(at::Tensor& x) { return static_cast<std::uint16_t*>(x.mutable_data_ptr()); }

class CpuLoopsTest : public testing::TestWithParam<int> {
 protected:
  const CpuLoops& loops() {
    int count = 0;
    const CpuLoops* const* all = all_cpu_loops(&count);
    return *all[GetParam() < count ? GetParam() : 0];
  }
  void SetUp() override {
    int count = 0;
    all_cpu_loops(&count);
    if (GetParam() >= count) GTEST_SKIP() << "this machine lacks the instruction set";
  }
};

// Widths around the vector sizes: tails matter.
constexpr std::int64_t kWidths[] = {1, 7, 16, 33, 128};

TEST_P(CpuLoopsTest, RmsNormAndItsGradientAgreeWithTheReference) {
  for (const std::int64_t d : kWidths) {
    const std::int64_t rows = 5;
    const at::Tensor x = at::randn({rows, d});
    const at::Tensor w = at::randn({d});
    const at::Tensor g = at::randn({rows, d});
    at::Tensor y = at::zeros({rows, d});
    at::Tensor rstd = at::zeros({rows});
    at::Tensor gx = at::zeros({rows, d});
    at::Tensor gw = at::zeros({d});
    loops().rms_norm_ff(x.const_data_ptr<float>(), d, w.const_data_ptr<float>(), rows, d, 1e-5f,
                        y.mutable_data_ptr<float>(), rstd.mutable_data_ptr<float>());
    loops().rms_norm_backward_ff(g.const_data_ptr<float>(), x.const_data_ptr<float>(), d,
                                 w.const_data_ptr<float>(), rstd.const_data_ptr<float>(), rows, d,
                                 gx.mutable_data_ptr<float>(), gw.mutable_data_ptr<float>());
    const auto [y_wanted, rstd_wanted] = reference::rms_norm(wide(x), wide(w), 1e-5, at::kDouble);
    const auto [gx_wanted, gw_wanted] =
        reference::rms_norm_backward(wide(g), wide(x), wide(w), rstd_wanted);
    EXPECT_LT(relative_difference(y, y_wanted), 1e-6) << d;
    // Against the size of its terms: for d = 1 they cancel to almost nothing.
    const double scale = (wide(g) * wide(w) * rstd_wanted.unsqueeze(1)).abs().max().item<double>();
    EXPECT_LT((wide(gx) - gx_wanted).abs().max().item<double>(), 2e-6 * scale) << d;
    EXPECT_LT((wide(gw) - gw_wanted).abs().max().item<double>(),
              2e-6 * rows * wide(g).abs().max().item<double>())
        << d;
  }
}

TEST_P(CpuLoopsTest, SwigluAndItsGradientAgreeWithTheReferenceFromTinyToHugeGates) {
  for (const std::int64_t f : kWidths) {
    const at::Tensor x = at::randn({6, 2 * f}) * 8;
    x.mutable_data_ptr<float>()[0] = 200;  // far outside the range of exp
    x.mutable_data_ptr<float>()[2 * f] = -200;
    const at::Tensor g = at::randn({6, f});
    at::Tensor y = at::zeros({6, f});
    at::Tensor gx = at::zeros({6, 2 * f});
    loops().swiglu_f(x.const_data_ptr<float>(), 6, f, y.mutable_data_ptr<float>());
    loops().swiglu_backward_f(g.const_data_ptr<float>(), x.const_data_ptr<float>(), 6, f,
                              gx.mutable_data_ptr<float>());
    EXPECT_LT(relative_difference(y, reference::swiglu(wide(x))), 1e-6) << f;
    EXPECT_LT(relative_difference(gx, reference::swiglu_backward(wide(g), wide(x))), 1e-6) << f;
  }
}

TEST_P(CpuLoopsTest, Bf16LoopsRoundTheReferenceOnce) {
  const at::Tensor x = at::randn({9, 66}).to(at::kBFloat16);
  at::Tensor input = x.clone();
  at::Tensor y = at::zeros({9, 33}, at::kBFloat16);
  loops().swiglu_h(half(input), 9, 33, half(y));
  // bf16 keeps 8 bits: one rounding is at most 2^-8 of the value.
  EXPECT_LT(relative_difference(y, reference::swiglu(wide(x))), 1.0 / 256);
  at::Tensor z = at::zeros({9, 66}, at::kBFloat16);
  at::Tensor rstd = at::zeros({9});
  const at::Tensor w = at::ones({66});
  loops().rms_norm_hh(half(input), 66, w.const_data_ptr<float>(), 9, 66, 1e-5f, half(z),
                      rstd.mutable_data_ptr<float>());
  EXPECT_LT(
      relative_difference(z, std::get<0>(reference::rms_norm(wide(x), wide(w), 1e-5, at::kDouble))),
      1.0 / 256);
}

TEST_P(CpuLoopsTest, CrossEntropyAgreesWithTheReferenceAndSkipsNegativeTargets) {
  for (const std::int64_t v : {1, 17, 300}) {
    const at::Tensor scores = at::randn({8, v}) * 5;
    at::Tensor targets = at::randint(v, {8}, at::kLong);
    targets.mutable_data_ptr<std::int64_t>()[3] = -100;
    for (const float z : {0.0f, 0.015625f}) {
      at::Tensor grad = scores.clone();
      std::vector<double> loss(8);
      loops().cross_entropy_f(grad.mutable_data_ptr<float>(),
                              targets.const_data_ptr<std::int64_t>(), 8, v, 0.25f, true, z,
                              loss.data());
      at::Tensor wanted_grad = wide(scores).clone();
      const at::Tensor wanted = reference::cross_entropy_(wanted_grad, targets, 0.25, true, z);
      for (int r = 0; r < 8; ++r) {
        EXPECT_NEAR(loss[r], wanted[r].item<double>(), 4e-6) << v << " " << r << " " << z;
      }
      EXPECT_EQ(loss[3], 0);
      EXPECT_LT((wide(grad) - wanted_grad).abs().max().item<double>(), 1e-6) << v << " " << z;
      EXPECT_EQ(grad[3].abs().sum().item<float>(), 0);
    }
  }
}

TEST_P(CpuLoopsTest, NanAndInfinityAreNeverSwallowed) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), inf}) {
    float x[4] = {1, bad, 2, 3};
    float y[4];
    float rstd = 0;
    loops().rms_norm_ff(x, 4, nullptr, 1, 4, 1e-5f, y, &rstd);
    EXPECT_FALSE(std::isfinite(y[1]));
    float scores[4] = {1, bad, 2, 3};
    const std::int64_t target = 0;
    double loss = 0;
    loops().cross_entropy_f(scores, &target, 1, 4, 1, true, 0, &loss);
    EXPECT_FALSE(std::isfinite(loss));
    EXPECT_FALSE(std::isfinite(loops().sum_squares_f(x, 4)));
    float gate_up[4] = {1, bad, 2, 3};
    float out[2];
    loops().swiglu_f(gate_up, 1, 2, out);
    EXPECT_FALSE(std::isfinite(out[1]));
  }
}

std::string set_name(const testing::TestParamInfo<int>& tested) {
  static const std::vector<std::string> names = {"baseline", "avx2", "avx512"};
  return names[static_cast<std::size_t>(tested.param)];
}
INSTANTIATE_TEST_SUITE_P(Sets, CpuLoopsTest, testing::Values(0, 1, 2), set_name);

TEST(RopeTest, SplitTurnsHalvesAndMergeIsItsTranspose) {
  const std::int64_t batch = 2;
  const std::int64_t time = 5;
  const std::int64_t heads = 4;
  const std::int64_t kv = 2;
  const std::int64_t e = 6;
  const net::RopeTable rope = net::make_rope_table(time, net::rope_frequencies(e, 10000),
                                                   at::TensorOptions().dtype(at::kFloat));
  const net::RopeTable exact = net::make_rope_table(time, net::rope_frequencies(e, 10000),
                                                    at::TensorOptions().dtype(at::kDouble));
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kFloat ? 1e-6 : 1.0 / 128;
    const at::Tensor x = at::randn({batch * time, (heads + 2 * kv) * e}).to(type);
    const auto [q, k, v] = op::rope_split(x, rope.cos, rope.sin, batch, heads, kv);
    const auto [q2, k2, v2] =
        reference::rope_split(wide(x), exact.cos, exact.sin, batch, heads, kv);
    EXPECT_LT(relative_difference(q, q2), tolerance);
    EXPECT_LT(relative_difference(k, k2), tolerance);
    EXPECT_LT(relative_difference(v, v2), tolerance);
    // A rotation followed by its transpose is the identity.
    const at::Tensor back = op::rope_merge(q, k, v, rope.cos, rope.sin);
    EXPECT_LT(relative_difference(back, x), 2 * tolerance);
  }
  // By hand: position 1, pair 0 turns by one radian.
  at::Tensor x = at::zeros({time, 3 * e});
  x[1][0] = 1.0;
  const auto [q, k, v] = op::rope_split(x, rope.cos, rope.sin, 1, 1, 1);
  EXPECT_NEAR(q[0][0][1][0].item<float>(), std::cos(1.0), 1e-6);
  EXPECT_NEAR(q[0][0][1][e / 2].item<float>(), std::sin(1.0), 1e-6);
}

TEST(KernelThreadsTest, ResultsDoNotDependOnTheNumberOfThreads) {
  const at::Tensor x = at::randn({1500, 96});
  const at::Tensor w = at::randn({96});
  const at::Tensor g = at::randn({1500, 96});
  const int before = at::get_num_threads();
  std::vector<at::Tensor> results[2];
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    const auto [y, rstd] = op::rms_norm(x, w, 1e-5, at::kFloat);
    const auto [gx, gw] = op::rms_norm_backward(g, x, w, rstd);
    results[threads - 1] = {y, gx, gw, op::sum_squares(x), op::swiglu(x)};
  }
  at::set_num_threads(before);
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(test::same_bits(results[0][i], results[1][i])) << i;
  }
}

}  // namespace
}  // namespace tailor::kernels
