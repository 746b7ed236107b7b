// Windows: which part of a token stream a model reads at once, and which tokens it is scored on
// (science.md 7.1).
//
// Window k reads ids [ks, ks + T) of N and predicts the id after each; T is the window, s the
// stride. The first window scores all its targets, later ones their last s, so every token but the
// first is scored exactly once. s = T: blocks side by side, the last one short. s < T: each scored
// token but the first T has at least T - s tokens before it, at T / s times the cost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/eval/bootstrap.h"

namespace tailor::eval {

struct Window {
  std::uint64_t begin = 0;   ///< first id that is read
  std::int64_t length = 0;   ///< ids that are read; targets are one further
  std::int64_t skipped = 0;  ///< targets at the front that an earlier window has scored
  std::int64_t scored() const { return length - skipped; }
};

/// The windows of a stream, made on demand. A value.
class Windows {
 public:
  /// REQUIRES: ids >= 2, 1 <= stride <= length.
  Windows(std::uint64_t ids, std::int64_t length, std::int64_t stride);
  std::uint64_t count() const { return count_; }
  /// REQUIRES: k < count().
  Window operator[](std::uint64_t k) const;

 private:
  std::uint64_t ids_;
  std::int64_t length_;
  std::int64_t stride_;
  std::uint64_t count_;
};

/// Neighbouring windows of a small stride depend on each other as much as tokens do: joins them, in
/// order, into blocks of at least `tokens` scored tokens each (the last may be shorter), which are
/// what the bootstrap draws.
std::vector<BlockLoss> joined_blocks(std::span<const BlockLoss> windows, std::uint64_t tokens);

}  // namespace tailor::eval
