// Which regular expressions of foreign files are run at all. ICU backtracks: an expression may take
// a time that doubles with every character, and nested ones recurse where it compiles them.
#pragma once

#include <unicode/uregex.h>

#include <string_view>

#include "base/status.h"

namespace tailor::tokenizers {

/// Before compiling. Errors: kUnimplemented (more than 16,384 units, groups or sets more than 64
/// deep).
Status check_regex_text(std::u16string_view pattern);

/// After compiling: runs `regex` over short texts of few different characters, those of `pattern`
/// and some of every class, where expressions that explode do. Takes milliseconds; leaves no limit
/// behind. Errors: kUnimplemented when a search takes too many steps.
Status probe_regex(URegularExpression* regex, std::u16string_view pattern);

}  // namespace tailor::tokenizers
