// The few operations on Unicode text that the rules of the multiple-choice tasks are made of. The
// reference harness is a Python program, so white space and letter case are those of its str.strip
// and str.capitalize.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tailor::eval {

// All REQUIRE well-formed UTF-8. Threads: any.

/// Number of code points.
std::size_t code_points(std::string_view text);

/// Without leading, without trailing, without both kinds of white space (Unicode's property
/// White_Space, and the separators U+001C to U+001F).
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);

/// The first character in title case, all others in lower case; with the mappings that change the
/// length (U+00DF to "Ss") and the final form of sigma.
std::string capitalize(std::string_view text);

}  // namespace tailor::eval
