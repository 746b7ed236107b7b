#include "worker/trainer/trial_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "protocol/convert.h"

namespace tailor::trainer {
namespace {

constexpr std::uint64_t kSpecBytesMax = 64u << 20;

}  // namespace

Result<protocol::TrialSpec> read_spec(const std::string& directory) {
  const std::string path = directory + "/spec.json";
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path, kSpecBytesMax));
  auto spec = protocol::trial_spec_from_json(text);
  if (!spec) return error(spec.error().with_context(path));
  return spec;
}

Result<std::optional<protocol::TrialSpec>> read_trained(const std::string& directory) {
  const std::string path = directory + "/trained.json";
  const auto text = read_file(path, kSpecBytesMax);
  if (!text && text.error().code() == Code::kNotFound) return std::nullopt;
  if (!text) return error(text.error());
  auto spec = protocol::trial_spec_from_json(*text);
  if (!spec) return error(spec.error().with_context(path));
  return std::move(*spec);
}

Status write_trained(const std::string& directory, const protocol::TrialSpec& spec) {
  return write_file_atomic(directory + "/trained.json", protocol::to_json(spec));
}

Result<ReportLog> ReportLog::open(const std::string& directory, const Clock& clock) {
  const std::string path = directory + "/reports.jsonl";
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return error(errno_status(errno, "open", path));
  ReportLog log(descriptor, path, clock);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return error(Code::kFailedPrecondition,
                 fmt::format("{} is in use: another trainer runs this directory", path));
  }
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    const auto report =
        protocol::report_from_json(std::string_view(text).substr(begin, end - begin));
    if (!report || report->sequence != log.last_sequence_ + 1) {
      return error(Code::kDataLoss,
                   fmt::format("{}: the line after report {} is not report {}: the log is altered",
                               path, log.last_sequence_, log.last_sequence_ + 1));
    }
    log.last_sequence_ = report->sequence;
    log.earlier_end_.reset();
    if (const auto* end_report = std::get_if<protocol::EndReport>(&report->body)) {
      log.earlier_end_ = end_report->end;
    } else if (const auto* started = std::get_if<protocol::StartedReport>(&report->body)) {
      log.earlier_data_hash_ = started->data_hash;
    }
    begin = end + 1;
  }
  log.size_ = static_cast<std::int64_t>(begin);
  if (begin != text.size() && ::ftruncate(descriptor, log.size_) != 0) {
    return error(errno_status(errno, "cut the torn line of", path));
  }
  return log;
}

ReportLog::ReportLog(ReportLog&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      clock_(other.clock_),
      last_sequence_(other.last_sequence_),
      size_(other.size_),
      earlier_end_(other.earlier_end_),
      earlier_data_hash_(std::move(other.earlier_data_hash_)) {}

ReportLog::~ReportLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status ReportLog::append(protocol::Report report, bool durable) {
  report.sequence = last_sequence_ + 1;
  if (report.wall_ms == 0) report.wall_ms = clock_->wall_ms();
  const std::string line = protocol::to_json_line(report) + "\n";
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::write(descriptor_, line.data() + written, line.size() - written);
    if (count < 0) {
      if (errno == EINTR) continue;
      const Status failure = errno_status(errno, "write", path_);
      // Leave no half line for the next report to be glued to.
      if (::ftruncate(descriptor_, size_) != 0)
        return errno_status(errno, "cut the torn line of", path_);
      return failure;
    }
    written += static_cast<std::size_t>(count);
  }
  size_ += static_cast<std::int64_t>(line.size());
  ++last_sequence_;
  if (durable && ::fdatasync(descriptor_) != 0) return errno_status(errno, "sync", path_);
  return Status::ok();
}

std::optional<std::string> Lease::expired() {
  const MonotonicMs now_ms = clock_.now_ms();
  if (checked_ms_ && now_ms - *checked_ms_ < kCheckEveryMs) return std::nullopt;
  checked_ms_ = now_ms;
  const auto text = read_file(path_, 4096);
  if (!text) {
    if (text.error().code() == Code::kNotFound) return std::nullopt;
    return "the lease cannot be read: " + text.error().message();
  }
  const std::string_view number = trim(*text);
  MonotonicMs deadline_ms = 0;
  const auto [end, failure] =
      std::from_chars(number.data(), number.data() + number.size(), deadline_ms);
  if (failure != std::errc() || end != number.data() + number.size()) {
    return fmt::format("{} holds no deadline", path_);
  }
  if (now_ms <= deadline_ms) return std::nullopt;
  return fmt::format("the lease ran out {} ms ago (the worker is gone)", now_ms - deadline_ms);
}

protocol::TrainerExit exit_of(protocol::EndClass end) {
  using protocol::EndClass;
  using protocol::TrainerExit;
  switch (end) {
    case EndClass::kCompleted:
      return TrainerExit::kCompleted;
    case EndClass::kStopped:
    case EndClass::kPreempted:
      return TrainerExit::kStopped;
    case EndClass::kUser:
      return TrainerExit::kUsage;
    case EndClass::kOom:
      return TrainerExit::kOom;
    case EndClass::kNan:
      return TrainerExit::kNan;
    case EndClass::kData:
      return TrainerExit::kData;
    default:
      return TrainerExit::kInfrastructure;
  }
}

}  // namespace tailor::trainer
