// Waiting, signalling and emptying process groups: see supervisor.h.
#include "worker/agent/process/supervisor.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "base/logging.h"
#include "worker/agent/process/cgroup.h"

namespace tailor::agent {
namespace {

/// A group that SIGKILL does not empty for so long (a process in an uninterruptible call, such as
/// one that waits for a device) is worth a warning. Its slot stays taken.
constexpr std::int64_t kEmptyingWarnMs = 10'000;

/// What the trainers' mark in their environments begins with, whoever's they are.
constexpr std::string_view kMark = "TAILOR_ATTEMPT=";

/// True when some process of `group` lives. A zombie does not: its parent may never collect it.
bool has_live_member(pid_t group) {
  bool found = false;
  for_each_process([&](const ProcessLine& process) {
    found = process.group == group && !process.zombie;
    return !found;
  });
  return found;
}

int open_pid_fd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

}  // namespace

bool Supervisor::subreaper_ = false;

Supervisor::~Supervisor() {
  for (auto& [ref, watched] : watched_) {
    if (watched.pid_fd >= 0) ::close(watched.pid_fd);
    if (watched.child) end_reservation(watched.process.pid);
  }
}

void Supervisor::become_subreaper() {
  subreaper_ = ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0;
}

std::string Supervisor::mark(const std::string& owner, const protocol::AttemptRef& ref) {
  return fmt::format("{}{}:{}/{:x}", kMark, owner, ref.attempt.to_string(), ref.token);
}

void Supervisor::watch(const protocol::AttemptRef& ref, const ProcessIdentity& process, bool child,
                       const std::string& cgroup) {
  Watched watched;
  watched.process = process;
  watched.child = child;
  watched.mark = mark(ref);
  watched.cgroup = cgroup;
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
  end_reservation(watched.process.pid);
  return true;
}

bool Supervisor::group_empty(const Watched& watched) const {
  const pid_t group = watched.process.pid;
  // Somebody else with this pid would be another group.
  const Result<std::uint64_t> now_there = process_start_time(group);
  if (now_there && *now_there != watched.process.start_time) return true;
  while (::waitpid(-group, nullptr, WNOHANG) > 0) {
  }
  if (::kill(-group, SIGKILL) != 0 && errno == ESRCH) return true;
  return !has_live_member(group);
}

bool Supervisor::cgroup_empty(const Watched& watched) const {
  if (watched.cgroup.empty()) return true;
  const Cgroup cgroup(watched.cgroup);
  if (cgroup.remove()) return true;
  cgroup.kill();
  collect_orphans();
  return cgroup.remove();
}

/// True for a child of this process that came to it as the subreaper and says nothing of where it
/// is from (its environment was emptied), when nothing that still runs can have started it.
bool Supervisor::is_left_by_none(const ProcessLine& process) const {
  if (process.parent != ::getpid() || is_reserved(process.pid)) return false;
  for (const auto& [ref, other] : watched_) {
    if (process.group == other.process.pid) return false;  // ended with its group
    // What it starts later than itself and outside of its group may be its own business.
    if (other.child && !other.leader_gone && other.cgroup.empty() &&
        other.process.start_time <= process.start_time) {
      return false;
    }
  }
  return started_with_entry(process.pid, kMark).empty();
}

bool Supervisor::strays_gone(const Watched& watched) const {
  if (!watched.cgroup.empty()) return true;  // none can leave it
  // Everything that our own trainers left is our child by now, or below one: without children there
  // is nothing to look for.
  siginfo_t info{};
  if (watched.child && ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 &&
      errno == ECHILD) {
    return true;
  }
  bool gone = true;
  for_each_process([&](const ProcessLine& process) {
    if (process.zombie || process.pid == ::getpid()) return true;
    if (started_with(process.pid, watched.mark)) {
      ::kill(process.pid, SIGKILL);
      gone = false;
    } else if (watched.child && subreaper_ && is_left_by_none(process)) {
      if (::kill(process.pid, SIGKILL) == 0) gone = false;  // another user's cannot be ended
    }
    return true;
  });
  return gone;
}

bool Supervisor::all_gone(Watched& watched) {
  const bool gone = group_empty(watched) && cgroup_empty(watched) && strays_gone(watched);
  if (!gone && !watched.warned && clock_.now_ms() - watched.gone_at_ms >= kEmptyingWarnMs) {
    watched.warned = true;
    log_warn("supervisor", "processes of a trainer outlive SIGKILL; its slot stays taken",
             {{"group", std::to_string(watched.process.pid)}});
  }
  return gone;
}

std::vector<TrainerExited> Supervisor::reap() {
  std::vector<TrainerExited> ended;
  collect_orphans();
  for (auto it = watched_.begin(); it != watched_.end();) {
    Watched& watched = it->second;
    if (!watched.leader_gone && leader_ended(watched)) {
      watched.leader_gone = true;
      watched.gone_at_ms = clock_.now_ms();
      if (watched.pid_fd >= 0) ::close(std::exchange(watched.pid_fd, -1));
    }
    if (watched.leader_gone && all_gone(watched)) {
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
