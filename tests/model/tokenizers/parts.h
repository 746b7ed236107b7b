// Texts in parts, as model/data cuts long documents.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizers/tokenizer.h"

namespace tailor::test {

struct Parts {
  std::vector<std::uint32_t> ids;
  std::size_t count = 0;
  std::size_t longest = 0;
};

/// Windows of `window` bytes, longer ones where there is no place to cut.
inline Parts encoded_in_parts(tokenizers::Tokenizer& tokenizer, std::string_view text,
                              std::size_t window) {
  Parts parts;
  bool begins = true;
  for (std::size_t size = window; !text.empty();) {
    while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) ++size;
    const bool ends = size >= text.size();
    const std::size_t cut = ends ? text.size() : tokenizer.last_cut(text.substr(0, size));
    if (cut == 0) {
      size += window;
      continue;
    }
    tokenizer.encode_part(text.substr(0, cut), {begins, ends}, &parts.ids);
    parts.longest = std::max(parts.longest, cut);
    ++parts.count;
    text.remove_prefix(cut);
    begins = false;
    size = window;
  }
  return parts;
}

}  // namespace tailor::test
