#include "model/data/bin_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "model/data/token_ids.h"

namespace tailor::data {
namespace {

constexpr std::size_t kLlmcHeaderBytes = 256 * 4;

struct LlmcKind {
  std::int32_t magic;
  std::int32_t version;
  std::uint32_t token_bytes;
  std::uint32_t vocab_size;
  std::uint32_t eos_id;
};
constexpr std::array<LlmcKind, 2> kLlmcKinds = {
    {{20240520, 1, 2, 50257, 50256}, {20240801, 7, 4, 128256, 128000}}};

Status read_fully(int fd, void* data, std::size_t size, std::uint64_t offset,
                  const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const std::size_t got, read_at(fd, data, size, offset, path));
  if (got == size) return Status::ok();
  return Status(Code::kDataLoss,
                fmt::format("{} ends at byte {}: it was cut while in use", path, offset + got));
}

std::int32_t swapped(std::int32_t value) {
  return static_cast<std::int32_t>(__builtin_bswap32(static_cast<std::uint32_t>(value)));
}

}  // namespace

Result<BinFormat> parse_bin_format(const std::string& text) {
  if (text == "auto") return BinFormat::kAuto;
  if (text == "nanogpt") return BinFormat::kNanoGpt;
  if (text == "llmc") return BinFormat::kLlmC;
  return error(Code::kInvalidArgument,
               fmt::format("unknown format {}: auto, nanogpt and llmc are known", text));
}

struct BinFile::Impl {
  std::string path;
  int fd = -1;
  BinInfo info;

  ~Impl() {
    if (fd >= 0) ::close(fd);
  }

  Status bad(std::string_view reason) const {
    return Status(Code::kDataLoss, fmt::format("{} {}", path, reason));
  }
  Status read_header(std::uint64_t size, BinFormat wanted, std::uint32_t id_bytes);
  Status check_no_other_kind(std::uint64_t size, std::int32_t first, std::int32_t second,
                             BinFormat wanted) const;
};

/// Files without a header can be anything: what says of itself that it is something else is
/// refused.
Status BinFile::Impl::check_no_other_kind(std::uint64_t size, std::int32_t first,
                                          std::int32_t second, BinFormat wanted) const {
  std::array<char, 8> start{};
  if (size < start.size()) return Status::ok();
  TAILOR_RETURN_IF_ERROR(read_fully(fd, start.data(), start.size(), 0, path));
  const std::string_view bytes(start.data(), start.size());
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"\x93NUMPY", "an array of numpy: write its ids alone with numpy's tofile"},
      {"\x1F\x8B\x08", "gzip data: unpack it first"},
      {"\x28\xB5\x2F\xFD", "zstd data: unpack it first"},
      {"PK\x03\x04", "a zip archive (.npz?): write its ids alone with numpy's tofile"},
      {"TAILORTK", "a token shard of Tailor already"}};
  for (const auto& [magic, what] : kOthers) {
    if (bytes.starts_with(magic)) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{} holds no raw ids: it is {}", path, what));
    }
  }
  // llm.c marks its files by a day; those of its models, tokenizers and evaluations are no ids.
  constexpr std::int32_t kFirstDay = 20240101;
  constexpr std::int32_t kLastDay = 20351231;
  constexpr std::int32_t kVersionMax = 100;
  if (wanted == BinFormat::kAuto && size >= kLlmcHeaderBytes && first >= kFirstDay &&
      first <= kLastDay && second >= 0 && second <= kVersionMax) {
    return Status(
        Code::kUnimplemented,
        fmt::format("{} begins like a file of llm.c, with the number {}, and this program reads "
                    "20240520 (GPT-2) and 20240801 (Llama 3); if it has no header, say so "
                    "with --format nanogpt",
                    path, first));
  }
  return Status::ok();
}

Status BinFile::Impl::read_header(std::uint64_t size, BinFormat wanted, std::uint32_t id_bytes) {
  std::array<std::int32_t, 3> header{};
  const bool has_header = size >= kLlmcHeaderBytes;
  if (size >= sizeof header) {
    TAILOR_RETURN_IF_ERROR(read_fully(fd, header.data(), sizeof header, 0, path));
  }
  const LlmcKind* kind = nullptr;
  for (const LlmcKind& known : kLlmcKinds) {
    if (size >= sizeof header && header[0] == known.magic) kind = &known;
    if (size >= sizeof header && swapped(header[0]) == known.magic) {
      return Status(
          Code::kUnimplemented,
          fmt::format("{} is a big-endian file of llm.c; this program reads little-endian "
                      "ones: turn its bytes round with numpy's byteswap",
                      path));
    }
  }
  if (kind == nullptr && wanted != BinFormat::kLlmC) {
    TAILOR_RETURN_IF_ERROR(check_no_other_kind(size, header[0], header[1], wanted));
  }
  if (wanted == BinFormat::kNanoGpt && kind != nullptr && has_header &&
      header[1] == kind->version &&
      size == kLlmcHeaderBytes +
                  std::uint64_t{static_cast<std::uint32_t>(header[2])} * kind->token_bytes) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} has the header of llm.c, which would count as {} ids: import it with "
                    "--format llmc",
                    path, kLlmcHeaderBytes / id_bytes));
  }
  if (wanted == BinFormat::kNanoGpt || (wanted == BinFormat::kAuto && kind == nullptr)) {
    if (size % id_bytes != 0) {
      return bad(
          fmt::format("has {} bytes, not a multiple of {}: as a nanoGPT file it was cut{}; "
                      "fetch or write it again",
                      size, id_bytes, id_bytes > 2 ? ", or its ids are no 32-bit ones" : ""));
    }
    info = {BinFormat::kNanoGpt, id_bytes, 0, size / id_bytes, 0, 0};
    return Status::ok();
  }
  if (kind == nullptr) {
    return bad(
        fmt::format("is no llm.c file: its first number is {}, not 20240520 (GPT-2) or "
                    "20240801 (Llama 3)",
                    header[0]));
  }
  if (!has_header) {
    return bad(
        fmt::format("has {} bytes, less than its header of {}: it was cut; fetch or write "
                    "it again",
                    size, kLlmcHeaderBytes));
  }
  if (header[1] != kind->version) {
    return Status(Code::kUnimplemented,
                  fmt::format("{} has version {} of the llm.c format {}; this program reads {}",
                              path, header[1], kind->magic, kind->version));
  }
  if (header[2] < 0) return bad(fmt::format("has an impossible header ({} ids)", header[2]));
  info = {BinFormat::kLlmC, kind->token_bytes,
          kLlmcHeaderBytes, static_cast<std::uint64_t>(header[2]),
          kind->vocab_size, kind->eos_id};
  const std::uint64_t expected = kLlmcHeaderBytes + info.token_count * info.token_bytes;
  if (size != expected) {
    return bad(
        fmt::format("has {} bytes where its header says {} ids ({} bytes): it was {}; fetch "
                    "or write it again",
                    size, info.token_count, expected, size < expected ? "cut" : "appended to"));
  }
  return Status::ok();
}

BinFile::BinFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BinFile::~BinFile() = default;
BinFile::BinFile(BinFile&&) noexcept = default;
BinFile& BinFile::operator=(BinFile&&) noexcept = default;

Result<BinFile> BinFile::open(const std::string& path, BinFormat format, std::uint32_t id_bytes) {
  TAILOR_CHECK(id_bytes == 2 || id_bytes == 4);
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (impl->fd < 0) return error(errno_status(errno, "open", path));
  struct stat stat_info {};
  if (::fstat(impl->fd, &stat_info) != 0) return error(errno_status(errno, "stat", path));
  if (!S_ISREG(stat_info.st_mode)) {
    return error(Code::kInvalidArgument, fmt::format("{} is not a file", path));
  }
  TAILOR_RETURN_IF_ERROR(
      impl->read_header(static_cast<std::uint64_t>(stat_info.st_size), format, id_bytes));
  if (impl->info.token_count == 0) {
    return error(Code::kInvalidArgument, fmt::format("{} holds no token ids", path));
  }
  return BinFile(std::move(impl));
}

const BinInfo& BinFile::info() const { return impl_->info; }
const std::string& BinFile::path() const { return impl_->path; }

Status BinFile::read(std::uint64_t position, std::span<std::uint32_t> out) const {
  const BinInfo& info = impl_->info;
  TAILOR_CHECK(position <= info.token_count && out.size() <= info.token_count - position,
               "position {} + {} of {} tokens", position, out.size(), info.token_count);
  const std::uint64_t offset = info.header_bytes + position * info.token_bytes;
  if (info.token_bytes == 4) {
    return read_fully(impl_->fd, out.data(), out.size_bytes(), offset, impl_->path);
  }
  TAILOR_RETURN_IF_ERROR(
      read_fully(impl_->fd, narrow_half(out), out.size() * 2, offset, impl_->path));
  widen_ids(out);
  return Status::ok();
}

}  // namespace tailor::data
