// Spawner: starts a program in its own process group, with nothing of ours open but its log.
//
// fork and exec in one file. The child waits at a gate until the parent has noted its process id
// durably: a daemon that dies in between leaves a child that reads end-of-file at the gate and goes
// away, never a trainer that nobody knows. Between fork and exec only async-signal-safe calls are
// made, so other threads of the parent do no harm.
// Threads: any; children are forked one at a time, so that none holds another one's pipes open.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/agent/attempt_directory.h"

namespace tailor::agent {

struct SpawnRequest {
  std::vector<std::string> argv;         ///< argv[0] is the program's path
  std::vector<std::string> environment;  ///< "KEY=value", complete
  std::string working_dir;               ///< "" = the parent's
  std::string log_path;                  ///< stdout and stderr are appended there
};

/// A child that has been forked and waits at its gate.
/// Destroyed before `release`: the child goes away.
class HeldProcess {
 public:
  HeldProcess(ProcessIdentity identity, int gate_fd, int status_fd)
      : identity_(std::move(identity)), gate_fd_(gate_fd), status_fd_(status_fd) {}
  ~HeldProcess();
  HeldProcess(HeldProcess&& other) noexcept;
  HeldProcess& operator=(HeldProcess&&) = delete;

  const ProcessIdentity& identity() const { return identity_; }
  /// Lets the child exec. Ok when the program runs. Errors: why it does not (kNotFound: no such
  /// program); the child has then ended and been reaped.
  Status release();

 private:
  ProcessIdentity identity_;
  int gate_fd_;
  int status_fd_;  // end-of-file = exec happened; bytes = errno and the failed call
};

/// Forks. Errors: no process, no memory, no log file. The child is reserved: whoever collects
/// children in general leaves it to the one that waits for it.
Result<HeldProcess> spawn_held(const SpawnRequest& request);

/// The child is collected, or somebody else will do it: its number may come again.
void end_reservation(pid_t pid);

/// True for a child that somebody waits for.
bool is_reserved(pid_t pid);

/// Collects the ended children that nobody has reserved: orphans of trainers, which come to this
/// process when it is their subreaper.
void collect_orphans();

/// One process, as /proc/PID/stat has it.
struct ProcessLine {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  bool zombie = false;
  std::uint64_t start_time = 0;  ///< in ticks since the boot
};
/// Calls `look` with every process until it returns false.
void for_each_process(const std::function<bool(const ProcessLine&)>& look);

/// The entry KEY=value of the environment that `pid` was started with, for the first key that
/// begins with `prefix`; "" = there is none, or it cannot be read.
std::string started_with_entry(pid_t pid, std::string_view prefix);
/// True when the environment that `pid` was started with has the entry "KEY=value".
bool started_with(pid_t pid, const std::string& entry);

/// This process's environment without the keys of `changes` ("KEY=value"), then `changes`. A change
/// without '=' removes the key.
std::vector<std::string> environment_with(const std::vector<std::string>& changes);

/// The boot id of the running kernel, "" where there is none.
std::string boot_id();

/// Start time of a live process (no zombie). Errors: kNotFound.
Result<std::uint64_t> process_start_time(pid_t pid);

/// True while exactly this process lives (zombies do not).
bool is_alive(const ProcessIdentity& process);

}  // namespace tailor::agent
