// SHA-256 of memory and of files (libcrypto), for checksums in manifests and content hashes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailor {

/// Incremental SHA-256. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(const void* data, std::size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  /// 64 lower-case hex digits. REQUIRES: called once, last.
  std::string hex();
  /// The hash of what came so far; `update` may go on.
  std::string hex_so_far() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// 64 lower-case hex digits.
std::string sha256_hex(std::string_view text);

/// The hash of a whole file, read in blocks. Errors: kNotFound, kUnavailable (unreadable).
Result<std::string> sha256_file(const std::string& path);

}  // namespace tailor
