// The factories that table.cc lists, one an algorithm file. Not for use outside this folder.
#pragma once

#include <charconv>
#include <cstdint>
#include <memory>
#include <string_view>

#include "coordinator/search/algorithm.h"

namespace tailor::search {

/// `spec` is copied as far as needed. Errors: kInvalidArgument when the space does not
/// fit the algorithm.
using Factory = Result<std::unique_ptr<Algorithm>> (*)(const sweep::Spec& spec);

Result<std::unique_ptr<Algorithm>> make_grid(const sweep::Spec& spec);
Result<std::unique_ptr<Algorithm>> make_random(const sweep::Spec& spec);
/// `spec.search.algorithm` of suggest.h over a history (learning.cc).
Result<std::unique_ptr<Algorithm>> make_learning(const sweep::Spec& spec);

/// Reads a whole text as one unsigned decimal number without sign, blanks or leading zeros, as
/// `save` writes.
inline bool parse_cursor(std::string_view text, std::uint64_t* value) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return failure == std::errc() && end == text.data() + text.size() &&
         (text.size() == 1 || text.front() != '0');
}

}  // namespace tailor::search
