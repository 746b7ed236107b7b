// Reads /proc and the cgroup file systems.
#include "base/memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace tailor {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// cgroup v1 writes "no limit" as a huge number.
constexpr double kBeyondAnyMachine = 1e18;

std::optional<double> number_at(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  double value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return {};
  return value;
}

// The number after `key` at the start of a line.
std::optional<double> field(const std::string& text, std::string_view key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.starts_with(key)) return number_at(line.substr(key.size()));
    at = end + 1;
  }
  return {};
}

std::optional<double> number_in(const std::string& path) {
  const auto text = read_file(path, 1 << 20);
  return text ? number_at(*text) : std::nullopt;
}

void take_less(MemoryLimit& limit, double bytes, std::string_view source) {
  if (bytes < limit.bytes) limit = {std::max(bytes, 0.0), std::string(source)};
}

// One group: limit files against what it holds, less cached files that the kernel would drop.
void take_group(MemoryLimit& limit, const std::string& folder, bool v2) {
  double most =
      number_in(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes")).value_or(kNoLimit);
  if (v2) most = std::min(most, number_in(folder + "/memory.high").value_or(kNoLimit));
  if (most >= kBeyondAnyMachine) return;
  const double held =
      number_in(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  const std::string statistics = read_file(folder + "/memory.stat", 1 << 20).value_or("");
  const double cached =
      field(statistics, v2 ? "inactive_file " : "total_inactive_file ").value_or(0);
  take_less(limit, most - std::max(held - cached, 0.0), "the memory limit of its control group");
}

// The group `path` and all above it.
void take_groups(MemoryLimit& limit, const std::string& mount, std::string path, bool v2) {
  while (true) {
    take_group(limit, mount + path, v2);
    if (path.empty()) return;
    const std::size_t parent = path.rfind('/');
    path.resize(parent == std::string::npos ? 0 : parent);
  }
}

}  // namespace

MemoryLimit available_memory(const std::string& root) {
  MemoryLimit limit{kNoLimit, "nothing"};
  const std::string machine = read_file(root + "/proc/meminfo", 1 << 20).value_or("");
  if (const auto free = field(machine, "MemAvailable:")) {
    take_less(limit, *free * 1024, "the machine's free memory");
  }
  // Lines "hierarchy:controllers:path"; version 2 has no controllers.
  const std::string groups = read_file(root + "/proc/self/cgroup", 1 << 20).value_or("");
  for (std::size_t at = 0; at < groups.size();) {
    const std::size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string line = groups.substr(at, end - at);
    at = end + 1;
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    while (path.ends_with('/')) path.pop_back();
    if (controllers == ",,") {
      take_groups(limit, root + "/sys/fs/cgroup", path, true);
      take_groups(limit, root + "/sys/fs/cgroup/unified", path, true);
    } else if (controllers.find(",memory,") != std::string::npos) {
      take_groups(limit, root + "/sys/fs/cgroup/memory", path, false);
    }
  }
  const MemoryLimit own = own_memory_limit();
  take_less(limit, own.bytes, own.source);
  return limit;
}

MemoryLimit own_memory_limit() {
  MemoryLimit limit{kNoLimit, "nothing"};
  const std::string status = read_file("/proc/self/status", 1 << 20).value_or("");
  struct Kind {
    decltype(RLIMIT_AS) resource;
    const char* held;
    const char* name;
  };
  for (const Kind& kind : {Kind{RLIMIT_AS, "VmSize:", "the limit of its address space (ulimit -v)"},
                           Kind{RLIMIT_DATA, "VmData:", "the limit of its data (ulimit -d)"}}) {
    rlimit value{};
    if (::getrlimit(kind.resource, &value) != 0) continue;
    if (value.rlim_cur == RLIM_INFINITY) continue;
    const double held = field(status, kind.held).value_or(0) * 1024;
    take_less(limit, static_cast<double>(value.rlim_cur) - held, kind.name);
  }
  return limit;
}

double resident_memory() {
  const std::string status = read_file("/proc/self/status", 1 << 20).value_or("");
  return field(status, "VmRSS:").value_or(0) * 1024;
}

}  // namespace tailor
