// gzip of whole texts in memory (private to coordinator/http).
#pragma once

#include <string>
#include <string_view>

namespace tailor::http {

/// "" when zlib refuses (no memory).
std::string gzip(std::string_view text);
/// "" when `bytes` is no gzip.
std::string gunzip(std::string_view bytes);

}  // namespace tailor::http
