#include "base/logging.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>

#include "base/text.h"

namespace tailor {
namespace {

/// Quotes a value that would otherwise break "key=value" apart.
std::string quoted(const std::string& value) {
  const std::string plain = escape_controls(value);
  if (!value.empty() && plain == value && value.find_first_of(" \"=") == std::string::npos)
    return value;
  std::string escaped;
  for (const char c : value) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return "\"" + escape_controls(escaped) + "\"";
}

void write(spdlog::level::level_enum level, std::string_view component, std::string_view message,
           LogFields fields) {
  auto* logger = spdlog::default_logger_raw();
  if (!logger->should_log(level)) return;
  std::string line = fmt::format("{} {}", component, escape_controls(message));
  for (const auto& [key, value] : fields) line += fmt::format(" {}={}", key, quoted(value));
  logger->log(level, spdlog::string_view_t(line.data(), line.size()));
}

/// stderr, with a status line below the log lines while there is one.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void set_status(std::string text) {
    const std::lock_guard lock(mutex_);
    if (text == status_) return;
    status_ = std::move(text);
    const std::string out = kClearLine + status_;
    write(out.data(), out.size());
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (!status_.empty()) write(kClearLine.data(), kClearLine.size());
    write(line.data(), line.size());
    if (!status_.empty()) write(status_.data(), status_.size());
  }
  void flush_() override { std::fflush(stderr); }

 private:
  static inline const std::string kClearLine = "\r\033[K";
  static void write(const char* data, std::size_t size) { std::fwrite(data, 1, size, stderr); }

  std::string status_;  // guarded by mutex_ of the base
};

std::shared_ptr<StderrSink> g_sink;  // set by init_logging, before there are threads

/// Columns of the terminal that stderr is; 80 when it does not say.
std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

void set_status_line(std::string_view text) {
  if (!g_sink) return;
  // A line that wraps could not be rewritten.
  g_sink->set_status(escape_controls(text).substr(0, terminal_columns() - 1));
}

Status init_logging(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return Status(
        Code::kInvalidArgument,
        fmt::format("unknown log level \"{}\"; allowed: debug, info, warn, error", level));
  }
  g_sink = std::make_shared<StderrSink>();
  auto logger = std::make_shared<spdlog::logger>("tailor", g_sink);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  return Status::ok();
}

void log_debug(std::string_view component, std::string_view message, LogFields fields) {
  write(spdlog::level::debug, component, message, fields);
}
void log_info(std::string_view component, std::string_view message, LogFields fields) {
  write(spdlog::level::info, component, message, fields);
}
void log_warn(std::string_view component, std::string_view message, LogFields fields) {
  write(spdlog::level::warn, component, message, fields);
}
void log_error(std::string_view component, std::string_view message, LogFields fields) {
  write(spdlog::level::err, component, message, fields);
}

}  // namespace tailor
