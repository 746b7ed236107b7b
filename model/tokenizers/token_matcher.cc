#include "model/tokenizers/token_matcher.h"

namespace tailor::tokenizers {

void TokenMatcher::add(std::string_view text, std::uint32_t value) {
  begins_[static_cast<unsigned char>(text[0])] = true;
  std::uint32_t node = 0;
  for (const char c : text) {
    const std::uint64_t edge = std::uint64_t{node} * 256 + static_cast<unsigned char>(c);
    const auto [found, is_new] = edges_.emplace(edge, static_cast<std::uint32_t>(values_.size()));
    if (is_new) values_.push_back(kNone);
    node = found->second;
  }
  if (values_[node] == kNone) values_[node] = value;
}

TokenMatcher::Match TokenMatcher::longest(std::string_view text, std::size_t at) const {
  Match best{0, 0};
  if (!begins_[static_cast<unsigned char>(text[at])]) return best;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto found = edges_.find(std::uint64_t{node} * 256 + static_cast<unsigned char>(text[i]));
    if (found == edges_.end()) break;
    node = found->second;
    if (values_[node] != kNone) best = {values_[node], i + 1 - at};
  }
  return best;
}

}  // namespace tailor::tokenizers
