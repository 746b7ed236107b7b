// ByteSource: a file's bytes, decompressed on the way when its name ends in .gz or .zst.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/hash.h"
#include "base/status.h"

namespace tailor::data {

/// What has been read of a file as it lies on disk, compressed or not; whole once a ByteSource has
/// come to its end.
struct SourceDigest {
  std::uint64_t bytes = 0;
  Sha256 hash;
};

/// Reads forward once. Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills up to `size` bytes; 0 means the end. Errors, naming the file: kDataLoss when compressed
  /// data is cut short, altered, or followed by something else;
  /// the system's reason when reading fails.
  virtual Result<std::size_t> read(char* out, std::size_t size) = 0;
};

/// Opens `path`. `digest`, if given, is kept up to date and outlives the source.
/// Errors: kNotFound, kPermissionDenied, kUnavailable; kInvalidArgument for a folder.
Result<std::unique_ptr<ByteSource>> open_byte_source(const std::string& path,
                                                     SourceDigest* digest = nullptr);

/// The same without decompressing.
Result<std::unique_ptr<ByteSource>> open_plain_source(const std::string& path,
                                                      SourceDigest* digest = nullptr);

}  // namespace tailor::data
