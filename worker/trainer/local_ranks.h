// The other ranks of a trial, as processes that this one starts on the same machine.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tailor::trainer {

/// Started processes; all have ended when it is destroyed. They stay in this process's group, so
/// that signals for the group reach them. Threads: one.
class LocalRanks {
 public:
  /// Starts this program once for each rank from `first` + 1 to `first` + `count` - 1, with
  /// `arguments` and `--rank R --local-rank (R - first)`. Errors: kUnavailable; those that were
  /// started are then killed.
  static Result<LocalRanks> start(const std::vector<std::string>& arguments, int first, int count);
  LocalRanks() = default;
  LocalRanks(LocalRanks&& other) noexcept { processes_.swap(other.processes_); }
  LocalRanks& operator=(LocalRanks&& other) noexcept {
    processes_.swap(other.processes_);
    return *this;
  }
  /// Gives them `kGraceMs` to end, then kills those that are left (frozen ones).
  ~LocalRanks();

  bool empty() const { return processes_.empty(); }
  /// What became of rank `rank`, if it has ended or ends within `wait_ms`:
  /// "was killed by signal 9 (Killed)".
  std::optional<std::string> fate(int rank, int wait_ms);
  /// Kills a rank that is given up, frozen or not.
  void kill(int rank);
  /// A rank that has ended already, in words.
  std::optional<std::string> first_ended();

 private:
  static constexpr int kGraceMs = 5'000;
  struct Process {
    int rank = 0;
    pid_t pid = -1;
    int descriptor = -1;  // a pidfd: readable when the process has ended
    std::optional<int> status;
  };
  static bool has_ended(Process& process, int wait_ms);

  std::vector<Process> processes_;
};

}  // namespace tailor::trainer
