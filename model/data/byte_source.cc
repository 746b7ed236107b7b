#include "model/data/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"

namespace tailor::data {
namespace {

constexpr std::size_t kInputBytes = 256 << 10;

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
  ZstdSource(std::string path, std::unique_ptr<ByteSource> file)
      : CompressedSource(std::move(path), std::move(file)), stream_(ZSTD_createDStream()) {
    TAILOR_CHECK(stream_ != nullptr);
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
      ZSTD_inBuffer input{input_.data(), input_size_, position_};
      frame_left_ = ZSTD_decompressStream(stream_, &output, &input);
      position_ = input.pos;
      if (ZSTD_isError(frame_left_) != 0) {
        return bad(fmt::format("is not valid zstd data ({})", ZSTD_getErrorName(frame_left_)));
      }
      // A full output buffer may leave decoded bytes inside the decompressor.
      output_pending_ = output.pos == output.size && frame_left_ != 0;
    }
    return output.pos;
  }

 private:
  ZSTD_DStream* stream_;
  std::size_t position_ = 0;
  std::size_t frame_left_ = 1;  // 0 between frames; an empty file is a zstd file cut short
  bool output_pending_ = false;
};

}  // namespace

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

Result<std::unique_ptr<ByteSource>> open_byte_source(const std::string& path,
                                                     SourceDigest* digest) {
  TAILOR_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> file, open_plain_source(path, digest));
  if (path.ends_with(".gz")) return std::make_unique<GzipSource>(path, std::move(file));
  if (path.ends_with(".zst")) return std::make_unique<ZstdSource>(path, std::move(file));
  return file;
}

}  // namespace tailor::data
