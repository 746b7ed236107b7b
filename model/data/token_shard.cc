#include "model/data/token_shard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "model/data/token_ids.h"
#include "model/data/token_shard_format.h"

namespace tailor::data {
namespace {

namespace format = shard_format;

static_assert(std::endian::native == std::endian::little, "ids are written as they lie in memory");

using Header = std::array<unsigned char, format::kHeaderBytes>;

// Ids are buffered and moved in blocks of this many bytes.
constexpr std::size_t kBlockBytes = 1 << 20;

template <typename T>
void put(Header* header, std::size_t offset, T value) {
  std::memcpy(header->data() + offset, &value, sizeof value);
}

template <typename T>
T get(const Header& header, std::size_t offset) {
  T value;
  std::memcpy(&value, header.data() + offset, sizeof value);
  return value;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

/// Writes the bytes of `hex`. False unless it is exactly 2 * count lower-case hex digits.
bool put_hex(unsigned char* out, std::size_t count, const std::string& hex) {
  if (hex.size() != 2 * count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const int high = hex_digit(hex[2 * i]);
    const int low = hex_digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return true;
}

std::string get_hex(const unsigned char* bytes, std::size_t count) {
  std::string hex;
  for (std::size_t i = 0; i < count; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

std::string header_check(const Header& header) {
  Sha256 hash;
  hash.update(header.data(), format::kHeaderCheckOffset);
  return hash.hex().substr(0, 16);
}

Status write_all(int fd, const void* data, std::size_t size, off_t offset,
                 const std::string& path) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t wrote = ::pwrite(fd, bytes, size, offset);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return errno_status(errno, "write", path);
    }
    bytes += wrote;
    offset += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
  return Status::ok();
}

/// Reads exactly `size` bytes. kDataLoss when the file ends before.
Status read_all(int fd, void* data, std::size_t size, off_t offset, const std::string& path) {
  const auto begin = static_cast<std::uint64_t>(offset);
  TAILOR_ASSIGN_OR_RETURN(const std::size_t got, read_at(fd, data, size, begin, path));
  if (got == size) return Status::ok();
  return Status(Code::kDataLoss,
                fmt::format("token shard {} ends at byte {}: it was cut", path, begin + got));
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

// ---- writer ----

struct TokenShardWriter::Impl {
  std::string path;
  std::string partial;
  int fd = -1;
  TokenShardInfo info;
  Sha256 hash;
  std::vector<unsigned char> buffer;
  off_t offset = format::kHeaderBytes;
  bool keep = false;  // the partial file, when it is left unfinished

  ~Impl() {
    if (fd < 0) return;
    if (!keep) ::unlink(partial.c_str());
    ::close(fd);
  }

  Status flush() {
    hash.update(buffer.data(), buffer.size());
    TAILOR_RETURN_IF_ERROR(write_all(fd, buffer.data(), buffer.size(), offset, partial));
    offset += static_cast<off_t>(buffer.size());
    buffer.clear();
    return Status::ok();
  }
};

TokenShardWriter::TokenShardWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenShardWriter::~TokenShardWriter() = default;
TokenShardWriter::TokenShardWriter(TokenShardWriter&&) noexcept = default;
TokenShardWriter& TokenShardWriter::operator=(TokenShardWriter&&) noexcept = default;

Result<TokenShardWriter> TokenShardWriter::open(const std::string& path, std::uint32_t vocab_size,
                                                std::uint32_t eos_id,
                                                const std::string& tokenizer_sha256, int flags) {
  unsigned char scratch[32];
  if (vocab_size == 0 || eos_id >= vocab_size) {
    return error(Code::kInvalidArgument,
                 fmt::format("token shard {}: the EOS id {} is not below the vocabulary {}", path,
                             eos_id, vocab_size));
  }
  if (!put_hex(scratch, sizeof scratch, tokenizer_sha256)) {
    return error(Code::kInvalidArgument,
                 fmt::format("token shard {}: the tokenizer's hash is not a SHA-256: {}", path,
                             tokenizer_sha256));
  }
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->partial = path + ".partial";
  impl->info.vocab_size = vocab_size;
  impl->info.eos_id = eos_id;
  impl->info.tokenizer_sha256 = tokenizer_sha256;
  impl->info.token_bytes = vocab_size <= format::kVocabSizeOfTwoBytes ? 2 : 4;
  impl->buffer.reserve(kBlockBytes + 8);
  const int fd = ::open(impl->partial.c_str(), O_RDWR | O_CLOEXEC | flags, 0644);
  if (fd < 0) return error(errno_status(errno, "open", impl->partial));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    return error(Code::kFailedPrecondition,
                 fmt::format("{} is being written by another process", impl->partial));
  }
  impl->fd = fd;
  return TokenShardWriter(std::move(impl));
}

Result<TokenShardWriter> TokenShardWriter::create(const std::string& path, std::uint32_t vocab_size,
                                                  std::uint32_t eos_id,
                                                  const std::string& tokenizer_sha256) {
  TAILOR_ASSIGN_OR_RETURN(TokenShardWriter writer,
                          open(path, vocab_size, eos_id, tokenizer_sha256, O_CREAT));
  Impl& w = *writer.impl_;
  if (::ftruncate(w.fd, 0) != 0) return error(errno_status(errno, "truncate", w.partial));
  return writer;
}

Result<TokenShardWriter> TokenShardWriter::resume(const std::string& path, std::uint32_t vocab_size,
                                                  std::uint32_t eos_id,
                                                  const std::string& tokenizer_sha256,
                                                  const TokenShardProgress& saved) {
  TAILOR_ASSIGN_OR_RETURN(TokenShardWriter writer,
                          open(path, vocab_size, eos_id, tokenizer_sha256, 0));
  Impl& w = *writer.impl_;
  w.keep = true;
  std::uint64_t left = saved.token_count;
  std::vector<unsigned char> block(kBlockBytes);
  while (left > 0) {
    const std::uint64_t count = std::min<std::uint64_t>(left, kBlockBytes / w.info.token_bytes);
    const auto size = static_cast<std::size_t>(count * w.info.token_bytes);
    TAILOR_RETURN_IF_ERROR(read_all(w.fd, block.data(), size, w.offset, w.partial));
    w.hash.update(block.data(), size);
    for (std::size_t at = 0; at < size; at += w.info.token_bytes) {
      std::uint32_t id = 0;
      std::memcpy(&id, block.data() + at, w.info.token_bytes);
      w.info.max_id = std::max(w.info.max_id, id);
    }
    w.offset += static_cast<off_t>(size);
    left -= count;
  }
  if (w.hash.hex_so_far() != saved.sha256) {
    return error(Code::kDataLoss,
                 fmt::format("{} was altered since it was saved: start over", w.partial));
  }
  if (::ftruncate(w.fd, w.offset) != 0) return error(errno_status(errno, "truncate", w.partial));
  w.info.token_count = saved.token_count;
  w.info.text_bytes = saved.text_bytes;
  w.info.document_count = saved.document_count;
  return writer;
}

Status TokenShardWriter::append(std::span<const std::uint32_t> ids, std::uint64_t text_bytes,
                                std::uint64_t documents) {
  Impl& w = *impl_;
  TAILOR_CHECK(w.fd >= 0, "append after finish");
  for (const std::uint32_t id : ids) {
    if (id >= w.info.vocab_size) {
      return Status(Code::kInvalidArgument,
                    fmt::format("token shard {}: token id {} is outside the vocabulary of {}",
                                w.path, id, w.info.vocab_size));
    }
    w.info.max_id = std::max(w.info.max_id, id);
    const std::size_t at = w.buffer.size();
    w.buffer.resize(at + w.info.token_bytes);
    if (w.info.token_bytes == 2) {
      const auto narrow = static_cast<std::uint16_t>(id);
      std::memcpy(w.buffer.data() + at, &narrow, sizeof narrow);
    } else {
      std::memcpy(w.buffer.data() + at, &id, sizeof id);
    }
    ++w.info.token_count;
    if (w.buffer.size() >= kBlockBytes) TAILOR_RETURN_IF_ERROR(w.flush());
  }
  w.info.text_bytes += text_bytes;
  w.info.document_count += documents;
  return Status::ok();
}

std::uint64_t TokenShardWriter::token_count() const { return impl_->info.token_count; }

Result<TokenShardProgress> TokenShardWriter::save() {
  Impl& w = *impl_;
  TAILOR_CHECK(w.fd >= 0, "save after finish");
  w.keep = true;
  TAILOR_RETURN_IF_ERROR(w.flush());
  if (::fsync(w.fd) != 0) return error(errno_status(errno, "fsync", w.partial));
  return TokenShardProgress{w.info.token_count, w.info.text_bytes, w.info.document_count,
                            w.hash.hex_so_far()};
}

Result<TokenShardInfo> TokenShardWriter::finish() {
  Impl& w = *impl_;
  TAILOR_CHECK(w.fd >= 0, "finish twice");
  TAILOR_RETURN_IF_ERROR(w.flush());
  Header header{};
  std::copy(format::kMagic.begin(), format::kMagic.end(), header.begin());
  put(&header, format::kVersionOffset, format::kVersion);
  put(&header, format::kTokenBytesOffset, w.info.token_bytes);
  put(&header, format::kTokenCountOffset, w.info.token_count);
  put(&header, format::kVocabSizeOffset, w.info.vocab_size);
  put(&header, format::kEosIdOffset, w.info.eos_id);
  put(&header, format::kMaxIdOffset, w.info.max_id);
  put(&header, format::kTextBytesOffset, w.info.text_bytes);
  put(&header, format::kDocumentCountOffset, w.info.document_count);
  bool hashes_ok =
      put_hex(header.data() + format::kTokenizerHashOffset, 32, w.info.tokenizer_sha256);
  hashes_ok =
      hashes_ok && put_hex(header.data() + format::kHeaderCheckOffset, 8, header_check(header));
  w.hash.update(header.data(), format::kHashOffset);
  w.info.sha256 = w.hash.hex();
  hashes_ok = hashes_ok && put_hex(header.data() + format::kHashOffset, 32, w.info.sha256);
  TAILOR_CHECK(hashes_ok);
  TAILOR_RETURN_IF_ERROR(write_all(w.fd, header.data(), header.size(), 0, w.partial));
  if (::fsync(w.fd) != 0) return error(errno_status(errno, "fsync", w.partial));
  if (::rename(w.partial.c_str(), w.path.c_str()) != 0) {
    return error(errno_status(errno, "rename onto", w.path));
  }
  ::close(std::exchange(w.fd, -1));
  TAILOR_RETURN_IF_ERROR(sync_directory(folder_of(w.path)));
  return w.info;
}

// ---- reader ----

struct TokenShardReader::Impl {
  std::string path;
  int fd = -1;
  TokenShardInfo info;
  Header header{};

  ~Impl() {
    if (fd >= 0) ::close(fd);
  }
};

TokenShardReader::TokenShardReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenShardReader::~TokenShardReader() = default;
TokenShardReader::TokenShardReader(TokenShardReader&&) noexcept = default;
TokenShardReader& TokenShardReader::operator=(TokenShardReader&&) noexcept = default;

Result<TokenShardReader> TokenShardReader::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  // Without O_NONBLOCK, a named pipe in a corpus folder would be waited for.
  impl->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (impl->fd < 0) return error(errno_status(errno, "open", path));
  struct stat stat_info {};
  if (::fstat(impl->fd, &stat_info) != 0) return error(errno_status(errno, "stat", path));
  if (!S_ISREG(stat_info.st_mode)) {
    return error(Code::kInvalidArgument, fmt::format("{} is not a file", path));
  }
  const auto size = static_cast<std::uint64_t>(stat_info.st_size);
  const auto bad = [&](std::string_view reason) {
    return error(
        Code::kDataLoss,
        fmt::format("token shard {} {}; write it again with tailor data prepare", path, reason));
  };
  if (size < format::kHeaderBytes) {
    return bad(
        fmt::format("has {} bytes, less than its header of {}: it was cut short or is "
                    "not a token shard",
                    size, format::kHeaderBytes));
  }
  Header& header = impl->header;
  TAILOR_RETURN_IF_ERROR(read_all(impl->fd, header.data(), header.size(), 0, path));
  if (!std::equal(format::kMagic.begin(), format::kMagic.end(), header.begin(),
                  [](char a, unsigned char b) { return static_cast<unsigned char>(a) == b; })) {
    return bad("is not a token shard (wrong first bytes)");
  }
  const auto version = get<std::uint32_t>(header, format::kVersionOffset);
  const bool check_ok =
      get_hex(header.data() + format::kHeaderCheckOffset, 8) == header_check(header);
  if (!check_ok) return bad("has an altered header (its checksum does not match)");
  if (version != format::kVersion) {
    return error(Code::kUnimplemented,
                 fmt::format("token shard {} has format version {}; this program reads {}: update "
                             "Tailor, or write the shard again",
                             path, version, format::kVersion));
  }
  TokenShardInfo& info = impl->info;
  info.token_bytes = get<std::uint32_t>(header, format::kTokenBytesOffset);
  info.token_count = get<std::uint64_t>(header, format::kTokenCountOffset);
  info.vocab_size = get<std::uint32_t>(header, format::kVocabSizeOffset);
  info.eos_id = get<std::uint32_t>(header, format::kEosIdOffset);
  info.max_id = get<std::uint32_t>(header, format::kMaxIdOffset);
  info.text_bytes = get<std::uint64_t>(header, format::kTextBytesOffset);
  info.document_count = get<std::uint64_t>(header, format::kDocumentCountOffset);
  info.tokenizer_sha256 = get_hex(header.data() + format::kTokenizerHashOffset, 32);
  info.sha256 = get_hex(header.data() + format::kHashOffset, 32);
  // The checksum is no signature: a well-formed header from a broken writer must not
  // index out of range.
  if ((info.token_bytes != 2 && info.token_bytes != 4) || info.eos_id >= info.vocab_size ||
      info.max_id >= info.vocab_size) {
    return bad("has an impossible header");
  }
  const std::uint64_t payload = size - format::kHeaderBytes;
  if (payload % info.token_bytes != 0 || payload / info.token_bytes != info.token_count) {
    return bad(
        fmt::format("holds {} bytes of tokens where its header says {} tokens of {} bytes: "
                    "it was {}",
                    payload, info.token_count, info.token_bytes,
                    payload / info.token_bytes < info.token_count ? "cut short" : "appended to"));
  }
  return TokenShardReader(std::move(impl));
}

const TokenShardInfo& TokenShardReader::info() const { return impl_->info; }
const std::string& TokenShardReader::path() const { return impl_->path; }

Status TokenShardReader::read(std::uint64_t position, std::span<std::uint32_t> out) const {
  const TokenShardInfo& info = impl_->info;
  TAILOR_CHECK(position <= info.token_count && out.size() <= info.token_count - position,
               "position {} + {} of {} tokens", position, out.size(), info.token_count);
  const auto offset =
      static_cast<off_t>(format::kHeaderBytes + position * std::uint64_t{info.token_bytes});
  if (info.token_bytes == 4) {
    TAILOR_RETURN_IF_ERROR(read_all(impl_->fd, out.data(), out.size_bytes(), offset, impl_->path));
  } else {
    TAILOR_RETURN_IF_ERROR(
        read_all(impl_->fd, narrow_half(out), out.size() * 2, offset, impl_->path));
    widen_ids(out);
  }
  std::uint32_t max_id = 0;
  for (const std::uint32_t id : out) max_id = std::max(max_id, id);
  if (max_id >= info.vocab_size) {
    return Status(
        Code::kDataLoss,
        fmt::format("token shard {}: token id {} is outside the vocabulary of {}: the file "
                    "was altered; write it again with tailor data prepare",
                    impl_->path, max_id, info.vocab_size));
  }
  return Status::ok();
}

Status TokenShardReader::verify() const {
  const TokenShardInfo& info = impl_->info;
  std::vector<unsigned char> block(kBlockBytes);
  std::uint64_t left = info.token_count * info.token_bytes;
  off_t offset = format::kHeaderBytes;
  Sha256 hash;
  while (left > 0) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(left, block.size()));
    TAILOR_RETURN_IF_ERROR(read_all(impl_->fd, block.data(), size, offset, impl_->path));
    hash.update(block.data(), size);
    offset += static_cast<off_t>(size);
    left -= size;
  }
  hash.update(impl_->header.data(), format::kHashOffset);
  if (hash.hex() != info.sha256) {
    return Status(Code::kDataLoss,
                  fmt::format("token shard {} was altered: its SHA-256 does not match its header; "
                              "write it again with tailor data prepare",
                              impl_->path));
  }
  return Status::ok();
}

}  // namespace tailor::data
