#include "tests/bench/load/coordinator_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

namespace tailor::load {
namespace {

namespace fs = std::filesystem;

constexpr double kStartLimitS = 120;

}  // namespace

std::uint64_t raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

Result<std::unique_ptr<Coordinator>> Coordinator::open(const Options& options,
                                                       const std::string& database) {
  std::unique_ptr<Coordinator> self(new Coordinator);
  self->keep_ = options.keep;
  std::string pattern = options.folder + "/tailor-bench-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return error(errno_status(errno, "make", pattern));
  self->folder_ = pattern;
  if (!options.coordinator.empty()) {
    self->grpc_ = options.coordinator;
    return self;
  }
  self->own_database_ = database.empty();
  self->database_ = database.empty() ? self->folder_ + "/tailor.db" : database;
  self->program_ = options.program;
  self->arguments_ = options.coordinator_arguments;
  TAILOR_RETURN_IF_ERROR(status_of(self->spawn()));
  return self;
}

Coordinator::~Coordinator() {
  if (pid_ > 0) end(SIGTERM);
  std::error_code ignored;
  if (!keep_ && !folder_.empty()) fs::remove_all(folder_, ignored);
}

Usage Coordinator::usage() const {
  Usage usage = usage_of(pid_);
  // Its log is not what is measured.
  usage.written_bytes -= std::min(usage.written_bytes, file_bytes(folder_ + "/log"));
  return usage;
}

void Coordinator::end(int signal) {
  if (pid_ <= 0) return;
  ::kill(pid_, signal);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
}

void Coordinator::kill() { end(SIGKILL); }
void Coordinator::stop() { end(SIGTERM); }
Result<double> Coordinator::start() { return spawn(); }

Result<double> Coordinator::spawn() {
  const std::string port_file = folder_ + "/ports.json";
  const std::string log = folder_ + "/log";
  ::unlink(port_file.c_str());
  std::vector<std::string> argv = {program_,
                                   "--database",
                                   database_,
                                   "--listen",
                                   fmt::format("127.0.0.1:{}", grpc_port_),
                                   "--http",
                                   fmt::format("127.0.0.1:{}", http_port_),
                                   "--port-file",
                                   port_file,
                                   "--log-level",
                                   "warn"};
  argv.insert(argv.end(), arguments_.begin(), arguments_.end());
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const double begin = steady_seconds();
  pid_ = ::fork();
  if (pid_ < 0) return error(errno_status(errno, "fork", program_));
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a bench that is killed leaves nothing behind
    const int out = ::open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  while (steady_seconds() - begin < kStartLimitS) {
    if (const auto text = read_file(port_file); text.has_value()) {
      const double seconds = steady_seconds() - begin;
      const auto ports = parse_json(*text);
      if (!ports.has_value()) return error(ports.error());
      grpc_port_ = ports->at("grpc").get<int>();
      http_port_ = ports->at("http").get<int>();
      grpc_ = fmt::format("127.0.0.1:{}", grpc_port_);
      return seconds;
    }
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = 0;
      break;
    }
    sleep_s(0.001);
  }
  const auto text = read_file(log);
  const std::string tail = text.has_value() ? *text : "";
  return error(Code::kUnavailable,
               fmt::format("{} does not serve; its log ends with: {}", program_,
                           tail.substr(tail.size() - std::min<std::size_t>(tail.size(), 1'000))));
}

}  // namespace tailor::load
