// Supervisor: watches the trainers of this worker, its own children and those re-adopted after a
// restart, and ends whole trees of processes.
//
// An exit is told only when nothing of the attempt lives: what a trainer left behind is killed
// first, so nothing holds a device when its slot is given away. That is its process group; its
// control group where there is one (cgroup.h); and else every process that carries the attempt's
// mark in its environment (a daemon that left the group), and those that came to this one as the
// subreaper with no mark at all, as soon as no other attempt that runs can have started them.
// Exits wake a poll() through pidfds where the kernel has them; `reap` finds them in any case.
// Threads: one thread, the one that spawns.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "worker/agent/effect.h"
#include "worker/agent/event.h"
#include "worker/agent/process/spawner.h"

namespace tailor::agent {

class Supervisor {
 public:
  /// `owner`: what tells this worker's trainers from those of any other on the machine, of
  /// whichever coordinator, and stays the same over restarts of the daemon.
  explicit Supervisor(const Clock& clock, std::string owner = {})
      : clock_(clock), owner_(std::move(owner)) {}
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Orphans of our trainers become our children, so that their groups can be reaped to the last.
  /// Once, early in main.
  static void become_subreaper();

  /// The entry of a trainer's environment that everything it starts inherits.
  std::string mark(const protocol::AttemptRef& ref) const { return mark(owner_, ref); }
  static std::string mark(const std::string& owner, const protocol::AttemptRef& ref);

  /// Watches a process. `child`: this process forked it and will get its exit status. `cgroup`: the
  /// folder of its control group, "" = none.
  void watch(const protocol::AttemptRef& ref, const ProcessIdentity& process, bool child,
             const std::string& cgroup = "");

  /// Signals the whole group of `ref`; nothing when it is not watched or has ended.
  void signal(const protocol::AttemptRef& ref, TrainerSignal signal);

  /// Those that have ended since the last call. Never blocks.
  std::vector<TrainerExited> reap();

  /// Descriptors that become readable when a watched process ends.
  std::vector<int> wait_fds() const;

  /// True while some group is being emptied after its leader's end: call `reap` again soon.
  bool emptying() const;

 private:
  struct Watched {
    ProcessIdentity process;
    bool child = false;
    std::string mark;
    std::string cgroup;
    int pid_fd = -1;
    bool leader_gone = false;
    MonotonicMs gone_at_ms = 0;
    bool warned = false;
    ExitStatus status;
  };
  /// True when the leader has ended (and, a child, been reaped).
  bool leader_ended(Watched& watched);
  /// Kill what is left of the group, of the control group, of other descendants.
  /// True when nothing is.
  bool group_empty(const Watched& watched) const;
  bool cgroup_empty(const Watched& watched) const;
  bool strays_gone(const Watched& watched) const;
  bool is_left_by_none(const ProcessLine& process) const;
  bool all_gone(Watched& watched);

  static bool subreaper_;  // set once, before any supervisor watches

  const Clock& clock_;
  const std::string owner_;
  std::map<protocol::AttemptRef, Watched> watched_;
};

}  // namespace tailor::agent
