// Validation loss and clouds on a small dataset.
#include "model/train/evaluate.h"

#include <ATen/ops/log_softmax.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/rng.h"
#include "model/data/dataset.h"
#include "model/data/token_shard.h"
#include "model/train/clouds.h"
#include "tests/model/support.h"

namespace tailor::train {
namespace {

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest() {
    Rng rng(2);
    for (int i = 0; i < 203; ++i) ids_.push_back(static_cast<std::uint32_t>(rng.below(64)));
    const std::string path = temporary_.path() + "/v.tokens";
    auto writer = data::TokenShardWriter::create(path, 64, 0, std::string(64, 'a'));
    EXPECT_TRUE(writer.has_value());
    EXPECT_TRUE(writer->append(ids_, 203, 1).is_ok());
    EXPECT_TRUE(writer->finish().has_value());
    dataset_.emplace(*data::Dataset::open({path}, {}));
    decoder_.initialise(6, 0.3);
  }

  test::TemporaryFolder temporary_;
  std::vector<std::uint32_t> ids_;
  std::optional<data::Dataset> dataset_;
  net::Decoder decoder_{test::small_architecture(), at::kCPU, false};
};

TEST_F(EvaluateTest, EveryTokenButTheFirstIsScoredOnceWhateverTheBatch) {
  const std::int64_t time = 16;
  // By hand: blocks of T + 1 with stride T, log-probabilities in double.
  const c10::NoGradGuard no_grad;
  double total = 0;
  std::size_t scored = 0;
  for (std::size_t begin = 0; begin + 1 < ids_.size(); begin += 16) {
    const std::size_t count = std::min<std::size_t>(16, ids_.size() - 1 - begin);
    at::Tensor tokens = at::zeros({1, static_cast<std::int64_t>(count)}, at::kLong);
    for (std::size_t i = 0; i < count; ++i)
      tokens[0][static_cast<std::int64_t>(i)] = static_cast<std::int64_t>(ids_[begin + i]);
    const at::Tensor logp = at::log_softmax(decoder_.logits(tokens).to(at::kDouble), -1);
    for (std::size_t i = 0; i < count; ++i) {
      total -= logp[0][static_cast<std::int64_t>(i)][ids_[begin + i + 1]].item<double>();
      ++scored;
    }
  }
  ASSERT_EQ(scored, 202u);
  const auto loader = data::EvaluationLoader::create(*dataset_, time);
  ASSERT_TRUE(loader.has_value());
  for (const std::int64_t rows : {1, 4, 100}) {
    const auto result = evaluate(decoder_, *loader, rows, {});
    ASSERT_TRUE(result.has_value());
    EXPECT_EQ(result->tokens, 202u);
    EXPECT_NEAR(result->loss, total / 202, 1e-6) << rows;
    EXPECT_NEAR(result->perplexity, std::exp(total / 202), 1e-4);
  }
  EXPECT_FALSE(evaluate(decoder_, *loader, 4, [] { return true; }).has_value());
}

TEST_F(EvaluateTest, CloudsAreTheStreamAroundTheFfnAtTheChosenPositions) {
  const auto loader = data::EvaluationLoader::create(*dataset_, 16);
  const std::vector<TokenPosition> positions = choose_positions(12, 16, 20, 5);
  ASSERT_EQ(positions.size(), 20u);
  const auto clouds = take_clouds(decoder_, *loader, positions, {}, false, 3, {});
  ASSERT_TRUE(clouds.has_value());
  ASSERT_EQ(clouds->size(), 2u);
  // One position by hand, through a forward pass of its block alone.
  const c10::NoGradGuard no_grad;
  for (const std::size_t which : {0u, 7u, 19u}) {
    at::Tensor tokens = at::zeros({1, 16}, at::kLong);
    for (std::int64_t i = 0; i < 16; ++i) {
      tokens[0][i] = static_cast<std::int64_t>(
          ids_[positions[which].block * 16 + static_cast<std::size_t>(i)]);
    }
    std::vector<at::Tensor> seen;
    const net::Tap tap = [&](net::Place place, std::int64_t, const at::Tensor& x) {
      if (place == net::Place::kAfterAttention || place == net::Place::kAfterFfn)
        seen.push_back(x.clone());
    };
    decoder_.hidden(tokens, &tap);
    ASSERT_EQ(seen.size(), 4u);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      for (std::int64_t i = 0; i < 32; ++i) {
        const std::size_t at = which * 32 + static_cast<std::size_t>(i);
        EXPECT_NEAR((*clouds)[layer].before[at],
                    seen[2 * layer][positions[which].offset][i].item<float>(), 1e-5);
        EXPECT_NEAR((*clouds)[layer].after[at],
                    seen[2 * layer + 1][positions[which].offset][i].item<float>(), 1e-5);
      }
    }
  }
  const auto one = take_clouds(decoder_, *loader, positions, {1}, false, 3, {});
  ASSERT_TRUE(one.has_value());
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ((*one)[0].layer, 1);
  EXPECT_FALSE(take_clouds(decoder_, *loader, positions, {2}, false, 3, {}).has_value());
}

TEST_F(EvaluateTest, CloudsOfSubMlpsLinkTheStreamOfTheirLayer) {
  shape::Architecture a = test::small_architecture();
  a.ffn_kind = shape::FfnKind::kHourglass;
  a.widths = {{8, 12, 16}, {24}};
  const auto loader = data::EvaluationLoader::create(*dataset_, 16);
  const std::vector<TokenPosition> positions = choose_positions(12, 16, 20, 5);
  for (const auto norm : {shape::FfnNorm::kPerSub, shape::FfnNorm::kFirstOnly}) {
    a.ffn_norm = norm;
    net::Decoder decoder(a, at::kCPU, false);
    decoder.initialise(6, 0.3);
    const auto clouds = take_clouds(decoder, *loader, positions, {0, 1}, true, 3, {});
    ASSERT_TRUE(clouds.has_value());
    ASSERT_EQ(clouds->size(), 6u);
    const auto& all = *clouds;
    const int subs[] = {-1, 0, 1, 2, -1, 0};
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(all[i].layer, i < 4 ? 0 : 1);
      EXPECT_EQ(all[i].sub_block, subs[i]);
      ASSERT_EQ(all[i].before.size(), 20u * 32);
      ASSERT_EQ(all[i].after.size(), 20u * 32);
    }
    EXPECT_EQ(all[1].before, all[0].before);
    EXPECT_EQ(all[2].before, all[1].after);
    EXPECT_EQ(all[3].before, all[2].after);
    EXPECT_EQ(all[3].after, all[0].after);
    EXPECT_NE(all[2].after, all[1].after);
    EXPECT_EQ(all[5].after, all[4].after);
  }
}

TEST(PositionsTest, AtMostFourOfASequenceNeverTheFirstAndFixedBySeed) {
  const auto positions = choose_positions(1000, 32, 512, 3);
  ASSERT_EQ(positions.size(), 512u);
  std::map<std::uint64_t, std::set<std::int64_t>> of_block;
  for (const TokenPosition& position : positions) {
    EXPECT_LT(position.block, 1000u);
    EXPECT_GE(position.offset, 1);
    EXPECT_LT(position.offset, 32);
    EXPECT_TRUE(of_block[position.block].insert(position.offset).second) << "twice";
  }
  EXPECT_EQ(of_block.size(), 128u);
  for (const auto& [block, offsets] : of_block) EXPECT_EQ(offsets.size(), 4u);
  EXPECT_EQ(choose_positions(1000, 32, 512, 3), positions);
  EXPECT_NE(choose_positions(1000, 32, 512, 4), positions);
  // Too few sequences: fewer positions, never more than four of one.
  EXPECT_EQ(choose_positions(2, 32, 512, 3).size(), 8u);
  EXPECT_EQ(choose_positions(2, 3, 512, 3).size(), 4u);
  EXPECT_TRUE(choose_positions(2, 1, 512, 3).empty());
}

}  // namespace
}  // namespace tailor::train
