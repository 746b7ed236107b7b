// TokenMatcher: finds added tokens in a text, the leftmost first and of those the longest.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tailor::tokenizers {

/// A trie over bytes. Threads: const functions from any.
class TokenMatcher {
 public:
  /// `value` is what `longest` gives back. Of two equal texts the first stays. REQUIRES: not empty.
  void add(std::string_view text, std::uint32_t value);
  bool is_empty() const { return values_.size() == 1; }

  struct Match {
    std::uint32_t value;
    std::size_t bytes;  ///< 0: none
  };
  /// The longest token that begins at `at`.
  Match longest(std::string_view text, std::size_t at) const;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::array<bool, 256> begins_{};  // most positions are dismissed by their first byte
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  // node * 256 + byte -> node
  std::vector<std::uint32_t> values_ = {kNone};             // by node
};

}  // namespace tailor::tokenizers
