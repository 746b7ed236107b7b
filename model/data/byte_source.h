// ByteSource: a file's bytes, decompressed on the way when its name ends in .gz or .zst.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"

namespace tailor::data {

/// Reads forward once. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills up to `size` bytes; 0 means the end. Errors, naming the file: kDataLoss when compressed
  /// data is cut short, altered, or followed by something else; the system's reason when reading
  /// fails.
  virtual Result<std::size_t> read(char* out, std::size_t size) = 0;
};

/// Opens `path`. Errors: kNotFound, kPermissionDenied, kUnavailable; kInvalidArgument for a folder.
Result<std::unique_ptr<ByteSource>> open_byte_source(const std::string& path);

}  // namespace tailor::data
