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
#include <optional>
#include <type_traits>
#include <vector>

#include "model/kernels/ops.h"
#include "model/net/attention.h"
#include "model/net/form.h"
#include "tests/model/support.h"

namespace tailor::kernels {
namespace {

using test::relative_difference;

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }
double largest(const at::Tensor& x) { return x.abs().max().item<double>(); }

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

template <typename T>
constexpr at::ScalarType kType = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;
// Half a unit in the last place of bf16 is 2^-9 of the value.
template <typename T>
constexpr double kRounding = std::is_same_v<T, float> ? 1e-6 : 1.0 / 256;

template <typename X, typename Y>
using NormLoop = void (*)(const X*, std::int64_t, const float*, std::int64_t, std::int64_t, float,
                          Y*, float*);
template <typename X, typename Y>
using NormGradientLoop = void (*)(const Y*, const X*, std::int64_t, const float*, const float*,
                                  const X*, std::int64_t, std::int64_t, std::int64_t, X*, float*);

template <typename T>
T* data(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

template <typename X, typename Y>
void check_norm(NormLoop<X, Y> loop, NormGradientLoop<X, Y> gradient, std::int64_t d, bool gain,
                bool with_skip) {
  const std::int64_t rows = 5;
  SCOPED_TRACE(testing::Message() << kType<X> << " to " << kType<Y> << " d " << d << " gain "
                                  << gain << " skip " << with_skip);
  // Rows of a wider matrix, as q of packed q,k,v.
  const at::Tensor x = at::randn({rows, d + 3}).to(kType<X>).narrow(1, 1, d);
  const at::Tensor w = gain ? at::randn({d}) : at::Tensor();
  const at::Tensor g = at::randn({rows, d}).to(kType<Y>);
  const at::Tensor skip =
      with_skip ? at::randn({rows, d + 1}).to(kType<X>).narrow(1, 0, d) : at::Tensor();
  at::Tensor y = at::zeros({rows, d}, kType<Y>);
  at::Tensor rstd = at::zeros({rows});
  at::Tensor gx = at::zeros({rows, d}, kType<X>);
  at::Tensor gw = gain ? at::zeros({d}) : at::Tensor();
  loop(data<X>(x), d + 3, data<float>(w), rows, d, 1e-5f, data<Y>(y), data<float>(rstd));
  gradient(data<Y>(g), data<X>(x), d + 3, data<float>(w), data<float>(rstd), data<X>(skip), d + 1,
           rows, d, data<X>(gx), data<float>(gw));
  const auto optional = [](const at::Tensor& t) {
    return t.defined() ? std::optional<at::Tensor>(wide(t)) : std::nullopt;
  };
  const auto [y_wanted, rstd_wanted] = reference::rms_norm(wide(x), optional(w), 1e-5, at::kDouble);
  const auto [gx_wanted, gw_wanted] =
      reference::rms_norm_backward(wide(g), wide(x), optional(w), rstd_wanted, optional(skip));
  EXPECT_LT(relative_difference(y, y_wanted), kRounding<Y>);
  EXPECT_LT(relative_difference(rstd, rstd_wanted), 1e-6);
  // Against the size of its terms: for d = 1 they cancel to almost nothing.
  const at::Tensor gained = gain ? wide(g) * wide(w) : wide(g);
  double scale = largest(gained * rstd_wanted.unsqueeze(1));
  if (with_skip) scale += largest(wide(skip));
  EXPECT_LT(largest(wide(gx) - gx_wanted), 2 * kRounding<X> * scale);
  if (gain) {
    EXPECT_LT(largest(wide(gw) - gw_wanted), 2e-6 * rows * largest(wide(g)));
  }
}

// Every combination of op_table.h.
TEST_P(CpuLoopsTest, RmsNormAndItsGradientAgreeWithTheReference) {
  for (const std::int64_t d : kWidths) {
    for (const bool gain : {true, false}) {
      for (const bool skip : {true, false}) {
#define TAILOR_CASE(X, Y)                                          \
  check_norm<CpuLoops::X, CpuLoops::Y>(loops().rms_norm_##X##_##Y, \
                                       loops().rms_norm_backward_##X##_##Y, d, gain, skip);
        TAILOR_NORM_TYPES(TAILOR_CASE)
#undef TAILOR_CASE
      }
    }
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
    loops().swiglu_f32(x.const_data_ptr<float>(), 6, f, y.mutable_data_ptr<float>());
    loops().swiglu_backward_f32(g.const_data_ptr<float>(), x.const_data_ptr<float>(), 6, f,
                                gx.mutable_data_ptr<float>());
    EXPECT_LT(relative_difference(y, reference::swiglu(wide(x))), 1e-6) << f;
    EXPECT_LT(relative_difference(gx, reference::swiglu_backward(wide(g), wide(x))), 1e-6) << f;
  }
}

TEST_P(CpuLoopsTest, Bf16LoopsRoundTheReferenceOnce) {
  const at::Tensor x = at::randn({9, 66}).to(at::kBFloat16);
  at::Tensor input = x.clone();
  at::Tensor y = at::zeros({9, 33}, at::kBFloat16);
  loops().swiglu_bf16(half(input), 9, 33, half(y));
  // bf16 keeps 8 bits: one rounding is at most 2^-8 of the value.
  EXPECT_LT(relative_difference(y, reference::swiglu(wide(x))), 1.0 / 256);
  at::Tensor z = at::zeros({9, 66}, at::kBFloat16);
  at::Tensor rstd = at::zeros({9});
  const at::Tensor w = at::ones({66});
  loops().rms_norm_bf16_bf16(half(input), 66, w.const_data_ptr<float>(), 9, 66, 1e-5f, half(z),
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
      loops().cross_entropy_f32(grad.mutable_data_ptr<float>(),
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

TEST_P(CpuLoopsTest, CrossEntropyOfBf16RoundsTheGradientOnce) {
  for (const std::int64_t v : {1, 17, 300}) {
    const at::Tensor scores = (at::randn({8, v}) * 5).to(at::kBFloat16);
    at::Tensor targets = at::randint(v, {8}, at::kLong);
    targets.mutable_data_ptr<std::int64_t>()[3] = -100;
    at::Tensor grad = scores.clone();
    std::vector<double> loss(8);
    std::vector<double> only(8);
    loops().cross_entropy_bf16(half(grad), targets.const_data_ptr<std::int64_t>(), 8, v, 0.25f,
                               false, 0.015625f, only.data());
    EXPECT_TRUE(test::same_bits(grad, scores));
    loops().cross_entropy_bf16(half(grad), targets.const_data_ptr<std::int64_t>(), 8, v, 0.25f,
                               true, 0.015625f, loss.data());
    // The same as the fp32 loop gives for these values, rounded.
    at::Tensor widened = scores.to(at::kFloat);
    std::vector<double> of_widened(8);
    loops().cross_entropy_f32(widened.mutable_data_ptr<float>(),
                              targets.const_data_ptr<std::int64_t>(), 8, v, 0.25f, true, 0.015625f,
                              of_widened.data());
    EXPECT_LT(relative_difference(grad, widened), 1.0 / 256) << v;
    at::Tensor wanted_grad = wide(scores).clone();
    const at::Tensor wanted = reference::cross_entropy_(wanted_grad, targets, 0.25, true, 0.015625);
    for (int r = 0; r < 8; ++r) {
      EXPECT_EQ(loss[r], only[r]) << v << " " << r;
      EXPECT_NEAR(loss[r], of_widened[r], 1e-6) << v << " " << r;
      EXPECT_NEAR(loss[r], wanted[r].item<double>(), 4e-6) << v << " " << r;
    }
    EXPECT_LT((wide(grad) - wanted_grad).abs().max().item<double>(), 0.25 / 256) << v;
    EXPECT_EQ(grad[3].abs().sum().item<float>(), 0);
  }
}

TEST_P(CpuLoopsTest, NanAndInfinityAreNeverSwallowed) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), inf}) {
    float x[4] = {1, bad, 2, 3};
    float y[4];
    float rstd = 0;
    loops().rms_norm_f32_f32(x, 4, nullptr, 1, 4, 1e-5f, y, &rstd);
    EXPECT_FALSE(std::isfinite(y[1]));
    float scores[4] = {1, bad, 2, 3};
    const std::int64_t target = 0;
    double loss = 0;
    loops().cross_entropy_f32(scores, &target, 1, 4, 1, true, 0, &loss);
    EXPECT_FALSE(std::isfinite(loss));
    EXPECT_FALSE(std::isfinite(loops().sum_squares(x, 4)));
    float gate_up[4] = {1, bad, 2, 3};
    float out[2];
    loops().swiglu_f32(gate_up, 1, 2, out);
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
