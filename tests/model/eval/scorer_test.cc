// Log-likelihoods of a network: against lm-evaluation-harness's run of the same checkpoint, and
// against log-softmax of whole logits.
#include "model/eval/scorer.h"

#include <ATen/ops/log_softmax.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "model/pretrained/model.h"
#include "tests/model/eval/reference_items.h"
#include "tests/model/support.h"

namespace tailor::eval {
namespace {

using ::testing::HasSubstr;

const Encoding kBytes = {std::nullopt, 256, 256, 1024};

std::unique_ptr<net::Decoder> reference_model() {
  auto model = pretrained::load_model(test::reference("llama_untied"), at::kCPU, false);
  EXPECT_TRUE(model.has_value()) << model.error().to_string();
  return model ? *std::move(model) : nullptr;
}

void expect_reference_results(const std::vector<ItemResult>& results, const nlohmann::json& run) {
  ASSERT_EQ(results.size(), run["per_item"].size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& expected = run["per_item"][i];
    ASSERT_EQ(results[i].choices.size(), expected["loglikelihoods"].size());
    EXPECT_EQ(results[i].context_tokens, expected["context_tokens"]);
    for (std::size_t c = 0; c < results[i].choices.size(); ++c) {
      const double right = expected["loglikelihoods"][c];
      EXPECT_NEAR(results[i].choices[c].loglikelihood, right, 1e-3 + 1e-5 * std::abs(right));
      EXPECT_EQ(results[i].choices[c].is_greedy, expected["is_greedy"][c]);
      EXPECT_EQ(results[i].choices[c].tokens, expected["continuation_tokens"][c]);
    }
    EXPECT_EQ(is_right(results[i], Metric::kAcc), expected["acc"] == 1.0);
    EXPECT_EQ(is_right(results[i], Metric::kAccNorm), expected["acc_norm"] == 1.0);
  }
  EXPECT_EQ(accuracy(results, Metric::kAcc).value, run["acc"]);
  EXPECT_EQ(accuracy(results, Metric::kAccNorm).value, run["acc_norm"]);
}

TEST(EvalScorerTest, GivesTheHarnessResultsForItsCheckpointWhateverTheBatch) {
  const auto model = reference_model();
  ASSERT_NE(model, nullptr);
  const auto tokenizer = tokenizers::make_byte_tokenizer();
  for (const BatchOptions batch : {BatchOptions{}, BatchOptions{1, 8192}, BatchOptions{0, 700}}) {
    for (const auto& [task, run] : reference_scoring()["byte_model_run"]["tasks"].items()) {
      SCOPED_TRACE(task);
      const std::vector<Item> items = reference_items(task);
      const auto results = evaluate_items(*model, *tokenizer, kBytes, task, items, batch);
      ASSERT_TRUE(results.has_value()) << results.error().to_string();
      expect_reference_results(*results, run);
      EXPECT_EQ(results->front().digest, items.front().digest());
    }
  }
}

/// -log p of each id of `ids` after those before it; [0] is unused.
std::vector<double> log_p_of(net::Decoder& decoder, const std::vector<std::uint32_t>& ids) {
  at::Tensor tokens = at::zeros({1, static_cast<std::int64_t>(ids.size())}, at::kLong);
  std::ranges::copy(ids, tokens.mutable_data_ptr<std::int64_t>());
  const at::Tensor p = at::log_softmax(decoder.logits(tokens)[0].to(at::kDouble), 1);
  std::vector<double> log_p(ids.size());
  for (std::size_t i = 1; i < ids.size(); ++i) {
    log_p[i] = p[static_cast<std::int64_t>(i) - 1][ids[i]].item<double>();
  }
  return log_p;
}

TEST(EvalScorerTest, ReadsRequestsThatBeginOneAnotherOffOneRow) {
  const c10::NoGradGuard no_grad;
  net::Decoder decoder(test::small_architecture(), at::kCPU, false);
  decoder.initialise(5, 0.2);
  Rng rng(9);
  std::vector<std::uint32_t> longest;
  for (int i = 0; i < 12; ++i) longest.push_back(static_cast<std::uint32_t>(rng.below(64)));
  // Every beginning of one sequence, other last ids, equal requests, and some of their own.
  std::vector<Request> requests;
  for (std::size_t length = 2; length <= longest.size(); ++length) {
    Request request;
    request.ids.assign(longest.begin(), longest.begin() + static_cast<std::ptrdiff_t>(length));
    request.scored = 1 + rng.below(length - 1);
    requests.push_back(request);
    request.ids.back() = (request.ids.back() + 1) % 64;
    requests.push_back(request);
    request.ids.front() = static_cast<std::uint32_t>(rng.below(64));
    requests.push_back(request);
  }
  requests.push_back(requests[4]);
  std::uint64_t rows = 0;
  const auto scores =
      score_requests(decoder, requests, {3, 8192}, [&](std::uint64_t done, std::uint64_t total) {
        EXPECT_LE(done, total);
        rows = total;
        return true;
      });
  ASSERT_TRUE(scores.has_value());
  EXPECT_LE(rows, 13u);  // of 34 requests
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::vector<double> log_p = log_p_of(decoder, requests[i].ids);
    double sum = 0;
    for (std::size_t k = log_p.size() - requests[i].scored; k < log_p.size(); ++k) sum += log_p[k];
    EXPECT_NEAR((*scores)[i].loglikelihood, sum, 1e-4);
  }
}

TEST(EvalScorerTest, IsGreedyWhenEveryTokenIsTheLikeliest) {
  const c10::NoGradGuard no_grad;
  net::Decoder decoder(test::small_architecture(), at::kCPU, false);
  decoder.initialise(6, 0.3);
  std::vector<std::uint32_t> ids = {7, 9};
  for (int i = 0; i < 4; ++i) {
    at::Tensor tokens = at::zeros({1, static_cast<std::int64_t>(ids.size())}, at::kLong);
    std::ranges::copy(ids, tokens.mutable_data_ptr<std::int64_t>());
    ids.push_back(
        static_cast<std::uint32_t>(decoder.logits(tokens)[0][-1].argmax().item<std::int64_t>()));
  }
  Request greedy{ids, 4, 2, 0};
  Request other = greedy;
  other.ids[3] = (other.ids[3] + 1) % 64;
  other.ids[4] = ids[4];
  const auto scores = score_requests(decoder, std::vector{greedy, other}, {});
  ASSERT_TRUE(scores.has_value());
  EXPECT_TRUE((*scores)[0].is_greedy);
  EXPECT_FALSE((*scores)[1].is_greedy);
}

TEST(EvalScorerTest, RefusesScoresThatAreNotFinite) {
  const c10::NoGradGuard no_grad;
  net::Decoder decoder(test::small_architecture(), at::kCPU, false);
  decoder.initialise(5, 0.2);
  decoder.parameters().flat().select(0, 9).fill_(std::numeric_limits<float>::quiet_NaN());
  const auto scores = score_requests(decoder, std::vector{Request{{0, 1, 2}, 2, 1, 0}}, {});
  ASSERT_FALSE(scores.has_value());
  EXPECT_EQ(scores.error().code(), Code::kOutOfRange);
}

TEST(EvalScorerTest, StopsWhenTold) {
  net::Decoder decoder(test::small_architecture(), at::kCPU, false);
  const std::vector<Request> requests = {{{0, 1, 2}, 2, 1, 0}, {{5, 1, 2}, 2, 1, 0}};
  int calls = 0;
  const auto scores = score_requests(decoder, requests, {1, 8192}, [&](auto, auto) {
    ++calls;
    return false;
  });
  EXPECT_EQ(scores.error().code(), Code::kCancelled);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(score_requests(decoder, {}, {})->empty());
}

TEST(EvalScorerTest, NamesTheItemAndChoiceThatCannotBeScored) {
  net::Decoder decoder(test::small_architecture(), at::kCPU, false);
  const auto tokenizer = tokenizers::make_byte_tokenizer();
  Encoding encoding = {std::nullopt, 0, 256, 8};
  const std::vector<Item> items = {{"first", "Q:", {"a", "b"}, 0},
                                   {"second", "Q:", {"a", "much too long"}, 0}};
  const auto results = evaluate_items(decoder, *tokenizer, encoding, "t", items, {});
  ASSERT_FALSE(results.has_value());
  EXPECT_THAT(results.error().message(),
              HasSubstr("t, item \"second\", choice 2: the continuation"));
}

}  // namespace
}  // namespace tailor::eval
