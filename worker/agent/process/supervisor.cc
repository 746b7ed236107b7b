// Waiting, signalling and emptying process groups: see supervisor.h.
#include "worker/agent/process/supervisor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/logging.h"
#include "base/text.h"

namespace tailor::agent {
namespace {

/// A group that SIGKILL does not empty for so long (a process in an uninterruptible call, such as
/// one that waits for a device) is worth a warning. Its slot stays taken.
constexpr std::int64_t kEmptyingWarnMs = 10'000;

/// True when some process of `group` lives. A zombie does not: its parent may never collect it.
bool has_live_member(pid_t group) {
  std::error_code failure;
  for (std::filesystem::directory_iterator it("/proc", failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string name = it->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const Result<std::string> stat = read_file("/proc/" + name + "/stat", 4096);
    if (!stat) continue;  // just gone
    const std::size_t close = stat->rfind(')');
    if (close == std::string::npos) continue;
    const auto fields = split(trim(std::string_view(*stat).substr(close + 1)), ' ');
    // state, parent, group
    if (fields.size() < 3 || fields[0] == "Z" || fields[0] == "X") continue;
    if (fields[2] == std::to_string(group)) return true;
  }
  return false;
}

int open_pid_fd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

Supervisor::~Supervisor() {
  for (auto& [ref, watched] : watched_) {
    if (watched.pid_fd >= 0) ::close(watched.pid_fd);
  }
}

void Supervisor::become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

void Supervisor::watch(const protocol::AttemptRef& ref, const ProcessIdentity& process,
                       bool child) {
  Watched watched;
  watched.process = process;
  watched.child = child;
  watched.pid_fd = open_pid_fd(process.pid);
  watched_.insert_or_assign(ref, watched);
}

void Supervisor::signal(const protocol::AttemptRef& ref, TrainerSignal signal) {
  const auto found = watched_.find(ref);
  if (found == watched_.end() || found->second.leader_gone) return;
  // An unreaped child's pid cannot be anybody else's; an adopted one's could.
  if (!found->second.child && !is_alive(found->second.process)) return;
  ::kill(-found->second.process.pid, signal == TrainerSignal::kTerm ? SIGTERM : SIGKILL);
}

bool Supervisor::leader_ended(Watched& watched) {
  if (!watched.child) return !is_alive(watched.process);
  // Look without collecting first: while the zombie stands,
  // its pid and so its group's number are ours.
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(watched.process.pid), &info, WEXITED | WNOHANG | WNOWAIT) !=
      0) {
    return errno == ECHILD;
  }
  if (info.si_pid == 0) return false;
  ::kill(-watched.process.pid, SIGKILL);
  int status = 0;
  if (::waitpid(watched.process.pid, &status, 0) == watched.process.pid) {
    if (WIFEXITED(status)) watched.status.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) watched.status.signal = WTERMSIG(status);
  }
  return true;
}

bool Supervisor::group_empty(Watched& watched) {
  const pid_t group = watched.process.pid;
  // Somebody else with this pid would be another group.
  const Result<std::uint64_t> now_there = process_start_time(group);
  if (now_there && *now_there != watched.process.start_time) return true;
  while (::waitpid(-group, nullptr, WNOHANG) > 0) {
  }
  if (::kill(-group, SIGKILL) != 0 && errno == ESRCH) return true;
  if (!has_live_member(group)) return true;
  if (!watched.warned && clock_.now_ms() - watched.gone_at_ms >= kEmptyingWarnMs) {
    watched.warned = true;
    log_warn("supervisor", "processes of a trainer outlive SIGKILL; its slot stays taken",
             {{"group", std::to_string(group)}});
  }
  return false;
}

std::vector<TrainerExited> Supervisor::reap() {
  std::vector<TrainerExited> ended;
  for (auto it = watched_.begin(); it != watched_.end();) {
    Watched& watched = it->second;
    if (!watched.leader_gone && leader_ended(watched)) {
      watched.leader_gone = true;
      watched.gone_at_ms = clock_.now_ms();
      if (watched.pid_fd >= 0) ::close(std::exchange(watched.pid_fd, -1));
    }
    if (watched.leader_gone && group_empty(watched)) {
      ended.push_back({it->first, watched.status});
      it = watched_.erase(it);
    } else {
      ++it;
    }
  }
  return ended;
}

std::vector<int> Supervisor::wait_fds() const {
  std::vector<int> fds;
  for (const auto& [ref, watched] : watched_) {
    if (watched.pid_fd >= 0) fds.push_back(watched.pid_fd);
  }
  return fds;
}

bool Supervisor::emptying() const {
  for (const auto& [ref, watched] : watched_) {
    if (watched.leader_gone) return true;
  }
  return false;
}

}  // namespace tailor::agent
