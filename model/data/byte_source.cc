#include "model/data/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"

namespace tailor::data {
namespace {

constexpr std::size_t kInputBytes = 256 << 10;

/// Whether `name` ends in `ending`, which is in lower case.
bool ends_in(std::string_view name, std::string_view ending) {
  if (name.size() < ending.size()) return false;
  name.remove_prefix(name.size() - ending.size());
  return std::equal(name.begin(), name.end(), ending.begin(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}

std::string binary_size(std::uint64_t bytes) {
  int unit = 0;
  while (unit < 4 && bytes % 1024 == 0 && bytes > 0) {
    bytes /= 1024;
    ++unit;
  }
  constexpr std::string_view kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

/// What the header of a zstd frame asks of its reader (RFC 8878, 3.1.1.1).
struct ZstdFrameNeeds {
  std::uint64_t window = 0;      // bytes; 0 when the header is not whole
  std::uint64_t dictionary = 0;  // id; 0 for none
};

ZstdFrameNeeds zstd_needs(std::string_view header) {
  constexpr std::size_t kMagicBytes = 4;
  ZstdFrameNeeds needs;
  if (header.size() <= kMagicBytes) return needs;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(header[i]); };
  const auto number = [&](std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value |= std::uint64_t{byte(at + i)} << (8 * i);
    return value;
  };
  const unsigned descriptor = byte(kMagicBytes);
  const bool single_segment = (descriptor & 0x20) != 0;
  constexpr std::size_t kDictionaryBytes[] = {0, 1, 2, 4};
  const std::size_t dictionary_bytes = kDictionaryBytes[descriptor & 3];
  const std::size_t dictionary_at = kMagicBytes + 1 + (single_segment ? 0 : 1);
  const std::size_t content_at = dictionary_at + dictionary_bytes;
  if (header.size() < content_at) return needs;
  needs.dictionary = number(dictionary_at, dictionary_bytes);
  if (!single_segment) {
    const unsigned window = byte(kMagicBytes + 1);
    const std::uint64_t base = std::uint64_t{1} << (10 + (window >> 3));
    needs.window = base + base / 8 * (window & 7);
    return needs;
  }
  // The content is the window.
  constexpr std::size_t kContentBytes[] = {1, 2, 4, 8};
  const std::size_t content_bytes = kContentBytes[descriptor >> 6];
  if (header.size() < content_at + content_bytes) return needs;
  needs.window = number(content_at, content_bytes) + (content_bytes == 2 ? 256 : 0);
  return needs;
}

/// The file as it lies on disk.
class PlainSource final : public ByteSource {
 public:
  PlainSource(std::string path, int fd, SourceDigest* digest)
      : path_(std::move(path)), fd_(fd), digest_(digest) {}
  ~PlainSource() override { ::close(fd_); }
  PlainSource(const PlainSource&) = delete;
  PlainSource& operator=(const PlainSource&) = delete;

  Result<std::size_t> read(char* out, std::size_t size) override {
    for (;;) {
      const ssize_t got = ::read(fd_, out, size);
      if (got >= 0) {
        const auto count = static_cast<std::size_t>(got);
        if (digest_ != nullptr) {
          digest_->bytes += count;
          digest_->hash.update(out, count);
        }
        return count;
      }
      if (errno != EINTR) return error(errno_status(errno, "read", path_));
    }
  }

 private:
  std::string path_;
  int fd_;
  SourceDigest* digest_;
};

/// What the decompressors share: a block of compressed bytes and how to say that they are wrong.
class CompressedSource : public ByteSource {
 public:
  CompressedSource(std::string path, std::unique_ptr<ByteSource> file)
      : path_(std::move(path)), file_(std::move(file)), input_(kInputBytes) {}

 protected:
  /// Reads the next block once the current one is used up; at the end `input_size_` is 0.
  Status refill() {
    TAILOR_ASSIGN_OR_RETURN(input_size_, file_->read(input_.data(), input_.size()));
    return Status::ok();
  }
  tl::unexpected<Status> bad(std::string_view reason) const {
    return error(Code::kDataLoss, fmt::format("{} {}: fetch or compress it again", path_, reason));
  }

  std::string path_;
  std::unique_ptr<ByteSource> file_;
  std::vector<char> input_;
  std::size_t input_size_ = 0;
};

class GzipSource final : public CompressedSource {
 public:
  GzipSource(std::string path, std::unique_ptr<ByteSource> file)
      : CompressedSource(std::move(path), std::move(file)) {
    // 16: gzip headers only, with their CRC checked.
    TAILOR_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK);
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  Result<std::size_t> read(char* out, std::size_t size) override {
    const auto wanted =
        static_cast<uInt>(std::min<std::size_t>(size, std::numeric_limits<uInt>::max()));
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = wanted;
    while (stream_.avail_out == wanted) {
      if (stream_.avail_in == 0) {
        TAILOR_RETURN_IF_ERROR(refill());
        if (input_size_ == 0) {
          if (inside_member_) return bad("is cut short (the gzip data ends before its end mark)");
          return std::size_t{0};
        }
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(input_size_);
      }
      if (!inside_member_ && members_ > 0) {
        // Padding of zeros after the last member is usual on tapes and harmless.
        while (stream_.avail_in > 0 && *stream_.next_in == 0) {
          ++stream_.next_in;
          --stream_.avail_in;
        }
        if (stream_.avail_in == 0) continue;
      }
      inside_member_ = true;
      const int outcome = inflate(&stream_, Z_NO_FLUSH);
      if (outcome == Z_STREAM_END) {
        inside_member_ = false;
        ++members_;
        inflateReset(&stream_);
      } else if (outcome == Z_MEM_ERROR) {
        return error(Code::kResourceExhausted,
                     fmt::format("out of memory while decompressing {}", path_));
      } else if (outcome != Z_OK && outcome != Z_BUF_ERROR) {
        if (members_ > 0 && stream_.total_out == 0) {
          return bad(
              fmt::format("is gzip data followed by something else (after {} whole member{})",
                          members_, members_ == 1 ? "" : "s"));
        }
        return bad(fmt::format("is not valid gzip data ({})",
                               stream_.msg != nullptr ? stream_.msg : "damaged"));
      }
    }
    return static_cast<std::size_t>(wanted - stream_.avail_out);
  }

 private:
  z_stream stream_{};
  // True from the first byte of the file on: an empty file is a gzip file cut short.
  bool inside_member_ = true;
  int members_ = 0;
};

class ZstdSource final : public CompressedSource {
 public:
  ZstdSource(std::string path, std::unique_ptr<ByteSource> file, int window_log)
      : CompressedSource(std::move(path), std::move(file)),
        stream_(ZSTD_createDStream()),
        window_log_(window_log) {
    TAILOR_CHECK(stream_ != nullptr);
    // Without this libzstd decodes windows of 128 MiB at most.
    TAILOR_CHECK(ZSTD_isError(ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, window_log)) ==
                 0);
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  Result<std::size_t> read(char* out, std::size_t size) override {
    ZSTD_outBuffer output{out, size, 0};
    while (output.pos == 0) {
      if (position_ == input_size_ && !output_pending_) {
        position_ = 0;
        TAILOR_RETURN_IF_ERROR(refill());
        if (input_size_ == 0) {
          if (frame_left_ != 0) return bad("is cut short (the zstd data ends inside a frame)");
          return std::size_t{0};
        }
      }
      if (frame_left_ == 0 && position_ < input_size_) header_.clear();  // the next frame begins
      note_header();
      ZSTD_inBuffer input{input_.data(), input_size_, position_};
      frame_left_ = ZSTD_decompressStream(stream_, &output, &input);
      if (ZSTD_isError(frame_left_) != 0) return error(failure(ZSTD_getErrorCode(frame_left_)));
      frame_bytes_ += input.pos - position_;
      position_ = input.pos;
      if (frame_left_ == 0) {
        ++frames_;
        frame_bytes_ = 0;
      }
      // A full output buffer may leave decoded bytes inside the decompressor.
      output_pending_ = output.pos == output.size && frame_left_ != 0;
    }
    return output.pos;
  }

 private:
  static constexpr std::size_t kHeaderBytesMax = 18;

  /// Keeps the first bytes of the frame: the library says what is wrong, but not with what.
  void note_header() {
    if (frame_bytes_ != header_.size()) return;  // the frame is longer than its header
    const std::size_t more = std::min(kHeaderBytesMax - header_.size(), input_size_ - position_);
    header_.append(input_.data() + position_, more);
  }

  Status failure(ZSTD_ErrorCode code) const {
    const ZstdFrameNeeds needs = zstd_needs(header_);
    switch (code) {
      case ZSTD_error_frameParameter_windowTooLarge:
        return Status(
            Code::kUnimplemented,
            fmt::format("{} was compressed with a window of {}, and at most {} are decoded here: "
                        "{}compress it again with a smaller one (zstd --long=27 or less)",
                        path_, binary_size(needs.window),
                        binary_size(std::uint64_t{1} << window_log_),
                        window_log_ < kZstdWindowLogMax && needs.window <= std::uint64_t{1}
                                                                               << kZstdWindowLogMax
                            ? "raise --zstd-window, or "
                            : ""));
      case ZSTD_error_memory_allocation:
        return Status(
            Code::kResourceExhausted,
            fmt::format("out of memory while decompressing {}, which needs a window of {}", path_,
                        binary_size(needs.window)));
      case ZSTD_error_dictionary_wrong:
        return Status(
            Code::kUnimplemented,
            fmt::format("{} was compressed with a dictionary (id {}), and dictionaries are "
                        "not read: decompress it (zstd -d -D DICTIONARY) first",
                        path_, needs.dictionary));
      case ZSTD_error_checksum_wrong:
        return bad("is altered (its zstd checksum does not match)").value();
      case ZSTD_error_prefix_unknown:
        if (frames_ > 0) {
          return bad(fmt::format("is zstd data followed by something else (after {} whole frame{})",
                                 frames_, frames_ == 1 ? "" : "s"))
              .value();
        }
        [[fallthrough]];
      default:
        return bad(fmt::format("is not valid zstd data ({})", ZSTD_getErrorString(code))).value();
    }
  }

  ZSTD_DStream* stream_;
  const int window_log_;
  std::size_t position_ = 0;
  std::size_t frame_left_ = 1;  // 0 between frames; an empty file is a zstd file cut short
  bool output_pending_ = false;
  std::string header_;           // first bytes of the frame that is being read
  std::size_t frame_bytes_ = 0;  // of that frame, consumed
  std::uint64_t frames_ = 0;     // whole ones
};

}  // namespace

Compression compression_of(std::string_view name) {
  if (ends_in(name, ".gz")) return Compression::kGzip;
  return ends_in(name, ".zst") ? Compression::kZstd : Compression::kNone;
}

std::string_view without_compression(std::string_view name) {
  switch (compression_of(name)) {
    case Compression::kNone:
      break;
    case Compression::kGzip:
      name.remove_suffix(3);
      break;
    case Compression::kZstd:
      name.remove_suffix(4);
      break;
  }
  return name;
}

Result<std::unique_ptr<ByteSource>> open_plain_source(const std::string& path,
                                                      SourceDigest* digest) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error(errno_status(errno, "open", path));
  auto file = std::make_unique<PlainSource>(path, fd, digest);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return error(errno_status(errno, "stat", path));
  if (S_ISDIR(info.st_mode)) {
    return error(Code::kInvalidArgument, fmt::format("{} is a folder, not a file", path));
  }
  return file;
}

Result<std::unique_ptr<ByteSource>> open_byte_source(const std::string& path, SourceDigest* digest,
                                                     int zstd_window_log) {
  TAILOR_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> file, open_plain_source(path, digest));
  switch (compression_of(path)) {
    case Compression::kNone:
      break;
    case Compression::kGzip:
      return std::make_unique<GzipSource>(path, std::move(file));
    case Compression::kZstd:
      return std::make_unique<ZstdSource>(path, std::move(file), zstd_window_log);
  }
  return file;
}

}  // namespace tailor::data
