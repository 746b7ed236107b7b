// CHECK: a bug in Tailor itself. Prints file, line and the broken condition and aborts, also in
// release builds. Never used on anything that came from outside (files, users, the network): those
// get a Status.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tailor::internal {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view detail);

}  // namespace tailor::internal

/// Aborts unless `condition`. Optional fmt-style explanation: TAILOR_CHECK(n > 0, "n={}", n).
#define TAILOR_CHECK(condition, ...)                                   \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::tailor::internal::check_failed(__FILE__, __LINE__, #condition, \
                                       ::fmt::format("" __VA_ARGS__)); \
    }                                                                  \
  } while (false)
