#include "model/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace tailor::data {
namespace {

constexpr std::uint64_t kFeistelRounds = 4;

Status check_sequence_length(std::int64_t sequence_length) {
  if (sequence_length >= 1) return Status::ok();
  return Status(Code::kInvalidArgument,
                fmt::format("sequence length {} is not positive", sequence_length));
}

/// One row: inputs tokens[0, n), targets tokens[1, n], where n = inputs.size().
template <typename Int>
void split_row(std::span<const std::uint32_t> tokens, std::span<Int> inputs,
               std::span<Int> targets) {
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    inputs[t] = static_cast<Int>(tokens[t]);
    targets[t] = static_cast<Int>(tokens[t + 1]);
  }
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t key) : size_(size), key_(key) {
  TAILOR_CHECK(size > 0);
  const auto bits = static_cast<unsigned>(std::bit_width(size - 1));
  half_bits_ = std::max(1u, (bits + 1) / 2);
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  TAILOR_CHECK(index < size_, "index {} of {}", index, size_);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t value = index;
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < kFeistelRounds; ++round) {
      const std::uint64_t next = left ^ (keyed_u64(key_, round, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return value;
}

TrainLoader::TrainLoader(const Dataset& dataset, std::int64_t sequence_length, std::uint64_t seed)
    : dataset_(&dataset),
      sequence_length_(sequence_length),
      seed_(seed),
      window_count_((dataset.token_count() - 1) / static_cast<std::uint64_t>(sequence_length)) {}

Result<TrainLoader> TrainLoader::create(const Dataset& dataset, std::int64_t sequence_length,
                                        std::uint64_t seed) {
  TAILOR_RETURN_IF_ERROR(check_sequence_length(sequence_length));
  if (dataset.token_count() < static_cast<std::uint64_t>(sequence_length) + 1) {
    return error(
        Code::kInvalidArgument,
        fmt::format("the training shards ({} ...) hold {} tokens, fewer than one sequence of "
                    "{} and its target: give more text or a shorter sequence",
                    dataset.shards().front().path(), dataset.token_count(), sequence_length));
  }
  return TrainLoader(dataset, sequence_length, seed);
}

std::uint64_t TrainLoader::window_of(std::uint64_t sample) const {
  const std::uint64_t epoch = sample / window_count_;
  const std::uint64_t key = keyed_u64(stable_hash("loader.order", seed_), epoch, 0);
  return Permutation(window_count_, key)(sample % window_count_);
}

template <typename Int>
Status TrainLoader::fill(std::uint64_t first_sample, std::span<Int> inputs,
                         std::span<Int> targets) const {
  const auto length = static_cast<std::size_t>(sequence_length_);
  TAILOR_CHECK(inputs.size() == targets.size() && inputs.size() % length == 0,
               "spans of {} and {} for rows of {}", inputs.size(), targets.size(), length);
  std::vector<std::uint32_t> tokens(length + 1);
  for (std::size_t row = 0; row < inputs.size() / length; ++row) {
    const std::uint64_t window = window_of(first_sample + row);
    TAILOR_RETURN_IF_ERROR(dataset_->read(window * length, tokens));
    split_row<Int>(tokens, inputs.subspan(row * length, length),
                   targets.subspan(row * length, length));
  }
  return Status::ok();
}

template <typename Int>
Status TrainLoader::batch(std::uint64_t step, std::uint64_t batch_sequences, std::span<Int> inputs,
                          std::span<Int> targets) const {
  TAILOR_CHECK(inputs.size() == batch_sequences * static_cast<std::uint64_t>(sequence_length_));
  return fill(step * batch_sequences, inputs, targets);
}

EvaluationLoader::EvaluationLoader(const Dataset& dataset, std::int64_t sequence_length,
                                   std::uint64_t scored_tokens)
    : dataset_(&dataset),
      sequence_length_(sequence_length),
      scored_tokens_(scored_tokens),
      block_count_((scored_tokens + static_cast<std::uint64_t>(sequence_length) - 1) /
                   static_cast<std::uint64_t>(sequence_length)) {}

Result<EvaluationLoader> EvaluationLoader::create(const Dataset& dataset,
                                                  std::int64_t sequence_length,
                                                  std::uint64_t scored_tokens_max) {
  TAILOR_RETURN_IF_ERROR(check_sequence_length(sequence_length));
  if (dataset.token_count() < 2) {
    return error(Code::kInvalidArgument,
                 fmt::format("the validation shard {} holds {} token; scoring needs two",
                             dataset.shards().front().path(), dataset.token_count()));
  }
  std::uint64_t scored = dataset.token_count() - 1;
  if (scored_tokens_max > 0) scored = std::min(scored, scored_tokens_max);
  return EvaluationLoader(dataset, sequence_length, scored);
}

template <typename Int>
Result<std::uint64_t> EvaluationLoader::fill(std::uint64_t first_block, std::span<Int> inputs,
                                             std::span<Int> targets) const {
  const auto length = static_cast<std::size_t>(sequence_length_);
  TAILOR_CHECK(inputs.size() == targets.size() && inputs.size() % length == 0,
               "spans of {} and {} for rows of {}", inputs.size(), targets.size(), length);
  const std::size_t rows = inputs.size() / length;
  TAILOR_CHECK(first_block <= block_count_ && rows <= block_count_ - first_block,
               "blocks {} + {} of {}", first_block, rows, block_count_);
  std::vector<std::uint32_t> tokens(length + 1);
  std::uint64_t scored = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    const std::uint64_t start = (first_block + row) * length;
    const auto here =
        static_cast<std::size_t>(std::min<std::uint64_t>(length, scored_tokens_ - start));
    TAILOR_RETURN_IF_ERROR(dataset_->read(start, std::span(tokens).first(here + 1)));
    const std::span<Int> row_inputs = inputs.subspan(row * length, length);
    const std::span<Int> row_targets = targets.subspan(row * length, length);
    split_row<Int>(tokens, row_inputs.first(here), row_targets.first(here));
    std::fill(row_inputs.begin() + static_cast<std::ptrdiff_t>(here), row_inputs.end(), Int{0});
    std::fill(row_targets.begin() + static_cast<std::ptrdiff_t>(here), row_targets.end(),
              Int{kIgnoredTarget});
    scored += here;
  }
  return scored;
}

template Status TrainLoader::fill(std::uint64_t, std::span<std::int32_t>,
                                  std::span<std::int32_t>) const;
template Status TrainLoader::fill(std::uint64_t, std::span<std::int64_t>,
                                  std::span<std::int64_t>) const;
template Status TrainLoader::batch(std::uint64_t, std::uint64_t, std::span<std::int32_t>,
                                   std::span<std::int32_t>) const;
template Status TrainLoader::batch(std::uint64_t, std::uint64_t, std::span<std::int64_t>,
                                   std::span<std::int64_t>) const;
template Result<std::uint64_t> EvaluationLoader::fill(std::uint64_t, std::span<std::int32_t>,
                                                      std::span<std::int32_t>) const;
template Result<std::uint64_t> EvaluationLoader::fill(std::uint64_t, std::span<std::int64_t>,
                                                      std::span<std::int64_t>) const;

}  // namespace tailor::data
