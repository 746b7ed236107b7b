// What fuzz targets share. A target is a file with LLVMFuzzerTestOneInput, which throws any bytes
// at one reader of outside input and aborts when a promise is broken, and fuzz_seeds, inputs to
// start from. It is linked with driver.cc (any compiler, an ordinary short test) or, with
// -DTAILOR_LIBFUZZER=ON and clang, with libFuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

/// Returns 0. Aborts, or lets a sanitizer abort, on a bug.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tailor::fuzz {

/// Well-formed and nearly well-formed inputs; defined by each target.
std::vector<std::string> fuzz_seeds();

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// The promise of a reader.
inline void expect(bool held, const char* promise) {
  if (held) return;
  std::fprintf(stderr, "fuzz: broken promise: %s\n", promise);
  std::abort();
}

}  // namespace tailor::fuzz
