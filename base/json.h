// The one way into JSON that others wrote: strict, and bounded in depth and number before anything
// is built.
//
//   TAILOR_ASSIGN_OR_RETURN(const nlohmann::json config, parse_json(text));
//
// What RFC 8259 calls ambiguous is refused, since a reader that guesses reads another file than its
// writer wrote: bytes behind the value (also behind a NUL), a name twice in one object, NaN and
// Infinity, numbers beyond a double, text that is no UTF-8, half a surrogate pair. A byte order
// mark in front is passed over. Whole numbers beyond 64 bits become doubles, as in Python: ask for
// is_number_unsigned() before get<>().
//
// tests/base/tidy_test.cc forbids nlohmann's own parse functions elsewhere. Threads: pure
// functions.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/status.h"

namespace tailor {

/// What a text may hold. The defaults fit every file that Tailor reads (a vocabulary of a million
/// pieces and its merges have six million values) and 1 GiB of memory.
struct JsonLimits {
  std::size_t depth = 128;         ///< lists and objects within each other
  std::size_t values = 8'000'000;  ///< values and names, in all
};

/// The value of `text`. Cost: linear in the text; memory up to about 60 bytes a value beside the
/// text. Errors: kInvalidArgument "line 3, column 5: ..." (positions count bytes from 1) with what
/// is wrong, also where a limit is passed; kResourceExhausted without memory. The message holds no
/// more than a line.
Result<nlohmann::json> parse_json(std::string_view text, const JsonLimits& limits = {});

/// The same, with the members of objects in the text's order.
Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text,
                                                  const JsonLimits& limits = {});

/// Ok when parse_json would give a value; builds none. For texts that another parser reads
/// afterwards.
Status check_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace tailor
