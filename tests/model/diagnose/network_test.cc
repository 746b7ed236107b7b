// Forward passes layer by layer: the bits of the whole decoder for every family, whatever the room
// for weights; and losses under perturbation against a network whose answer is known.
#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/diagnose/forward.h"
#include "model/diagnose/streamed_network.h"
#include "model/pretrained/config.h"
#include "model/pretrained/model.h"
#include "tests/model/pretrained/reference_models.h"

namespace tailor::diagnose {
namespace {

using test::reference;
using testing::HasSubstr;

class StreamedFamilies : public testing::TestWithParam<std::string> {};

TEST_P(StreamedFamilies, GiveTheBitsOfTheWholeDecoder) {
  const c10::NoGradGuard no_grad;
  const test::TemporaryFolder temporary;
  const std::string folder = test::checkpoint_folder(GetParam(), "config.json", temporary.path());
  const auto form = pretrained::read_config(folder);
  const auto source = pretrained::open_pretrained(folder);
  ASSERT_TRUE(form.has_value() && source.has_value());
  const at::Tensor tokens = test::npy(reference(test::input_of(GetParam()) + "/input_ids.npy"));
  const std::int64_t time = tokens.size(1) - 1;
  const at::Tensor inputs = tokens.narrow(1, 0, time).contiguous();
  const at::Tensor targets = tokens.narrow(1, 1, time).contiguous();

  for (const bool bf16 : {false, true}) {
    const auto whole = pretrained::load_decoder(*form, **source, at::kCPU, bf16);
    ASSERT_TRUE(whole.has_value());
    const at::Tensor expected = (*whole)->sequence_losses(inputs, targets);
    const WeightBytes bytes = weight_bytes(*form, bf16);
    EXPECT_EQ(bytes.parameters, (*whole)->parameters().size());
    // Room for all layers, for some, and for one.
    for (const double room :
         {bytes.all, bytes.ends + 2.5 * bytes.layer, bytes.ends + bytes.layer}) {
      StreamOptions options;
      options.bf16 = bf16;
      options.weight_bytes = room;
      const auto network = make_streamed_network(*form, **source, options);
      ASSERT_TRUE(network.has_value()) << network.error().message();
      for (int again = 0; again < 2; ++again) {
        const ScoredTokens scored{inputs, targets, time};
        const auto losses = run_probes(**network, scored, {}, 0);
        ASSERT_TRUE(losses.has_value());
        for (std::int64_t s = 0; s < inputs.size(0); ++s) {
          EXPECT_EQ(losses->clean[static_cast<std::size_t>(s)], expected[s].item<double>());
        }
      }
    }
  }
}

TEST_P(StreamedFamilies, GiveTheCloudsOfTheWholeDecoder) {
  const c10::NoGradGuard no_grad;
  const test::TemporaryFolder temporary;
  const std::string folder = test::checkpoint_folder(GetParam(), "config.json", temporary.path());
  const auto form = pretrained::read_config(folder);
  const auto source = pretrained::open_pretrained(folder);
  const auto whole = pretrained::load_decoder(*form, **source, at::kCPU, false);
  const at::Tensor tokens = test::npy(reference(test::input_of(GetParam()) + "/input_ids.npy"));
  StreamOptions options;
  options.weight_bytes = 1e9;
  const auto network = make_streamed_network(*form, **source, options);
  ASSERT_TRUE(network.has_value());

  std::map<std::pair<net::Place, std::int64_t>, at::Tensor> seen;
  const net::Tap tap = [&](net::Place place, std::int64_t layer, const at::Tensor& x_nd) {
    seen[{place, layer}] = x_nd.clone();
  };
  (*whole)->hidden(tokens, &tap);
  const std::int64_t time = tokens.size(1);
  const std::int64_t d = form->d_model;
  std::vector<std::vector<std::int64_t>> sequences, offsets;
  for (std::int64_t s = 0; s < tokens.size(0); ++s) {
    const auto* row = tokens.const_data_ptr<std::int64_t>() + s * time;
    sequences.emplace_back(row, row + time);
    offsets.push_back({1 + s, time - 1});
  }
  int layers = 0;
  const Status status = take_cloud_rows(
      **network, sequences, offsets,
      [&](std::int64_t layer, std::span<const float> before, std::span<const float> after) {
        ++layers;
        std::size_t at = 0;
        for (std::size_t s = 0; s < offsets.size(); ++s) {
          for (const std::int64_t offset : offsets[s]) {
            const std::int64_t row = static_cast<std::int64_t>(s) * time + offset;
            for (const auto& [side, place] : {std::pair(before, net::Place::kAfterAttention),
                                              std::pair(after, net::Place::kAfterFfn)}) {
              const at::Tensor mine = at::from_blob(const_cast<float*>(side.data() + at), {d});
              EXPECT_LT(test::relative_difference(mine, seen[{place, layer}][row]), 5e-6);
            }
            at += static_cast<std::size_t>(d);
          }
        }
        EXPECT_EQ(at, before.size());
        return Status::ok();
      });
  EXPECT_TRUE(status.is_ok());
  EXPECT_EQ(layers, form->depth());
}

INSTANTIATE_TEST_SUITE_P(Families, StreamedFamilies, testing::ValuesIn(test::reference_models()));

TEST(StreamedNetwork, WithoutRoomForOneLayerSaysWhatItNeeds) {
  const auto form = pretrained::read_config(reference("olmo2"));
  const auto source = pretrained::open_pretrained(reference("olmo2"));
  const auto network = make_streamed_network(*form, **source, {});
  ASSERT_FALSE(network.has_value());
  EXPECT_EQ(network.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(network.error().message(), HasSubstr("--memory"));
}

// A network that is linear but for its loss, a square:
//
//   x_{l+1} = x_l + x_l A_l,   loss of a row = |x_L W|^2 / 2
//
// so that the loss change under relative noise is a quadratic of eps, and its mean over xi is
//   eps^2 / 2 * mean over rows of rms(f_l)^2 * |J_l W|_F^2,   J_l = product of (I + A_m), m > l.
class LinearNetwork final : public ProbeNetwork {
 public:
  explicit LinearNetwork(double coupling) {
    const auto wide = at::TensorOptions().dtype(at::kFloat);
    embedding_ = at::randn({16, kWidth}, wide);
    for (int l = 0; l < kDepth; ++l) {
      const double size = (l + 1) * 0.3 / std::sqrt(kWidth);
      weights_.push_back(at::randn({kWidth, kWidth}, wide) * size);
    }
    coupling_ = coupling;
    head_ = at::randn({kWidth, 2 * kWidth}, wide);
  }
  std::int64_t depth() const override { return kDepth; }
  std::int64_t width() const override { return kWidth; }
  double layer_parameters() const override { return kWidth * kWidth; }
  double head_parameters() const override { return kWidth; }
  at::Device device() const override { return at::kCPU; }
  Status load(std::int64_t layer) override {
    layer_ = static_cast<std::size_t>(layer);
    return Status::ok();
  }
  at::Tensor start(const at::Tensor& tokens_gt) override {
    return embedding_.index_select(0, tokens_gt.reshape({-1}));
  }
  AroundFfn pass(const at::Tensor& x_nd, std::int64_t) override {
    return {x_nd.clone(), x_nd + at::matmul(x_nd, weights_[layer_]) * coupling_};
  }
  at::Tensor row_losses(const at::Tensor& x_nd, const at::Tensor&) override {
    return at::matmul(x_nd, head_).to(at::kDouble).pow(2).sum(1) / 2;
  }

  /// lambda_l over `tokens`, all rows scored.
  double lambda(int layer, const at::Tensor& tokens_gt) {
    at::Tensor x = start(tokens_gt);
    for (int l = 0; l < layer; ++l) x = x + at::matmul(x, weights_[l]) * coupling_;
    const at::Tensor f = at::matmul(x, weights_[layer]) * coupling_;
    at::Tensor jacobian = at::eye(kWidth);
    for (int l = layer + 1; l < kDepth; ++l) {
      jacobian = at::matmul(jacobian, at::eye(kWidth) + weights_[l] * coupling_);
    }
    const double norm = at::matmul(jacobian, head_).pow(2).sum().item<double>();
    return f.pow(2).mean(1).mean().item<double>() * norm / 2;
  }

  static constexpr int kDepth = 4;
  static constexpr int kWidth = 24;

 private:
  at::Tensor embedding_, head_;
  std::vector<at::Tensor> weights_;
  double coupling_ = 1;
  std::size_t layer_ = 0;
};

ScoredTokens linear_tokens() {
  at::Tensor tokens = at::zeros({6, 10}, at::kLong);
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.view({-1})[i] = (i * 7 + i / 5) % 16;
  }
  return {tokens, tokens, 10};
}

Sensitivity probed(ProbeNetwork& network, const ProbeOptions& options) {
  const ScoredTokens tokens = linear_tokens();
  ProbeResults results;
  results.scored_tokens = tokens.scored;
  results.probes = plan_probes(static_cast<int>(network.depth()), options);
  const auto losses = run_probes(network, tokens, results.probes, 11);
  EXPECT_TRUE(losses.has_value());
  results.clean = losses->clean;
  results.losses = losses->probes;
  return *Sensitivity::create(results, static_cast<int>(network.depth()), options);
}

TEST(RunProbes, SensitivityOfALinearModelIsItsClosedForm) {
  LinearNetwork network(1);
  ProbeOptions options;
  options.draws = 300;
  options.subsets = 0;
  options.eps = {0.5, 1, 2};  // a quadratic is one at any size, and noise of first order is less
  const Sensitivity found = probed(network, options);
  const auto layers = found.layers(Perturbation::kRelative);
  for (int l = 0; l < LinearNetwork::kDepth; ++l) {
    const double expected = network.lambda(l, linear_tokens().tokens_gt);
    const LayerSensitivity& layer = layers[static_cast<std::size_t>(l)];
    EXPECT_NEAR(*layer.lambda.value, expected, 4 * *layer.lambda.standard_error) << l;
    EXPECT_NEAR(*layer.lambda.value, expected, 0.15 * expected) << l;
    EXPECT_GT(*layer.r_squared, 0.99) << l;
  }
}

TEST(RunProbes, AttenuationAndAblationOfALinearModelAreExact) {
  LinearNetwork network(1);
  ProbeOptions options;
  options.kinds = {Perturbation::kAttenuation, Perturbation::kAblation};
  options.subsets = 0;
  const Sensitivity found = probed(network, options);
  // f_l times (1 - eps), recomputed by hand.
  const ScoredTokens tokens = linear_tokens();
  const auto loss = [&](int layer, double eps) {
    at::Tensor x = network.start(tokens.tokens_gt);
    for (int l = 0; l < LinearNetwork::kDepth; ++l) {
      EXPECT_TRUE(network.load(l).is_ok());
      const AroundFfn around = network.pass(x, 6);
      x = l == layer ? around.before + (around.after - around.before) * (1 - eps) : around.after;
    }
    return network.row_losses(x, tokens.targets_gt).mean().item<double>();
  };
  const auto attenuated = found.layers(Perturbation::kAttenuation);
  const auto ablated = found.layers(Perturbation::kAblation);
  for (int l = 0; l < LinearNetwork::kDepth; ++l) {
    const auto at = static_cast<std::size_t>(l);
    for (std::size_t e = 0; e < 3; ++e) {
      const double expected = loss(l, options.eps[e]) - loss(l, 0);
      EXPECT_NEAR(*attenuated[at].loss_changes[e].value, expected, 1e-5 * std::abs(loss(l, 0)));
    }
    EXPECT_NEAR(*ablated[at].lambda.value, loss(l, 1) - loss(l, 0), 1e-5 * std::abs(loss(l, 0)));
  }
}

TEST(RunProbes, AbsoluteNoiseIsRelativeToTheStream) {
  LinearNetwork network(1);
  ProbeOptions options;
  options.kinds = {Perturbation::kRelative, Perturbation::kAbsolute};
  options.subsets = 0;
  options.draws = 60;
  options.eps = {0.5, 1, 2};
  const Sensitivity found = probed(network, options);
  const auto relative = found.lambdas(Perturbation::kRelative);
  const auto absolute = found.lambdas(Perturbation::kAbsolute);
  ASSERT_TRUE(relative.has_value() && absolute.has_value());
  // The same noise in another size: rms(x_0) for rms(f_0).
  ASSERT_TRUE(network.load(0).is_ok());
  const AroundFfn around = network.pass(network.start(linear_tokens().tokens_gt), 6);
  const double ratio =
      (around.before.pow(2).mean() / (around.after - around.before).pow(2).mean()).item<double>();
  EXPECT_GT(ratio, 5);
  EXPECT_NEAR((*absolute)[0] / (*relative)[0], ratio, 0.15 * ratio);
}

TEST(RunProbes, AQuadraticLossWithIndependentNoiseIsLocallyAdditive) {
  LinearNetwork network(0.02);  // nearly nothing of a perturbation changes a later f
  ProbeOptions options;
  options.draws = 40;
  options.subset_sizes = {2, 0};
  options.eps = {0.5, 1, 2};
  const Sensitivity found = probed(network, options);
  for (const AdditivitySummary& summary : found.additivity()) {
    if (summary.size != LinearNetwork::kDepth) continue;
    ASSERT_TRUE(summary.median.value.has_value());
    EXPECT_NEAR(*summary.median.value, 1, 0.15) << summary.eps;
  }
}

TEST(RunProbes, APassWithoutOthersGivesTheSameLossesButForRounding) {
  LinearNetwork network(1);
  ProbeOptions options;
  const auto probes = plan_probes(LinearNetwork::kDepth, options);
  const ScoredTokens tokens = linear_tokens();
  const auto together = run_probes(network, tokens, probes, 11);
  ASSERT_TRUE(together.has_value());
  for (std::size_t i = 0; i < probes.size(); i += 7) {
    const auto alone = run_probes(network, tokens, {&probes[i], 1}, 11);
    for (std::size_t s = 0; s < alone->clean.size(); ++s) {
      EXPECT_NEAR(alone->probes[0][s], together->probes[i][s], 1e-5 * alone->clean[s]) << i;
    }
  }
  const auto other = run_probes(network, tokens, {&probes[0], 1}, 12);
  EXPECT_NE(other->probes[0][0], together->probes[0][0]);  // the seed is that of the noise
}

TEST(ProbesPerPass, BoundMemory) {
  EXPECT_EQ(probes_per_pass(512, 4096), 32u);
  EXPECT_EQ(probes_per_pass(32'768, 4096), 4u);
  EXPECT_EQ(probes_per_pass(10'000'000, 8192), 1u);
}

}  // namespace
}  // namespace tailor::diagnose
