// Log lines on stderr, one an event: time level component message key=value...
//
//   log_info("engine", "trial started", {{"trial", id.to_string()}, {"worker", w.to_string()}});
//
// Levels: info = the state changed, debug = messages, warn = we coped, error = someone should look.
// Ids always as sweep= trial= attempt= worker=. Pure code does not log; it returns effects.
// Threads: any.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace tailor {

using LogFields = std::initializer_list<std::pair<std::string_view, std::string>>;

/// Sets up the stderr logger. `level` is one of debug, info, warn, error.
Status init_logging(std::string_view level = "info");

/// A line of ASCII below the log lines, rewritten in place and cut to the terminal's width: how far
/// a long task is. "" takes it away. REQUIRES: stderr is a terminal. Nothing before init_logging.
void set_status_line(std::string_view text);

void log_debug(std::string_view component, std::string_view message, LogFields fields = {});
void log_info(std::string_view component, std::string_view message, LogFields fields = {});
void log_warn(std::string_view component, std::string_view message, LogFields fields = {});
void log_error(std::string_view component, std::string_view message, LogFields fields = {});

}  // namespace tailor
