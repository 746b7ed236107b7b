// Block bootstrap of a mean loss: how far a validation loss would move with other text of the same
// kind (science.md 6, "within-run noise").
//
// The evaluation sequences are the blocks: tokens of one sequence depend on each other, sequences
// hardly do. A replicate draws as many sequences as there are, with replacement, and its loss is
// (their summed loss) / (their tokens), the ratio that the reported loss is itself; the standard
// error is the standard deviation of the replicates (Efron, Ann. Statist. 7, 1979; ratio of sums).
// For equally long sequences it tends to sigma / sqrt(n), sigma the standard deviation (divisor n)
// of the sequences' mean losses.
//
// It says nothing about seeds: another training run differs by more (show both).
#pragma once

#include <cstdint>
#include <span>

namespace tailor::eval {

/// What one sequence adds to a mean loss.
struct BlockLoss {
  double nats = 0;           ///< summed negative log-likelihood
  std::uint64_t tokens = 0;  ///< scored tokens; 0 is allowed
};

inline constexpr int kBootstrapReplicates = 1000;

/// Standard error of sum(nats) / sum(tokens) in the unit of that ratio. The same blocks, seed and
/// replicates give the same bits on every machine. NaN when fewer than two blocks hold tokens (no
/// spread to measure), or when a loss is not finite. Cost: replicates * blocks additions.
/// REQUIRES: replicates >= 2.
double bootstrap_standard_error(std::span<const BlockLoss> blocks, std::uint64_t seed,
                                int replicates = kBootstrapReplicates);

}  // namespace tailor::eval
