// A whole cluster of real programs in a temporary folder, for integration tests:
// tailor-coordinator, tailor-workers and the fake trainer on loopback with port 0, driven through
// the `tailor` client.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tailor::testing {

/// What a finished command printed.
struct CommandResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// Runs a program to its end. Aborts the test's wait after `timeout_s` (exit_code stays -1).
CommandResult run_command(const std::vector<std::string>& argv, double timeout_s = 30,
                          const std::map<std::string, std::string>& environment = {});

/// True once `condition` held; polls until the deadline.
bool wait_until(const std::function<bool()>& condition, double timeout_s);

/// Processes whose environment carries `TAILOR_TEST_CLUSTER=tag`, the dead excluded.
std::vector<pid_t> processes_of(const std::string& tag);

class Cluster {
 public:
  /// Lease times are short so that tests are quick.
  Cluster();
  /// Kills whatever is left.
  ~Cluster();

  std::filesystem::path dir() const { return dir_; }
  const std::string& tag() const { return tag_; }
  const std::string& address() const { return address_; }
  const std::string& http_address() const { return http_; }

  /// Variables for fake trainers, given to whatever is started later.
  void set_environment(const std::string& name, const std::string& value) {
    environment_[name] = value;
  }

  /// Further arguments of coordinators that are started later.
  void set_coordinator_options(std::vector<std::string> options) {
    coordinator_options_ = std::move(options);
  }
  /// The coordinator started later may have at most `most` files and connections open.
  void limit_coordinator_descriptors(int most) { descriptors_max_ = most; }

  /// Starts the coordinator and waits until it serves; the second start re-uses the same ports.
  void start_coordinator();
  /// `options` come last, and so override what this sets.
  void start_worker(const std::string& name, int slots = 1,
                    const std::vector<std::string>& options = {});
  void signal_coordinator(int signal);
  void signal_worker(const std::string& name, int signal);
  /// Waits for the process to be gone and reaps it; its exit status as of waitpid.
  int reap_coordinator();
  int reap_worker(const std::string& name);
  bool coordinator_running() const { return coordinator_ > 0; }
  bool worker_running(const std::string& name) const { return workers_.count(name) > 0; }
  /// Process ids of trainers of this cluster that live now.
  std::vector<pid_t> trainers() const;

  /// `tailor ARGS...` against this cluster.
  CommandResult tailor(std::vector<std::string> arguments, double timeout_s = 30) const;
  /// The same with --json, parsed. Fails the test when the exit code is not 0.
  nlohmann::json tailor_json(std::vector<std::string> arguments) const;
  /// Rows of `tailor query`, as text.
  std::vector<std::vector<std::string>> query(const std::string& sql) const;

  /// Writes a sweep file for the fake trainer: `candidates` x `seeds` trials. Returns its path.
  std::string write_sweep(const std::string& name, int candidates, int seeds,
                          const std::string& extra = "");
  /// True when the sweep "last" is completed or cancelled.
  bool sweep_ended() const;

 private:
  pid_t spawn(const std::vector<std::string>& argv, const std::string& log);

  std::filesystem::path dir_;
  std::string tag_;
  std::string address_, http_;
  std::map<std::string, std::string> environment_;
  std::vector<std::string> coordinator_options_;
  int descriptors_max_ = 0;  // 0 = as many as this process
  pid_t coordinator_ = 0;
  std::map<std::string, pid_t> workers_;
};

}  // namespace tailor::testing
