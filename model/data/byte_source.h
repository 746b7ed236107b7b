// ByteSource: a file's bytes, decompressed on the way when its name ends in .gz or .zst (or .GZ,
// .Zst).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"

namespace tailor::data {

/// How a file's name says that it is compressed.
enum class Compression { kNone, kGzip, kZstd };

/// By the end of `name`, whatever its case.
Compression compression_of(std::string_view name);

/// `name` without the ending that compression_of goes by.
std::string_view without_compression(std::string_view name);

/// Base-2 logarithm of the largest window that zstd data is decoded with unless told otherwise, and
/// at most: 2 GiB, which is as far as libzstd goes.
inline constexpr int kZstdWindowLogMax = 31;
inline constexpr int kZstdWindowLogMin = 10;  ///< the smallest that the format has

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
  /// data is cut short, altered, or followed by something else; kUnimplemented for sound zstd data
  /// that cannot be decoded here, naming the window or the dictionary that it wants;
  /// kResourceExhausted without the memory for its window; the system's reason when reading fails.
  virtual Result<std::size_t> read(char* out, std::size_t size) = 0;
};

/// Opens `path`. `digest`, if given, is kept up to date and outlives the source. Memory: the window
/// that zstd data was written with (8 MiB at most unless `--long` or `--ultra` made it), never more
/// than 2^`zstd_window_log`; less than 1 MiB otherwise. Errors: kNotFound, kPermissionDenied,
/// kUnavailable; kInvalidArgument for a folder. REQUIRES: kZstdWindowLogMin <= zstd_window_log <=
/// kZstdWindowLogMax.
Result<std::unique_ptr<ByteSource>> open_byte_source(const std::string& path,
                                                     SourceDigest* digest = nullptr,
                                                     int zstd_window_log = kZstdWindowLogMax);

/// The same without decompressing.
Result<std::unique_ptr<ByteSource>> open_plain_source(const std::string& path,
                                                      SourceDigest* digest = nullptr);

}  // namespace tailor::data
