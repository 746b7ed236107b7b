// See cgroup.h.
#include "worker/agent/process/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "base/text.h"

namespace tailor::agent {
namespace {

Status write_control(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno_status(errno, "open", path);
  const bool done = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int failure = errno;
  ::close(fd);
  return done ? Status::ok() : errno_status(failure, "write", path);
}

/// Where cgroup v2 is mounted, and which of its folders is seen there.
struct Mount {
  std::string point;
  std::string root;
};
std::optional<Mount> find_mount(const std::string& root) {
  const Result<std::string> text = read_file(root + "/proc/self/mountinfo", 4 << 20);
  if (!text) return std::nullopt;
  for (const std::string_view line : split(*text, '\n')) {
    if (line.find(" - cgroup2 ") == std::string_view::npos) continue;
    const auto fields = split(line, ' ');  // id parent device root point ...
    if (fields.size() > 5) return Mount{std::string(fields[4]), std::string(fields[3])};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> Cgroup::parent(const std::string& root) {
  const std::optional<Mount> mount = find_mount(root);
  const Result<std::string> groups = read_file(root + "/proc/self/cgroup", 1 << 20);
  if (!mount || !groups) return std::nullopt;
  for (const std::string_view line : split(*groups, '\n')) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string own(line.substr(3));
    if (mount->root != "/") {
      if (own.rfind(mount->root, 0) != 0) return std::nullopt;  // outside of what is seen
      own.erase(0, mount->root.size());
    }
    while (!own.empty() && own.back() == '/') own.pop_back();
    const std::string path = root + mount->point + own;
    // Whether one may is found by doing it: capabilities and read-only mounts lie in wait.
    const Result<Cgroup> probe = create(path, "tailor-probe-" + std::to_string(::getpid()));
    if (!probe) return std::nullopt;
    const bool can_kill = ::access((probe->path() + "/cgroup.kill").c_str(), W_OK) == 0;
    probe->remove();
    if (can_kill) return path;
    return std::nullopt;
  }
  return std::nullopt;
}

Result<Cgroup> Cgroup::create(const std::string& parent, std::string_view name) {
  std::string path = parent + "/" + std::string(name);
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    return error(errno_status(errno, "create", path));
  }
  return Cgroup(std::move(path));
}

Status Cgroup::add(pid_t pid) const {
  return write_control(path_ + "/cgroup.procs", std::to_string(pid));
}

void Cgroup::kill() const { static_cast<void>(write_control(path_ + "/cgroup.kill", "1")); }

bool Cgroup::populated() const {
  const Result<std::string> events = read_file(path_ + "/cgroup.events", 4096);
  return events && events->find("populated 1") != std::string::npos;
}

bool Cgroup::remove() const { return ::rmdir(path_.c_str()) == 0 || errno == ENOENT; }

}  // namespace tailor::agent
