// The readers of tailer.h.
#include "worker/agent/tailer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.h"
#include "protocol/convert.h"

namespace tailor::agent {
namespace {

constexpr std::size_t kPieceBytes = 256 * 1024;
constexpr int kPiecesPerCall = 4;
constexpr std::size_t kLineBytesMax = 64u << 20;

}  // namespace

ReadOnlyFile::ReadOnlyFile(ReadOnlyFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

void ReadOnlyFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<bool> ReadOnlyFile::open() {
  if (fd_ >= 0) return true;
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ >= 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return error(errno_status(errno, "open", path_));
}

Result<std::string> ReadOnlyFile::read(std::uint64_t offset, std::size_t bytes_max) {
  TAILOR_ASSIGN_OR_RETURN(const bool there, open());
  if (!there) return std::string();
  std::string bytes(bytes_max, '\0');
  TAILOR_ASSIGN_OR_RETURN(const std::size_t got,
                          read_at(fd_, bytes.data(), bytes_max, offset, path_));
  bytes.resize(got);
  return bytes;
}

Result<std::uint64_t> ReadOnlyFile::size() {
  TAILOR_ASSIGN_OR_RETURN(const bool there, open());
  if (!there) return 0;
  struct stat status {};
  if (::fstat(fd_, &status) != 0) return error(errno_status(errno, "measure", path_));
  return static_cast<std::uint64_t>(status.st_size);
}

Result<bool> ReportTailer::fill() {
  pending_.erase(0, std::exchange(parsed_, 0));
  TAILOR_ASSIGN_OR_RETURN(const std::string piece, file_.read(offset_, kPieceBytes));
  pending_ += piece;
  offset_ += piece.size();
  return !piece.empty();
}

ReportsRead ReportTailer::read(const protocol::AttemptRef& ref, std::uint64_t after_sequence,
                               std::size_t count_max) {
  ReportsRead answer{ref, after_sequence, {}, false, 0, {}};
  if (after_sequence < sequence_) {  // asked to go back: from the beginning
    offset_ = sequence_ = line_ = end_sequence_ = 0;
    pending_.clear();
    parsed_ = 0;
    bad_line_.clear();
  }
  int pieces = 0;
  while (answer.reports.size() < count_max) {
    const std::size_t newline = pending_.find('\n', parsed_);
    if (newline == std::string::npos) {
      if (pending_.size() - parsed_ > kLineBytesMax) {
        answer.damage = fmt::format("{}: line {} has no end after {} bytes", file_.path(),
                                    line_ + 1, kLineBytesMax);
        break;
      }
      if (pieces++ == kPiecesPerCall) break;
      const Result<bool> more = fill();
      if (!more) {
        answer.damage = more.error().message();
        break;
      }
      if (*more) continue;
      answer.at_end = true;
      break;
    }
    const std::string_view text(pending_.data() + parsed_, newline - parsed_);
    Result<protocol::Report> report = protocol::report_from_json(text);
    if (!report) {
      parsed_ = newline + 1;
      ++line_;
      if (bad_line_.empty())
        bad_line_ = fmt::format("line {}: {}", line_, report.error().message());
      continue;
    }
    if (report->sequence > sequence_ + 1) {
      // Stays unparsed: a later call meets the same gap.
      answer.damage =
          fmt::format("{}: report {} is missing before line {}{}{}", file_.path(), sequence_ + 1,
                      line_ + 1, bad_line_.empty() ? "" : "; ", bad_line_);
      break;
    }
    parsed_ = newline + 1;
    ++line_;
    bad_line_.clear();
    if (report->sequence <= sequence_) continue;
    sequence_ = report->sequence;
    if (std::holds_alternative<protocol::EndReport>(report->body)) end_sequence_ = sequence_;
    if (sequence_ > after_sequence) answer.reports.push_back(*std::move(report));
  }
  answer.end_sequence = end_sequence_;
  return answer;
}

LogRead LogTailer::read(const protocol::AttemptRef& ref, std::uint64_t offset,
                        std::size_t bytes_max, bool after_exit) {
  LogRead answer{ref, offset, {}, true, 0};
  const Result<std::uint64_t> size = file_.size();
  if (!size) return answer;  // a log is help, not data: an unreadable one ends here
  if (offset < base_) {      // of what the file held before it was cut
    answer.left_out = base_ - offset;
    offset = base_;
  }
  if (offset - base_ > *size) {
    answer.bytes = fmt::format(
        "\n[tailor-worker: {} was cut to {} bytes while it was read; it is read from its beginning "
        "again]\n",
        file_.path(), *size);
    answer.at_end = false;
    base_ = offset + answer.bytes.size();
    return answer;
  }
  const std::uint64_t end = base_ + *size;
  const bool skip = offset >= limits_.head_bytes && end - offset > limits_.tail_bytes;
  std::uint64_t from = skip ? end - (after_exit ? limits_.tail_bytes : limits_.live_bytes) : offset;
  Result<std::string> bytes = file_.read(from - base_, bytes_max);
  if (!bytes) return answer;
  if (skip) {  // a line is not cut, unless it is very long
    const std::size_t newline = bytes->find('\n');
    if (newline != std::string::npos && newline + 1 < bytes->size()) {
      from += newline + 1;
      bytes->erase(0, newline + 1);
    }
    answer.left_out += from - offset;
  }
  answer.bytes = *std::move(bytes);
  answer.at_end = from + answer.bytes.size() >= end;
  return answer;
}

}  // namespace tailor::agent
