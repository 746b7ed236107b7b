#include "tests/integration/cluster.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "base/clock.h"
#include "base/file.h"

namespace tailor::testing {
namespace {

namespace fs = std::filesystem;

std::string program(const std::string& name) { return std::string(TAILOR_BIN_DIR) + "/" + name; }

/// fork + exec with stdout and stderr on the given descriptors.
pid_t start(const std::vector<std::string>& argv,
            const std::map<std::string, std::string>& environment, int out, int err) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> raw;
  for (const auto& a : argv) raw.push_back(const_cast<char*>(a.c_str()));
  raw.push_back(nullptr);
  ::execv(raw[0], raw.data());
  ::_exit(127);
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& argv, double timeout_s,
                          const std::map<std::string, std::string>& environment) {
  CommandResult result;
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return result;
  const pid_t pid = start(argv, environment, out[1], err[1]);
  ::close(out[1]);
  ::close(err[1]);
  const SystemClock clock;
  const auto deadline = clock.now_ms() + static_cast<std::int64_t>(timeout_s * 1000);
  bool open[2] = {true, true};
  while (open[0] || open[1]) {
    const auto left = deadline - clock.now_ms();
    if (left <= 0) {
      ::kill(pid, SIGKILL);
      break;
    }
    pollfd fds[2] = {{open[0] ? out[0] : -1, POLLIN, 0}, {open[1] ? err[0] : -1, POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>(left));
    for (int i = 0; i < 2; ++i) {
      if (!open[i] || fds[i].revents == 0) continue;
      char block[65536];
      const ssize_t got = ::read(fds[i].fd, block, sizeof block);
      if (got <= 0) {
        open[i] = false;
      } else {
        (i == 0 ? result.out : result.err).append(block, static_cast<std::size_t>(got));
      }
    }
  }
  ::close(out[0]);
  ::close(err[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

bool wait_until(const std::function<bool()>& condition, double timeout_s) {
  const SystemClock clock;
  const auto deadline = clock.now_ms() + static_cast<std::int64_t>(timeout_s * 1000);
  for (;;) {
    if (condition()) return true;
    if (clock.now_ms() > deadline) return false;
    ::poll(nullptr, 0, 20);
  }
}

std::vector<pid_t> processes_of(const std::string& tag) {
  std::vector<pid_t> found;
  const std::string wanted = "TAILOR_TEST_CLUSTER=" + tag;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto environment = read_file(entry.path() / "environ", 1 << 22);
    if (!environment || (*environment + '\0').find(wanted + '\0') == std::string::npos) continue;
    const auto stat = read_file(entry.path() / "stat", 1 << 16);
    if (!stat) continue;
    const auto close = stat->rfind(')');
    if (close == std::string::npos || close + 2 >= stat->size() || (*stat)[close + 2] == 'Z')
      continue;
    found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

Cluster::Cluster() {
  static std::atomic<int> serial{0};
  tag_ = fmt::format("{}-{}", ::getpid(), ++serial);
  dir_ = fs::temp_directory_path() / ("tailor_cluster_" + tag_);
  fs::remove_all(dir_);
  fs::create_directories(dir_);
  environment_["TAILOR_TEST_CLUSTER"] = tag_;
}

Cluster::~Cluster() {
  for (const pid_t pid : processes_of(tag_)) ::kill(pid, SIGKILL);
  if (coordinator_ > 0) ::waitpid(coordinator_, nullptr, 0);
  for (const auto& [name, pid] : workers_) ::waitpid(pid, nullptr, 0);
  if (!::testing::Test::HasFailure()) {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  } else {
    std::fprintf(stderr, "logs and database of the failed test are in %s\n", dir_.c_str());
  }
}

pid_t Cluster::spawn(const std::vector<std::string>& argv, const std::string& log) {
  const int fd = ::open((dir_ / log).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const pid_t pid = start(argv, environment_, fd, fd);
  ::close(fd);
  return pid;
}

void Cluster::start_coordinator() {
  ASSERT_EQ(coordinator_, 0);
  const std::string ports = (dir_ / "ports.json").string();
  fs::remove(ports);
  std::vector<std::string> argv;
  if (descriptors_max_ > 0) {
    argv = {"/bin/sh", "-c", fmt::format("ulimit -n {}; exec \"$@\"", descriptors_max_), "sh"};
  }
  for (const std::string& word : std::vector<std::string>{
           program("tailor-coordinator"), "--database", (dir_ / "tailor.db").string(), "--listen",
           address_.empty() ? "127.0.0.1:0" : address_, "--http",
           http_.empty() ? "127.0.0.1:0" : http_, "--heartbeat", "200ms", "--lease", "2500ms",
           "--port-file", ports}) {
    argv.push_back(word);
  }
  argv.insert(argv.end(), coordinator_options_.begin(), coordinator_options_.end());
  coordinator_ = spawn(argv, "coordinator.log");
  ASSERT_TRUE(wait_until([&] { return fs::exists(ports) || ::kill(coordinator_, 0) != 0; }, 20))
      << "the coordinator did not start; see " << dir_;
  const auto text = read_file(ports);
  ASSERT_TRUE(text.has_value()) << text.error().message();
  const auto json = nlohmann::json::parse(*text);
  address_ = json.at("grpc_address").get<std::string>();
  http_ = json.at("http_address").get<std::string>();
}

void Cluster::start_worker(const std::string& name, int slots,
                           const std::vector<std::string>& options) {
  ASSERT_EQ(workers_.count(name), 0u);
  std::vector<std::string> argv = {program("tailor-worker"),
                                   "--coordinator",
                                   address_,
                                   "--name",
                                   name,
                                   "--work-dir",
                                   (dir_ / name).string(),
                                   "--trials-dir",
                                   (dir_ / "trials").string(),
                                   "--slots",
                                   std::to_string(slots),
                                   "--threads-per-slot",
                                   "1",
                                   "--trainer-lease",
                                   "1200ms",
                                   "--trainer",
                                   program("fake_trainer")};
  for (std::size_t i = 0; i + 1 < options.size(); i += 2) {
    const auto given = std::find(argv.begin(), argv.end(), options[i]);
    if (given == argv.end()) {
      argv.insert(argv.end(), {options[i], options[i + 1]});
    } else {
      *(given + 1) = options[i + 1];
    }
  }
  workers_[name] = spawn(argv, name + ".log");
}

void Cluster::signal_coordinator(int signal) { ::kill(coordinator_, signal); }
void Cluster::signal_worker(const std::string& name, int signal) {
  ::kill(workers_.at(name), signal);
}

int Cluster::reap_coordinator() {
  int status = 0;
  ::waitpid(coordinator_, &status, 0);
  coordinator_ = 0;
  return status;
}

int Cluster::reap_worker(const std::string& name) {
  int status = 0;
  ::waitpid(workers_.at(name), &status, 0);
  workers_.erase(name);
  return status;
}

std::vector<pid_t> Cluster::trainers() const {
  std::vector<pid_t> found;
  for (const pid_t pid : processes_of(tag_)) {
    std::error_code ignored;
    const auto exe = fs::read_symlink(fmt::format("/proc/{}/exe", pid), ignored);
    if (exe.filename() == "fake_trainer") found.push_back(pid);
  }
  return found;
}

CommandResult Cluster::tailor(std::vector<std::string> arguments, double timeout_s) const {
  arguments.insert(arguments.begin(), {program("tailor"), "--coordinator", address_});
  auto environment = environment_;
  environment.erase("TAILOR_TEST_CLUSTER");  // a client is not of those that must end
  environment["HOME"] = dir_.string();
  return run_command(arguments, timeout_s, environment);
}

nlohmann::json Cluster::tailor_json(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), "--json");
  const CommandResult result = tailor(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return nlohmann::json::parse(result.out, nullptr, false);
}

std::vector<std::vector<std::string>> Cluster::query(const std::string& sql) const {
  const auto json = tailor_json({"query", sql, "--max", "1000000"});
  std::vector<std::vector<std::string>> rows;
  if (!json.is_object()) return rows;
  for (const auto& row : json.at("rows")) {
    std::vector<std::string> cells;
    for (const auto& cell : row)
      cells.push_back(cell.is_null()     ? ""
                      : cell.is_string() ? cell.get<std::string>()
                                         : cell.dump());
    rows.push_back(std::move(cells));
  }
  return rows;
}

std::string Cluster::write_sweep(const std::string& name, int candidates, int seeds,
                                 const std::string& extra) {
  std::string text = fmt::format(
      "name = \"{}\"\nbaseline = \"c0\"\n[data]\ntrain = \"none-train.tokens\"\nvalidation = "
      "\"none-validation.tokens\"\nsequence_length = 16\n[architecture]\nfamily = "
      "\"llama\"\nd_model = 16\nlayers "
      "= 1\nhead_dim = 8\nvocab_size = 64\nffn = {{ kind = \"swiglu\", d_h = 32 "
      "}}\n[train]\ntokens = 1024\nbatch "
      "= 64\n[seeds]\ncount = {}\n[resources]\ngpus = 0\n{}\n",
      name, seeds, extra);
  for (int c = 0; c < candidates; ++c) {
    text += fmt::format("[[candidate]]\nname = \"c{}\"\nffn = {{ kind = \"swiglu\", d_h = {} }}\n",
                        c, 32 + 8 * c);
  }
  const std::string path = (dir_ / (name + ".toml")).string();
  EXPECT_TRUE(write_file_atomic(path, text).is_ok());
  return path;
}

bool Cluster::sweep_ended() const {
  const CommandResult result = tailor({"--json", "show", "last"});
  if (result.exit_code != 0) return false;
  const auto json = nlohmann::json::parse(result.out, nullptr, false);
  if (!json.is_object()) return false;
  const std::string state = json["sweep"]["state"];
  return state == "completed" || state == "cancelled" || state == "failed";
}

}  // namespace tailor::testing
