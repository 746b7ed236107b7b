// fork, gate, exec: see spawner.h.
#include "worker/agent/process/spawner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/text.h"

extern char** environ;

namespace tailor::agent {
namespace {

/// What the child tells when it cannot exec.
struct ExecFailure {
  int error_number;
  int call;  // index into kCalls
};
constexpr const char* kCalls[] = {"enter the working folder", "redirect the output", "run"};

struct Pipe {
  int read_fd = -1;
  int write_fd = -1;
  ~Pipe() {
    if (read_fd >= 0) ::close(read_fd);
    if (write_fd >= 0) ::close(write_fd);
  }
  bool open() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return false;
    read_fd = fds[0];
    write_fd = fds[1];
    return true;
  }
};

/// Children that somebody waits for by number. Its mutex is held from fork to the entry, so that
/// none can be missed, and while a child is forked, so that none inherits another's pipes.
struct Reservations {
  std::mutex mutex;
  std::set<pid_t> pids;
};
Reservations& reservations() {
  static Reservations all;
  return all;
}

/// Collects a child that has ended or is about to.
void collect(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  end_reservation(pid);
}

std::vector<char*> c_array(const std::vector<std::string>& strings) {
  std::vector<char*> array;
  for (const std::string& text : strings) array.push_back(const_cast<char*>(text.c_str()));
  array.push_back(nullptr);
  return array;
}

/// The child's side. Only async-signal-safe calls.
[[noreturn]] void run_child(char* const* argv, char* const* envp, const char* working_dir,
                            int log_fd, int gate_fd, int status_fd) {
  const auto fail = [&](int call) {
    const ExecFailure failure{errno, call};
    [[maybe_unused]] const ssize_t told = ::write(status_fd, &failure, sizeof failure);
    ::_exit(127);
  };
  ::setpgid(0, 0);
  char go = 0;
  ssize_t got;
  do {
    got = ::read(gate_fd, &go, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) ::_exit(126);  // the parent is gone

  const int null_fd = ::open("/dev/null", O_RDONLY);
  if (null_fd < 0 || ::dup2(null_fd, 0) < 0) fail(1);
  if (::dup2(log_fd, 1) < 0 || ::dup2(log_fd, 2) < 0) fail(1);
  if (working_dir[0] != '\0' && ::chdir(working_dir) != 0) fail(0);
  // Everything else of the daemon (sockets, database, pipes) closes at exec.
  ::syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
  for (int signal_number = 1; signal_number < 32; ++signal_number) {
    if (signal_number != SIGKILL && signal_number != SIGSTOP) ::signal(signal_number, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(argv[0], argv, envp);
  fail(2);
  ::_exit(127);
}

}  // namespace

HeldProcess::HeldProcess(HeldProcess&& other) noexcept
    : identity_(std::move(other.identity_)),
      gate_fd_(std::exchange(other.gate_fd_, -1)),
      status_fd_(std::exchange(other.status_fd_, -1)) {}

HeldProcess::~HeldProcess() {
  if (status_fd_ >= 0) ::close(status_fd_);
  if (gate_fd_ < 0) return;
  ::close(gate_fd_);  // end-of-file: the child leaves
  collect(identity_.pid);
}

Status HeldProcess::release() {
  const char go = 1;
  [[maybe_unused]] const ssize_t told = ::write(gate_fd_, &go, 1);
  ::close(std::exchange(gate_fd_, -1));
  ExecFailure failure{};
  ssize_t got;
  do {
    got = ::read(status_fd_, &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  ::close(std::exchange(status_fd_, -1));
  if (got != sizeof failure) return Status::ok();
  collect(identity_.pid);
  const std::size_t call = static_cast<std::size_t>(failure.call) % std::size(kCalls);
  return errno_status(failure.error_number, kCalls[call], "the program");
}

void end_reservation(pid_t pid) {
  const std::lock_guard lock(reservations().mutex);
  reservations().pids.erase(pid);
}

bool is_reserved(pid_t pid) {
  const std::lock_guard lock(reservations().mutex);
  return reservations().pids.contains(pid);
}

void collect_orphans() {
  const std::lock_guard lock(reservations().mutex);
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    // One that is reserved hides those behind it until it is collected, which is soon.
    if (reservations().pids.contains(info.si_pid)) return;
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

void for_each_process(const std::function<bool(const ProcessLine&)>& look) {
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
    if (fields.size() < 20) continue;
    const auto number = [](std::string_view text) {
      pid_t value = 0;
      std::from_chars(text.data(), text.data() + text.size(), value);
      return value;
    };
    ProcessLine line{number(name), number(fields[1]), number(fields[2]),
                     fields[0] == "Z" || fields[0] == "X"};
    const std::string_view started = fields[19];  // field 22 of the file
    std::from_chars(started.data(), started.data() + started.size(), line.start_time);
    if (!look(line)) return;
  }
}

std::string started_with_entry(pid_t pid, std::string_view prefix) {
  const Result<std::string> all = read_file(fmt::format("/proc/{}/environ", pid), 4 << 20);
  if (!all) return {};
  for (const std::string_view one : split(*all, '\0')) {
    if (one.starts_with(prefix)) return std::string(one);
  }
  return {};
}

bool started_with(pid_t pid, const std::string& entry) {
  const std::string key = entry.substr(0, entry.find('=') + 1);
  return started_with_entry(pid, key) == entry;
}

Result<HeldProcess> spawn_held(const SpawnRequest& request) {
  // Before the lock: its file system may hang.
  const int log_fd =
      ::open(request.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) return error(errno_status(errno, "create", request.log_path));
  std::unique_lock lock(reservations().mutex);
  Pipe gate, status;
  if (!gate.open() || !status.open()) {
    const int failure = errno;
    ::close(log_fd);
    return error(errno_status(failure, "make a pipe for", "a trainer"));
  }
  const std::vector<char*> argv = c_array(request.argv);
  const std::vector<char*> envp = c_array(request.environment);
  // No signal may run one of our handlers in the child before its dispositions are reset.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(gate.write_fd);  // else the child would hold its own gate open
    run_child(argv.data(), envp.data(), request.working_dir.c_str(), log_fd, gate.read_fd,
              status.write_fd);
  }
  const int fork_errno = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(log_fd);
  if (pid < 0) return error(errno_status(fork_errno, "fork for", request.argv.front()));
  reservations().pids.insert(pid);
  ::setpgid(pid, pid);  // on both sides: whoever comes first, the group is there
  // The child's ends, before the next fork: a sibling that held them open would keep `release`
  // waiting.
  ::close(std::exchange(gate.read_fd, -1));
  ::close(std::exchange(status.write_fd, -1));
  lock.unlock();
  HeldProcess held({pid, process_start_time(pid).value_or(0), boot_id()},
                   std::exchange(gate.write_fd, -1), std::exchange(status.read_fd, -1));
  return held;
}

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  const auto key_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool changed =
        std::any_of(changes.begin(), changes.end(),
                    [&](const std::string& change) { return key_of(change) == key_of(*entry); });
    if (!changed) result.emplace_back(*entry);
  }
  for (const std::string& change : changes) {
    if (change.find('=') != std::string::npos) result.push_back(change);
  }
  return result;
}

std::string boot_id() {
  const Result<std::string> text = read_file("/proc/sys/kernel/random/boot_id", 4096);
  return text ? std::string(trim(*text)) : std::string();
}

Result<std::uint64_t> process_start_time(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path, 4096));
  // "pid (name) S ppid ...": the name may hold spaces and parentheses, so count from the last ')'.
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos) return error(Code::kInternal, path + " has an unknown form");
  const std::vector<std::string_view> fields =
      split(trim(std::string_view(text).substr(close + 1)), ' ');
  if (fields.size() < 20) return error(Code::kInternal, path + " has an unknown form");
  if (fields[0] == "Z" || fields[0] == "X") {
    return error(Code::kNotFound, fmt::format("process {} has ended", pid));
  }
  std::uint64_t ticks = 0;
  const std::string_view field = fields[19];  // field 22 of the file, the state being field 3
  std::from_chars(field.data(), field.data() + field.size(), ticks);
  return ticks;
}

bool is_alive(const ProcessIdentity& process) {
  if (process.pid <= 0 || process.boot_id != boot_id()) return false;
  const Result<std::uint64_t> started = process_start_time(process.pid);
  return started && *started == process.start_time;
}

}  // namespace tailor::agent
