// Log-likelihoods of continuations under a network (science.md 7.2).
//
// A request's log-likelihood is the sum over its scored ids of log softmax(scores)[id]; it is
// greedy when each of them has the largest score. Scores and log-probabilities are fp32
// (Decoder::scores), sums double.
//
// Requests run in batches of similar length, padded behind their ends, which a causal network does
// not see. A request whose input begins another one's is read off that one's row: choices of one
// token share their context so.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/eval/metrics.h"
#include "model/eval/request.h"
#include "model/eval/task.h"
#include "model/net/decoder.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::eval {

struct BatchOptions {
  std::int64_t rows = 0;  ///< sequences of one forward pass at most; 0 = as `tokens` allows
  /// Padded tokens of one forward pass at most (one row may have more).
  std::int64_t tokens = 8192;
};

/// Told after each forward pass how much of the work is done; false stops with kCancelled.
using Progress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

struct RequestScore {
  double loglikelihood = 0;  ///< nats
  bool is_greedy = false;
};

/// Scores in the order of `requests`. They depend on the batches only by the rounding of products
/// of other shapes. Errors: kCancelled; kOutOfRange when a log-likelihood is not finite (broken
/// weights). REQUIRES: ids below the network's vocabulary.
Result<std::vector<RequestScore>> score_requests(net::Decoder& decoder,
                                                 std::span<const Request> requests,
                                                 const BatchOptions& options,
                                                 const Progress& progress = {});

/// Everything from items to results: encodes all choices, scores them. Errors: those of
/// encode_request, naming item and choice, and of score_requests.
Result<std::vector<ItemResult>> evaluate_items(net::Decoder& decoder,
                                               tokenizers::Tokenizer& tokenizer,
                                               const Encoding& encoding, std::string_view task,
                                               std::span<const Item> items,
                                               const BatchOptions& options,
                                               const Progress& progress = {});

}  // namespace tailor::eval
