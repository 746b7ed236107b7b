#include "base/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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

}  // namespace

Status init_logging(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return Status(
        Code::kInvalidArgument,
        fmt::format("unknown log level \"{}\"; allowed: debug, info, warn, error", level));
  }
  auto logger =
      std::make_shared<spdlog::logger>("tailor", std::make_shared<spdlog::sinks::stderr_sink_mt>());
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
