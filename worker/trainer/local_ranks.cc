#include "worker/trainer/local_ranks.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/logging.h"

namespace tailor::trainer {
namespace {

std::string fate_in_words(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       ::strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

Result<LocalRanks> LocalRanks::start(const std::vector<std::string>& arguments, int first,
                                     int count) {
  LocalRanks all;
  for (int rank = first + 1; rank < first + count; ++rank) {
    std::vector<std::string> words = {"tailor-trainer"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const std::string number = std::to_string(rank);
    for (const std::string& word : {std::string("--rank"), number, std::string("--local-rank"),
                                    std::to_string(rank - first)}) {
      words.push_back(word);
    }
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    Process process;
    process.rank = rank;
    const int failure =
        ::posix_spawn(&process.pid, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ);
    if (failure != 0) {
      for (const Process& started : all.processes_) ::kill(started.pid, SIGKILL);
      return error(Code::kUnavailable,
                   fmt::format("rank {} cannot be started: {}", rank, std::strerror(failure)));
    }
    // The C library's own name for it is not declared for C++ in Debian 12.
    process.descriptor = static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0));
    all.processes_.push_back(process);
    log_info("trainer", "rank started", {{"rank", number}, {"pid", std::to_string(process.pid)}});
  }
  return all;
}

LocalRanks::~LocalRanks() {
  const SystemClock clock;
  const MonotonicMs deadline_ms = clock.now_ms() + kGraceMs;
  for (Process& process : processes_) {
    const auto left_ms = std::max<std::int64_t>(0, deadline_ms - clock.now_ms());
    if (!has_ended(process, static_cast<int>(left_ms))) {
      log_warn("trainer", "rank killed: it does not end", {{"rank", std::to_string(process.rank)}});
      ::kill(process.pid, SIGKILL);
      has_ended(process, kGraceMs);
    }
    if (process.descriptor >= 0) ::close(process.descriptor);
  }
}

bool LocalRanks::has_ended(Process& process, int wait_ms) {
  if (process.status) return true;
  pollfd entry{process.descriptor, POLLIN, 0};
  // A signal (SIGTERM for the whole group) must not cut the wait short.
  const SystemClock clock;
  const MonotonicMs deadline_ms = clock.now_ms() + wait_ms;
  while (::poll(&entry, 1,
                static_cast<int>(std::max<std::int64_t>(0, deadline_ms - clock.now_ms()))) < 0 &&
         errno == EINTR) {
  }
  int status = 0;
  if (::waitpid(process.pid, &status, WNOHANG) != process.pid) return false;
  process.status = status;
  return true;
}

std::optional<std::string> LocalRanks::fate(int rank, int wait_ms) {
  for (Process& process : processes_) {
    if (process.rank == rank && has_ended(process, wait_ms)) return fate_in_words(*process.status);
  }
  return std::nullopt;
}

void LocalRanks::kill(int rank) {
  for (Process& process : processes_) {
    if (process.rank == rank && !has_ended(process, 0)) ::kill(process.pid, SIGKILL);
  }
}

std::optional<std::string> LocalRanks::first_ended() {
  for (Process& process : processes_) {
    if (has_ended(process, 0)) {
      return fmt::format("rank {} (process {}) {}", process.rank, process.pid,
                         fate_in_words(*process.status));
    }
  }
  return std::nullopt;
}

}  // namespace tailor::trainer
