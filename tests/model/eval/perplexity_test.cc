// Perplexity against log-softmax of whole logits, window by window.
#include "model/eval/perplexity.h"

#include <ATen/ops/log_softmax.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/hash.h"
#include "base/rng.h"
#include "tests/model/support.h"

namespace tailor::eval {
namespace {

using ::testing::HasSubstr;

class PerplexityTest : public ::testing::Test {
 protected:
  PerplexityTest() : decoder_(test::small_architecture(), at::kCPU, false) {
    decoder_.initialise(7, 0.3);
    Rng rng(3);
    for (int i = 0; i < 45; ++i) ids_.push_back(static_cast<std::uint32_t>(rng.below(64)));
  }

  TokenStream stream() const {
    TokenStream stream;
    stream.count = ids_.size();
    stream.text_bytes = 100;
    stream.read = [this](std::uint64_t position, std::span<std::uint32_t> out) {
      EXPECT_LE(position + out.size(), ids_.size());
      std::copy_n(ids_.begin() + static_cast<std::ptrdiff_t>(position), out.size(), out.begin());
      return Status::ok();
    };
    return stream;
  }

  /// -log p(ids[last]) after ids[first] .. ids[last - 1].
  double nats(std::size_t first, std::size_t last) {
    const c10::NoGradGuard no_grad;
    at::Tensor tokens = at::zeros({1, static_cast<std::int64_t>(last - first)}, at::kLong);
    std::copy(ids_.begin() + static_cast<std::ptrdiff_t>(first),
              ids_.begin() + static_cast<std::ptrdiff_t>(last),
              tokens.mutable_data_ptr<std::int64_t>());
    return -at::log_softmax(decoder_.logits(tokens)[0][-1].to(at::kDouble), 0)[ids_[last]]
                .item<double>();
  }

  net::Decoder decoder_;
  std::vector<std::uint32_t> ids_;
};

TEST_F(PerplexityTest, SideBySideEveryTokenSeesItsOwnBlock) {
  double sum = 0;
  for (std::size_t last = 1; last < ids_.size(); ++last) sum += nats((last - 1) / 8 * 8, last);
  for (const std::int64_t rows : {0, 1, 4}) {
    PerplexityOptions options;
    options.length = 8;
    options.batch.rows = rows;
    const auto found = evaluate_perplexity(decoder_, stream(), options);
    ASSERT_TRUE(found.has_value()) << found.error().to_string();
    EXPECT_EQ(found->scored, 44u);
    EXPECT_EQ(found->windows, 6u);
    EXPECT_NEAR(found->loss, sum / 44, 1e-5);
    EXPECT_NEAR(found->perplexity, std::exp(sum / 44), 1e-3);
    EXPECT_NEAR(found->bits_per_byte, sum / std::log(2.0) / 100, 1e-5);
    EXPECT_GT(found->standard_error, 0);
    EXPECT_LT(found->standard_error, found->loss);
  }
}

TEST_F(PerplexityTest, StridedWindowsScoreTheirLastTokensWithMoreContext) {
  double sum = 0;
  for (std::size_t last = 1; last < ids_.size(); ++last) {
    const std::size_t window = last <= 8 ? 0 : (last - 8 - 1) / 3 + 1;
    sum += nats(window * 3, last);
  }
  PerplexityOptions options;
  options.length = 8;
  options.stride = 3;
  const auto found = evaluate_perplexity(decoder_, stream(), options);
  ASSERT_TRUE(found.has_value()) << found.error().to_string();
  EXPECT_EQ(found->scored, 44u);
  EXPECT_EQ(found->windows, 13u);
  EXPECT_NEAR(found->loss, sum / 44, 1e-5);
}

TEST_F(PerplexityTest, NamesTheTokensByTheirHashHoweverTheyAreCut) {
  const std::string hash =
      sha256_hex({reinterpret_cast<const char*>(ids_.data()), ids_.size() * sizeof(std::uint32_t)});
  for (const auto& [length, stride] : {std::pair(8, 8), std::pair(8, 3), std::pair(100, 100),
                                       std::pair(5, 1), std::pair(44, 44), std::pair(1, 1)}) {
    PerplexityOptions options;
    options.length = length;
    options.stride = stride;
    EXPECT_EQ(evaluate_perplexity(decoder_, stream(), options)->tokens_sha256, hash);
  }
}

TEST_F(PerplexityTest, HasNoStandardErrorForOneBlockAndNoBitsWithoutBytes) {
  TokenStream unknown = stream();
  unknown.text_bytes = 0;
  PerplexityOptions options;
  options.length = 44;
  const auto found = evaluate_perplexity(decoder_, unknown, options);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(std::isnan(found->standard_error));
  EXPECT_TRUE(std::isnan(found->bits_per_byte));
}

TEST_F(PerplexityTest, RefusesWhatCannotBeScored) {
  PerplexityOptions options;
  const auto message = [&](const TokenStream& stream, std::int64_t length, std::int64_t stride) {
    options.length = length;
    options.stride = stride;
    const auto found = evaluate_perplexity(decoder_, stream, options);
    EXPECT_EQ(found.error().code(), Code::kInvalidArgument);
    return found.error().message();
  };
  TokenStream one = stream();
  one.count = 1;
  EXPECT_THAT(message(one, 8, 8), HasSubstr("at least two"));
  EXPECT_THAT(message(stream(), 0, 0), HasSubstr("window 0"));
  EXPECT_THAT(message(stream(), 8, 9), HasSubstr("stride 9"));
  ids_[30] = 64;
  EXPECT_THAT(message(stream(), 8, 8), HasSubstr("token id 64 at position 30"));
  ids_[30] = 0;
  TokenStream cut = stream();
  cut.read = [](std::uint64_t, std::span<std::uint32_t>) { return Status(Code::kDataLoss, "cut"); };
  EXPECT_EQ(evaluate_perplexity(decoder_, cut, {}).error().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace tailor::eval
