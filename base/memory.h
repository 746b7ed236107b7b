// How much memory this process may still take: what the machine has free, what its cgroups leave
// and what its own limits (ulimit) leave, whichever is least. For programs that refuse a job
// beforehand rather than die in the middle of it.
//
// Threads: pure functions of what the system says at that moment.
#pragma once

#include <string>

namespace tailor {

/// So many bytes, and who says so.
struct MemoryLimit {
  double bytes = 0;    ///< infinity when nothing limits it
  std::string source;  ///< for people: "the machine's free memory", "ulimit -v", ...
};

/// What this process may take beside what it has: the least of MemAvailable, of every cgroup's
/// limit (v1 and v2, its own group and those above) less what the group holds and could not give
/// back, and of own_memory_limit. `root` is the folder that holds proc and sys ("" for this
/// machine's; tests make one).
MemoryLimit available_memory(const std::string& root = "");

/// What the limits of this process (RLIMIT_AS, RLIMIT_DATA) leave: more cannot be had, whoever
/// asks.
MemoryLimit own_memory_limit();

/// Bytes that the process holds in memory now (VmRSS); 0 where the system does not say.
double resident_memory();

}  // namespace tailor
