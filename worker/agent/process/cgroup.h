// Cgroup: a control group (version 2) around one attempt, where this process may make one: whatever
// a trainer starts is in it, in whatever process group or session, and one write ends it all.
// Where none can be made (no cgroup v2, not ours to write), process groups and the search for
// descendants do the same less surely; see supervisor.h. Threads: values; one at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailor::agent {

class Cgroup {
 public:
  /// The folder of this process's own group, if groups can be made below it. `root` holds proc and
  /// the mounts ("" = this machine's; tests make one).
  static std::optional<std::string> parent(const std::string& root = "");

  /// Makes PARENT/NAME. Errors: the system's reason.
  static Result<Cgroup> create(const std::string& parent, std::string_view name);
  /// Names one that exists, or existed.
  explicit Cgroup(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  /// Moves a process, and what it will start, into the group.
  Status add(pid_t pid) const;
  /// Ends every process in it. Nothing happens when there is none.
  void kill() const;
  /// True while a process of it lives (or has not been collected).
  bool populated() const;
  /// Removes the empty group. False while it is not empty.
  bool remove() const;

 private:
  std::string path_;
};

}  // namespace tailor::agent
