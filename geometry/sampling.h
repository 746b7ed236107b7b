// Sampling: which token positions a profile is measured on, and the errors that follow from it.
//
// Tokens of one sequence resemble each other, so the unit of sampling is the sequence. With
//   N  usable positions,  G  sequences that have one,  n  tokens a subsample,  R  subsamples asked
// every sequence is dealt to one subsample and to no other. R' is the largest number up to
//   min(R, floor(N / n), G)
// for which this deal gives each subsample n positions or more; at least 1, n itself being at most
// N. The deal: the longest sequence first, equal ones in a seeded order, always to the subsample
// with the fewest positions so far (the first of several). Sequences of one length are dealt in
// turn, and where none are known each position is a sequence of its own, so that R' is
// min(R, floor(N / n)). Sequences that do not add up to n exactly, or are longer than n, make R'
// smaller, never two subsamples share one.
//
// Of its positions a subsample is measured on n: rounds over its sequences, each round takes one
// position more of every sequence that has one left, both in seeded orders. So any number of
// first positions is spread over the sequences as evenly as their lengths allow.
//
// Errors. With independent sequences the R' values g_r are independent, and
//   g = mean of g_r,  SE^2 = sum_r (g_r - g)^2 / (R' (R' - 1)).
// A mean over positions is taken over all that are measured, x_i of sequence c(i):
//   SE^2 = G / (G - 1) sum_c ( sum_{i in c} (x_i - mean) )^2 / N^2.
// Both need two of their kind; with fewer there is no error, and a reason.
//
// Cost: sorting. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tailor::geometry {

struct SamplingOptions {
  std::size_t tokens = 256;         ///< n
  std::size_t linear_tokens = 256;  ///< positions of a subsample that are kept; at least `tokens`
  std::size_t subsamples = 8;       ///< R
  std::uint64_t seed = 0;
};

struct Sample {
  std::size_t positions = 0;  ///< N
  std::size_t sequences = 0;  ///< G
  std::size_t tokens = 0;     ///< n that is used: N where there are fewer
  /// R' lists of positions in the order of the rounds, `linear_tokens` of each at most. The
  /// pairwise statistics use the first `tokens`.
  std::vector<std::vector<std::uint32_t>> subsamples;
  std::string no_error;  ///< why values of subsamples have no standard error; "" = they do
};

/// Draws. `sequence_of`: the sequence of every position of the clouds, or empty: each is its own.
/// REQUIRES: positions of `usable` in rising order and within `sequence_of`; tokens and subsamples
/// at least 1. A sample without subsamples when `usable` is empty.
Sample draw_sample(std::span<const std::uint32_t> usable, std::span<const std::int64_t> sequence_of,
                   const SamplingOptions& options);

/// Bytes that draw_sample holds at once, at most.
double sampling_memory_bytes(std::size_t positions);

/// Standard error of the mean of independent values; none of fewer than two.
std::optional<double> error_of_mean(std::span<const double> values);

/// The sequences of `positions`, numbered 0, 1, ... as they come; each its own where `sequence_of`
/// is empty.
std::vector<std::uint32_t> dense_numbers(std::span<const std::uint32_t> positions,
                                         std::span<const std::int64_t> sequence_of);

/// Sums from which the error of a mean over positions follows, so that parts of the positions can
/// be added up apart from each other. Parts must not share a sequence.
class ClusterSums {
 public:
  ClusterSums() = default;
  /// `values[i]` belongs to the sequence `sequence_of[i]`, numbered as dense_numbers does.
  ClusterSums(std::span<const double> values, std::span<const std::uint32_t> sequence_of);

  double mean() const { return mean_; }
  std::size_t positions() const { return positions_; }
  std::size_t sequences() const { return sequences_; }
  /// Puts the positions of `other` to these.
  void add(const ClusterSums& other);
  /// Of the mean; none with fewer than two sequences.
  std::optional<double> standard_error() const;

 private:
  // About another mean: sums of (s_c - n_c shift)^2 and (s_c - n_c shift) n_c.
  void move_to(double mean);

  std::size_t positions_ = 0;
  std::size_t sequences_ = 0;
  double mean_ = 0;
  // Over sequences c of n_c positions, s_c = sum of (x_i - mean_):
  double squares_ = 0;    // sum s_c^2
  double products_ = 0;   // sum s_c n_c
  double size_sums_ = 0;  // sum n_c^2
};

}  // namespace tailor::geometry
