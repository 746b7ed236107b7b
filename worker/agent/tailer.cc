// The readers of tailer.h.
#include "worker/agent/tailer.h"

#include <fcntl.h>
#include <fmt/format.h>
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

Result<std::string> ReadOnlyFile::read(std::uint64_t offset, std::size_t bytes_max) {
  if (fd_ < 0) {
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::string();
    if (fd_ < 0) return error(errno_status(errno, "open", path_));
  }
  std::string bytes(bytes_max, '\0');
  TAILOR_ASSIGN_OR_RETURN(const std::size_t got,
                          read_at(fd_, bytes.data(), bytes_max, offset, path_));
  bytes.resize(got);
  return bytes;
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
                        std::size_t bytes_max) {
  LogRead answer{ref, offset, {}, false};
  const std::string marker =
      fmt::format("\n[tailor-worker: forwarded no further than {} bytes; the rest is in {}]\n",
                  bytes_max_, file_.path());
  if (offset < bytes_max_) {
    const std::size_t wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(bytes_max, bytes_max_ - offset));
    Result<std::string> bytes = file_.read(offset, wanted);
    if (!bytes) {  // a log is help, not data: an unreadable one ends here
      answer.at_end = true;
      return answer;
    }
    answer.bytes = *std::move(bytes);
    answer.at_end = answer.bytes.size() < wanted;
    return answer;
  }
  // One more byte in the file than may be forwarded: the marker follows.
  const Result<std::string> beyond = file_.read(bytes_max_, 1);
  const std::uint64_t into = offset - bytes_max_;
  if (beyond && !beyond->empty() && into < marker.size()) {
    answer.bytes = marker.substr(static_cast<std::size_t>(into), bytes_max);
    answer.at_end = into + answer.bytes.size() == marker.size();
  } else {
    answer.at_end = true;
  }
  return answer;
}

}  // namespace tailor::agent
