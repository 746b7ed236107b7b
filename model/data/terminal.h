// What the commands of tailor-tokenize print with: lines, and a progress bar.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "model/data/prepare.h"

namespace tailor::data {

void print_line(std::FILE* file, std::string_view text);

/// Progress on stderr: a line that is rewritten on a terminal, else one every few seconds. Wiped
/// when it goes out of scope.
class ProgressBar {
 public:
  explicit ProgressBar(std::string action) : action_(std::move(action)) {}
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(const DataProgress& progress);
  double seconds() const { return steady_seconds() - start_s_; }

 private:
  std::string action_;
  bool terminal_ = is_terminal();
  double start_s_ = steady_seconds();
  double last_s_ = start_s_;
  bool drawn_ = false;

  static bool is_terminal();
};

/// The line of a ProgressBar after `seconds`; at most 79 columns with an action of 9.
std::string progress_text(const std::string& action, const DataProgress& progress, double seconds,
                          bool bar);

}  // namespace tailor::data
