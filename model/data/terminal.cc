#include "model/data/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tailor::data {
namespace {

constexpr double kTerminalEveryS = 0.2;
constexpr double kPipeEveryS = 5;

/// "1.2 GB", "38 kB": three digits or so.
std::string size_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return fmt::format("{:.{}f} {}", bytes, unit > 0 && bytes < 99.95 ? 1 : 0, kUnits[unit]);
}

/// "950", "12.3k", "4.5M".
std::string count_text(double count) {
  constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  for (; count >= 999.5 && unit + 1 < kUnits.size(); ++unit) count /= 1000;
  return fmt::format("{:.{}f}{}", count, unit > 0 && count < 99.95 ? 1 : 0, kUnits[unit]);
}

/// "2h05m", "3m20s", "45s".
std::string time_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(std::min(seconds, 3.6e9)));
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

}  // namespace

void print_line(std::FILE* file, std::string_view text) { fmt::print(file, "{}\n", text); }

std::string progress_text(const std::string& action, const DataProgress& progress, double seconds,
                          bool bar) {
  constexpr int kBarWidth = 16;
  const auto done = static_cast<double>(progress.bytes);
  const auto total = static_cast<double>(progress.bytes_total);
  const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0;
  std::string text = action + ": ";
  if (bar) {
    const int filled = static_cast<int>(share * kBarWidth);
    text += "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] ";
  }
  text += fmt::format("{:.0f}% of {}, {} docs, {} tokens", 100 * share, size_text(total),
                      count_text(static_cast<double>(progress.documents)),
                      count_text(static_cast<double>(progress.tokens)));
  if (seconds <= 0) return text;
  const double rate = static_cast<double>(progress.tokens - progress.resumed_tokens) / seconds;
  text += fmt::format(", {}/s", count_text(rate));
  const double bytes_rate = (done - static_cast<double>(progress.resumed_bytes)) / seconds;
  if (bytes_rate > 0 && done < total) {
    text += ", ETA " + time_text((total - done) / bytes_rate);
  }
  return text;
}

bool ProgressBar::is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::show(const DataProgress& progress) {
  const double now_s = steady_seconds();
  if (now_s - last_s_ < (terminal_ ? kTerminalEveryS : kPipeEveryS)) return;
  last_s_ = now_s;
  const std::string text = progress_text(action_, progress, now_s - start_s_, terminal_);
  if (terminal_) {
    fmt::print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
    drawn_ = true;
  } else {
    print_line(stderr, text);
  }
}

}  // namespace tailor::data
