// Deterministic batches for training and validation.
//
// Training: the stream of N tokens is cut into W = floor((N - 1) / T) windows of T + 1 tokens with
// stride T; window w gives inputs [wT, wT + T) and targets one further, so within an epoch every
// token but the first is a target once (the last (N - 1) mod T tokens are left out). Sample s of a
// run, counted from 0 over all steps, is window permutation(seed, epoch = s / W)(s mod W): a pure
// function, so a resumed trial needs only its step, ranks and micro-batches need only sample
// numbers, and no list of W numbers is held. Seeds are paired: the same seed gives the same data
// order to every candidate (science.md 6).
//
// Validation (science.md 7.1): the same windows in their order, the last one short, so every token
// but the first is scored once; the short window is padded with kIgnoredTarget.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "model/data/dataset.h"

namespace tailor::data {

/// Target value that a loss skips (the default ignore_index of LibTorch's cross-entropy).
inline constexpr std::int32_t kIgnoredTarget = -100;

/// A bijection of [0, size), fixed by its key; evaluated at a point in O(1) time and no memory.
/// A Feistel network of four rounds on the smallest even number of bits that holds `size`, walked
/// along its cycle until it falls inside (fewer than four rounds of walking on average).
class Permutation {
 public:
  /// REQUIRES: size > 0.
  Permutation(std::uint64_t size, std::uint64_t key);
  /// REQUIRES: index < size.
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t size_;
  std::uint64_t key_;
  unsigned half_bits_;
};

/// Batches of one run. Holds a reference: the dataset outlives the loader. Threads: const functions
/// may be called from any thread at once.
class TrainLoader {
 public:
  /// `sequence_length` is T >= 1. Errors: kInvalidArgument when T < 1 or the stream
  /// is shorter than T + 1.
  static Result<TrainLoader> create(const Dataset& dataset, std::int64_t sequence_length,
                                    std::uint64_t seed);

  /// W: samples in an epoch.
  std::uint64_t window_count() const { return window_count_; }
  std::int64_t sequence_length() const { return sequence_length_; }

  /// The window that sample `sample` shows; in [0, W).
  std::uint64_t window_of(std::uint64_t sample) const;

  /// Samples [first_sample, first_sample + B), where B = inputs.size() / T, row after row:
  /// inputs and targets are (B, T). Int is std::int32_t or std::int64_t.
  /// REQUIRES: inputs.size() == targets.size(), a multiple of T.
  /// Errors: kDataLoss naming the file.
  template <typename Int>
  Status fill(std::uint64_t first_sample, std::span<Int> inputs, std::span<Int> targets) const;

  /// The batch of optimiser step `step` (from 0), of `batch_sequences` rows: samples from
  /// step * batch_sequences on. REQUIRES: spans of batch_sequences * T.
  template <typename Int>
  Status batch(std::uint64_t step, std::uint64_t batch_sequences, std::span<Int> inputs,
               std::span<Int> targets) const;

 private:
  TrainLoader(const Dataset& dataset, std::int64_t sequence_length, std::uint64_t seed);

  const Dataset* dataset_;
  std::int64_t sequence_length_;
  std::uint64_t seed_;
  std::uint64_t window_count_;
};

/// The blocks of a validation pass. Holds a reference: the dataset outlives it.
/// Threads: as TrainLoader.
class EvaluationLoader {
 public:
  /// `scored_tokens_max` limits the pass to its first tokens; 0 = all.
  /// Errors: kInvalidArgument when T < 1 or the stream has fewer than two tokens.
  static Result<EvaluationLoader> create(const Dataset& dataset, std::int64_t sequence_length,
                                         std::uint64_t scored_tokens_max = 0);

  /// ceil(scored_tokens / T).
  std::uint64_t block_count() const { return block_count_; }
  /// Targets of the whole pass: min(N - 1, scored_tokens_max). The mean loss divides by this.
  std::uint64_t scored_tokens() const { return scored_tokens_; }
  std::int64_t sequence_length() const { return sequence_length_; }

  /// Blocks [first_block, first_block + B), where B = inputs.size() / T; returns how many targets
  /// are real. Behind the end of the last block, inputs are 0 and targets kIgnoredTarget. REQUIRES:
  /// equal spans, a multiple of T; first_block + B <= block_count().
  /// Errors: kDataLoss naming the file.
  template <typename Int>
  Result<std::uint64_t> fill(std::uint64_t first_block, std::span<Int> inputs,
                             std::span<Int> targets) const;

 private:
  EvaluationLoader(const Dataset& dataset, std::int64_t sequence_length,
                   std::uint64_t scored_tokens);

  const Dataset* dataset_;
  std::int64_t sequence_length_;
  std::uint64_t scored_tokens_;
  std::uint64_t block_count_;
};

}  // namespace tailor::data
