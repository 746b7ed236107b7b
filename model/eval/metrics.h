// From log-likelihoods to accuracies (science.md 7.2).
//
//   acc        the choice with the largest log-likelihood is the right one
//   acc_norm   the same with each divided by the characters (code points) of the choice
//   acc_bytes  the same with UTF-8 bytes
//
// The delimiter before a choice counts in neither length. The first of equals wins. The standard
// error of an accuracy p over n items is sqrt(p (1 - p) / (n - 1)).
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/eval/task.h"

namespace tailor::eval {

/// What the model said to one choice.
struct ScoredChoice {
  double loglikelihood = 0;  ///< nats, summed over the continuation's tokens; finite
  bool is_greedy = false;    ///< each of its tokens was the likeliest
  std::size_t tokens = 0;    ///< that were scored
  std::size_t characters = 0;
  std::size_t bytes = 0;
  friend bool operator==(const ScoredChoice&, const ScoredChoice&) = default;
};

/// One item and what the model said: a line of a records file.
struct ItemResult {
  std::string task;
  std::string id;
  std::string digest;              ///< Item::digest
  std::size_t gold = 0;            ///< below choices.size()
  std::size_t context_tokens = 0;  ///< of the first choice's context, before any cut
  std::size_t cut_tokens = 0;      ///< the most that were cut off the front for one of the choices
  std::vector<ScoredChoice> choices;
  friend bool operator==(const ItemResult&, const ItemResult&) = default;
};

enum class Metric { kAcc, kAccNorm, kAccBytes };
inline constexpr std::array kMetrics = {Metric::kAcc, Metric::kAccNorm, Metric::kAccBytes};
/// "acc", "acc_norm", "acc_bytes".
std::string_view metric_name(Metric metric);

/// Index of the choice that wins. A choice without characters never beats one that has some.
/// REQUIRES: choices is not empty.
std::size_t answer(std::span<const ScoredChoice> choices, Metric metric);
inline bool is_right(const ItemResult& item, Metric metric) {
  return answer(item.choices, metric) == item.gold;
}

/// A proportion of items.
struct Accuracy {
  double value = 0;
  double standard_error = 0;  ///< NaN for a single item
};
/// REQUIRES: items is not empty.
Accuracy accuracy(std::span<const ItemResult> items, Metric metric);

}  // namespace tailor::eval
