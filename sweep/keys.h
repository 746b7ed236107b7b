// Every key that [architecture], [[candidate]], [space] and [train] may set: one table, so that a
// key has the same type, range and meaning wherever it is written. To add one: a line in keys.cc,
// and its use in candidate.cc (architecture) or set_train (recipe).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sweep/spec.h"

namespace tailor::sweep {

enum class KeyKind {
  kInteger,
  kNumber,
  kBoolean,
  kChoice,  ///< one of `allowed`
  kBetas,   ///< two numbers: beta1 and beta2 at once
  kText,    ///< text or an integer, read by set_train ("0.5M tokens", "10 min")
  kWidths,  ///< a list of widths a layer, or of one width a layer; kept as text (widths.h)
};

/// One key. Architecture keys have their path as in [architecture];
/// those of the recipe start with "train.", those
/// of the budget with "budget.".
struct Key {
  std::string_view path;
  KeyKind kind = KeyKind::kInteger;
  double low = 0, high = 0;  ///< inclusive, for numbers
  std::vector<std::string_view> allowed = {};
};

std::span<const Key> architecture_keys();
std::span<const Key> train_keys();
/// "budget.parameters": the budget of one candidate. Not of [architecture] or [train].
std::span<const Key> budget_keys();
/// nullptr when there is no such key.
const Key* find_key(std::string_view path);

/// Ok, or what is wrong with `value` and what is allowed.
Status check_value(const Key& key, const AxisValue& value);

/// Sets the field of the recipe that `path` ("train....") names. Batches are whole sequences: text
/// ("0.5M tokens") is rounded to the nearest, an integer must be a multiple.
/// Errors: kInvalidArgument with what is allowed; the recipe is then unchanged.
Status set_train(std::string_view path, const AxisValue& value, std::int64_t sequence_length,
                 protocol::TrainSpec* train, double* tokens_per_parameter);

/// Checks fields against each other and lowers micro_batch_tokens to the largest number of whole
/// sequences that divides the batch. Errors: kInvalidArgument.
Status finish_train(std::int64_t sequence_length, double tokens_per_parameter,
                    protocol::TrainSpec* train);

/// "0.5M tokens", "2.2B", "4096": a whole number of tokens. Errors: kInvalidArgument.
Result<std::int64_t> parse_token_count(std::string_view text);

}  // namespace tailor::sweep
