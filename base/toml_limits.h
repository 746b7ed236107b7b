// Looks through TOML before it is parsed: how deep it goes and how much it holds. toml++ recurses
// along dotted keys, headers, lists and inline tables, in parsing and again in freeing what it
// built.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tailor {

/// What a TOML text may hold. A sweep file goes six deep; 20,000 candidates have some 100,000 keys.
struct TomlLimits {
  std::size_t bytes = 4 << 20;
  std::size_t depth = 64;  ///< parts of dotted keys and headers, lists and inline tables, added up
  std::size_t values = 200'000;  ///< keys and values, each part of a dotted key for itself
};

/// Where a TOML text passes a limit, or holds a header that begins with no key (toml++ aborts
/// there). Positions count bytes from 1; 0 for the whole text.
struct TomlExcess {
  std::size_t line = 0, column = 0;
  std::string what;
};

/// nullopt when `text` keeps within `limits`. What is no TOML may pass: the parser says what is
/// wrong with it, and needs no more depth for it than is counted here. Linear; needs memory for the
/// depth alone.
std::optional<TomlExcess> find_toml_excess(std::string_view text, const TomlLimits& limits = {});

}  // namespace tailor
