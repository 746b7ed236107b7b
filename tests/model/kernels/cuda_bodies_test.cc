// The arithmetic of the CUDA kernels (model/kernels/cuda/bodies.h), run on the CPU lane by lane,
// against the reference in double. What is left to a machine with a GPU (cuda_kernels_test.cc) is
// which block takes which row.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "model/kernels/cuda/bodies.h"
#include "model/kernels/ops.h"
#include "tests/model/support.h"

namespace tailor::kernels::cuda {
namespace {

using test::relative_difference;

// A team whose lanes run one after the other.
struct Lanes {
  static constexpr int kLanes = 32;
  template <typename F>
  void each(F f) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  }
  template <typename F>
  float sum(F f) {
    float total = 0;
    for (int lane = 0; lane < kLanes; ++lane) total += f(lane);
    return total;
  }
  template <typename F>
  MaxSum max_sum(F f) {
    MaxSum total;
    for (int lane = 0; lane < kLanes; ++lane) total = join(total, f(lane));
    return total;
  }
};

template <typename T>
constexpr at::ScalarType kType = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;
template <typename T>
T* data(const at::Tensor& x) {
  EXPECT_EQ(x.scalar_type(), kType<T>);
  return static_cast<T*>(x.data_ptr());
}
at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }
// Half a unit in the last place of bf16 is 2^-9 of the value.
template <typename T>
constexpr double kRounding = std::is_same_v<T, float> ? 3e-6 : 1.0 / 256;

TEST(CudaBodiesTest, Bf16RoundsAsLibTorchDoes) {
  std::uint32_t state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525u + 1013904223u;
    // Every pattern of bits now and then, ties to even and infinities with them.
    const std::uint32_t bits = i % 3 == 0 ? (state & 0xffff8000u) : state;
    const float x = std::bit_cast<float>(bits);
    Bf16 narrowed;
    narrow(x, &narrowed);
    const c10::BFloat16 wanted(x);
    if (x != x) {
      EXPECT_TRUE(std::isnan(widen(narrowed)));
    } else {
      ASSERT_EQ(narrowed.bits, wanted.x) << bits;
      ASSERT_EQ(widen(narrowed), static_cast<float>(wanted)) << bits;
    }
  }
}

template <int N, typename X, typename Y>
void check_norm(std::int64_t d, bool gain, bool with_skip) {
  SCOPED_TRACE(testing::Message() << "N " << N << " d " << d << " gain " << gain);
  const std::int64_t rows = 5;
  // Rows of a wider matrix, as q of packed q,k,v.
  const at::Tensor x = at::randn({rows, d + 8}).to(kType<X>).narrow(1, 0, d);
  const at::Tensor w = gain ? at::randn({d}) : at::Tensor();
  const at::Tensor g = at::randn({rows, d}).to(kType<Y>);
  const at::Tensor skip = with_skip ? at::randn({rows, d}).to(kType<X>) : at::Tensor();
  const at::Tensor y = at::empty({rows, d}, kType<Y>);
  const at::Tensor gx = at::empty({rows, d}, kType<X>);
  const at::Tensor rstd = at::empty({rows}, at::kFloat);
  const at::Tensor gw = at::zeros({d}, at::kFloat);
  const float* weights = gain ? data<float>(w) : nullptr;
  for (std::int64_t r = 0; r < rows; ++r) {
    const X* row = data<X>(x) + r * x.stride(0);
    rms_norm_row<N>(Lanes{}, row, weights, d, 1e-5f, data<Y>(y) + r * d, data<float>(rstd) + r);
    rms_norm_backward_row<N>(Lanes{}, data<Y>(g) + r * d, row, weights, data<float>(rstd)[r],
                             with_skip ? data<X>(skip) + r * d : nullptr, d, data<X>(gx) + r * d,
                             gain ? data<float>(gw) : nullptr);
  }
  const auto optional = [](const at::Tensor& t) {
    return t.defined() ? std::optional<at::Tensor>(wide(t)) : std::nullopt;
  };
  const auto [y2, rstd2] = reference::rms_norm(wide(x), optional(w), 1e-5, at::kDouble);
  const auto [gx2, gw2] =
      reference::rms_norm_backward(wide(g), wide(x), optional(w), rstd2, optional(skip));
  EXPECT_LT(relative_difference(y, y2), kRounding<Y>);
  EXPECT_LT(relative_difference(rstd, rstd2), 2e-6);
  EXPECT_LT(relative_difference(gx, gx2), kRounding<X>);
  if (gain) {
    EXPECT_LT(relative_difference(gw, gw2), 3e-6);
  }
}

// The types of the lists of op_table.h.
struct Types {
  using f32 = float;
  using bf16 = Bf16;
};

TEST(CudaBodiesTest, RmsNormAndItsGradientAreTheReferences) {
  for (const bool gain : {true, false}) {
    for (const bool skip : {true, false}) {
      for (const std::int64_t d : {8, 256, 264, 776, 16384}) {
#define TAILOR_CASE(X, Y) check_norm<8, Types::X, Types::Y>(d, gain, skip);
        TAILOR_NORM_TYPES(TAILOR_CASE)
#undef TAILOR_CASE
      }
      for (const std::int64_t d : {3, 7, 64, 301}) {
#define TAILOR_CASE(X, Y) check_norm<1, Types::X, Types::Y>(d, gain, skip);
        TAILOR_NORM_TYPES(TAILOR_CASE)
#undef TAILOR_CASE
      }
    }
  }
}

template <int N, typename T>
void check_swiglu(std::int64_t f) {
  SCOPED_TRACE(testing::Message() << "N " << N << " f " << f);
  const std::int64_t rows = 4;
  const at::Tensor x = (at::randn({rows, 2 * f}) * 3).to(kType<T>);
  const at::Tensor g = at::randn({rows, f}).to(kType<T>);
  const at::Tensor y = at::empty({rows, f}, kType<T>);
  const at::Tensor gx = at::empty({rows, 2 * f}, kType<T>);
  for (std::int64_t r = 0; r < rows; ++r) {
    swiglu_row<N>(Lanes{}, data<T>(x) + r * 2 * f, f, data<T>(y) + r * f);
    swiglu_backward_row<N>(Lanes{}, data<T>(g) + r * f, data<T>(x) + r * 2 * f, f,
                           data<T>(gx) + r * 2 * f);
  }
  EXPECT_LT(relative_difference(y, reference::swiglu(wide(x))), kRounding<T>);
  EXPECT_LT(relative_difference(gx, reference::swiglu_backward(wide(g), wide(x))), kRounding<T>);
}

TEST(CudaBodiesTest, SwigluAndItsGradientAreTheReferences) {
  for (const std::int64_t f : {8, 256, 520}) {
#define TAILOR_CASE(X, Y) check_swiglu<8, Types::X>(f);
    TAILOR_ONE_TYPE(TAILOR_CASE)
#undef TAILOR_CASE
  }
  for (const std::int64_t f : {1, 33, 77}) {
#define TAILOR_CASE(X, Y) check_swiglu<1, Types::X>(f);
    TAILOR_ONE_TYPE(TAILOR_CASE)
#undef TAILOR_CASE
  }
}

template <typename T>
Heads<T> heads_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto strides = [](const at::Tensor& x) {
    return HeadStrides{x.stride(0), x.stride(1), x.stride(2)};
  };
  return {data<T>(q), data<T>(k), data<T>(v), strides(q), strides(k), strides(v)};
}

template <int N, typename T>
void check_rope(std::int64_t heads, std::int64_t kv_heads, std::int64_t e) {
  SCOPED_TRACE(testing::Message() << "N " << N << " H " << heads << " G " << kv_heads << " e "
                                  << e);
  const std::int64_t batch = 2;
  const std::int64_t time = 5;
  const RopeShape shape{time, heads, kv_heads, e};
  const std::int64_t width = (heads + 2 * kv_heads) * e;
  const at::Tensor angle = at::randn({time, e / 2}, at::kDouble) * 3;
  const at::Tensor cos = angle.cos().to(at::kFloat);
  const at::Tensor sin = angle.sin().to(at::kFloat);
  const at::Tensor packed = at::randn({batch * time, width}).to(kType<T>);
  const at::Tensor q = at::empty({batch, heads, time, e}, kType<T>);
  const at::Tensor k = at::empty({batch, kv_heads, time, e}, kType<T>);
  const at::Tensor v = at::empty({batch, kv_heads, time, e}, kType<T>);
  // Gradients as attention gives them: (B, T, heads, e) in memory.
  const at::Tensor gq = at::randn({batch, time, heads, e}).to(kType<T>).transpose(1, 2);
  const at::Tensor gk = at::randn({batch, time, kv_heads, e}).to(kType<T>).transpose(1, 2);
  const at::Tensor gv = at::randn({batch, time, kv_heads, e}).to(kType<T>).transpose(1, 2);
  const at::Tensor merged = at::empty({batch * time, width}, kType<T>);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t < time; ++t) {
      const std::int64_t row = (b * time + t) * width;
      rope_row<N, true>(Lanes{}, data<T>(packed) + row, shape, b, t, data<float>(cos),
                        data<float>(sin), heads_of<T>(q, k, v));
      rope_row<N, false>(Lanes{}, data<T>(merged) + row, shape, b, t, data<float>(cos),
                         data<float>(sin), heads_of<T>(gq, gk, gv));
    }
  }
  const auto [q2, k2, v2] =
      reference::rope_split(wide(packed), wide(cos), wide(sin), batch, heads, kv_heads);
  EXPECT_LT(relative_difference(q, q2), kRounding<T>);
  EXPECT_LT(relative_difference(k, k2), kRounding<T>);
  EXPECT_EQ(relative_difference(v, v2), 0);
  EXPECT_LT(relative_difference(
                merged, reference::rope_merge(wide(gq), wide(gk), wide(gv), wide(cos), wide(sin))),
            kRounding<T>);
}

TEST(CudaBodiesTest, RopeSplitsAndMergesAsTheReference) {
  check_rope<8, float>(4, 2, 64);
  check_rope<8, Bf16>(3, 1, 48);
  check_rope<8, Bf16>(2, 2, 128);
  check_rope<1, float>(4, 4, 6);
  check_rope<1, Bf16>(5, 1, 2);
}

template <int N, typename T>
void check_cross_entropy(std::int64_t v, double z_loss) {
  SCOPED_TRACE(testing::Message() << "N " << N << " v " << v << " z " << z_loss);
  const std::int64_t rows = 6;
  const at::Tensor scores = (at::randn({rows, v}) * 4).to(kType<T>);
  const at::Tensor targets = at::randint(v, {rows}, at::kLong);
  targets[2] = -100;
  targets[3] = v - 1;
  scores[4] += 300;  // exp of it alone overflows
  const double scale = 0.125;
  at::Tensor wanted = wide(scores);
  const at::Tensor losses = reference::cross_entropy_(wanted, targets, scale, true, z_loss);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t target = targets[r].item<std::int64_t>();
    const at::Tensor kept = scores[r].clone();
    const double forward = cross_entropy_row<N>(Lanes{}, data<T>(scores) + r * v, target, v,
                                                static_cast<float>(scale), false, z_loss);
    EXPECT_TRUE(test::same_bits(scores[r], kept));
    const double loss = cross_entropy_row<N>(Lanes{}, data<T>(scores) + r * v, target, v,
                                             static_cast<float>(scale), true, z_loss);
    EXPECT_EQ(loss, forward);
    EXPECT_NEAR(loss, losses[r].item<double>(), 1e-5 * (1 + std::abs(loss))) << r;
  }
  EXPECT_LT(relative_difference(scores, wanted), kRounding<T>);
  EXPECT_EQ(scores[2].abs().max().item<float>(), 0);
}

TEST(CudaBodiesTest, CrossEntropyAndItsGradientAreTheReferences) {
  for (const double z_loss : {0.0, 1e-2}) {
    check_cross_entropy<8, float>(512, z_loss);
    check_cross_entropy<8, Bf16>(1000, z_loss);
    check_cross_entropy<1, float>(77, z_loss);
    check_cross_entropy<1, Bf16>(2, z_loss);
  }
}

TEST(CudaBodiesTest, MaskedScoresCountAsZeroAndNanReachesTheLoss) {
  const float infinity = std::numeric_limits<float>::infinity();
  float row[4] = {1.0f, -infinity, 2.0f, -infinity};
  const double loss = cross_entropy_row<1>(Lanes{}, row, 0, 4, 1.0f, true, 0.0);
  EXPECT_NEAR(loss, std::log1p(std::exp(1.0)), 1e-6);
  EXPECT_EQ(row[1], 0.0f);
  for (const float bad : {std::nanf(""), infinity}) {
    float broken[3] = {1.0f, bad, 2.0f};
    EXPECT_FALSE(std::isfinite(cross_entropy_row<1>(Lanes{}, broken, 0, 3, 1.0f, false, 0.0)));
  }
}

TEST(CudaBodiesTest, LanesShareASumOfSquares) {
  for (const std::int64_t n : {1, 3, 4, 1000, 4099}) {
    const at::Tensor x = at::randn({n});
    double sum = 0;
    for (int lane = 0; lane < 64; ++lane) sum += sum_squares_lane(data<float>(x), n, lane, 64);
    const double wanted = wide(x).square().sum().item<double>();
    EXPECT_NEAR(sum, wanted, 1e-12 * wanted) << n;
  }
}

}  // namespace
}  // namespace tailor::kernels::cuda
