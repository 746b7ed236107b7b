// The dashboard's files, compressed at build time and embedded in the program (private to
// coordinator/http). Defined in assets.cc, which CMake writes into the build folder.
#pragma once

#include <span>
#include <string_view>

namespace tailor::http {

struct Asset {
  std::string_view path;  ///< "/app.js"
  std::string_view content_type;
  std::string_view gzip;  ///< the compressed bytes
};

std::span<const Asset> assets();

}  // namespace tailor::http
