// tailor-worker: the daemon of a node. Builds the parts, runs the loop, ends.
//
// Threads: this one owns everything; gRPC's own threads only post to the mailbox. Shutdown order:
// the loop ends, the stream is flushed and closed, the mailbox goes last.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/logging.h"
#include "worker/agent/config.h"
#include "worker/agent/device/inventory.h"
#include "worker/agent/device/nvml.h"
#include "worker/agent/identity.h"
#include "worker/agent/loop.h"
#include "worker/agent/mailbox.h"
#include "worker/agent/node_watch.h"
#include "worker/agent/process/cgroup.h"
#include "worker/agent/process/supervisor.h"
#include "worker/agent/pruning.h"
#include "worker/agent/session.h"
#include "worker/agent/session_artifacts.h"

namespace tailor::agent {
namespace {

// Exit codes (design.md 9).
constexpr int kInternal = 1;
constexpr int kUsage = 2;
constexpr int kConflict = 7;

constexpr std::int64_t kLookEveryMs = 5'000;
constexpr std::int64_t kPruneEveryMs = 3'600'000;
constexpr std::int64_t kHealthLimitMs = 60'000;

/// Locks WORK_DIR/worker.lock until this process ends, however it ends. Errors: kAlreadyExists when
/// another daemon holds it.
Status lock_work_dir(const std::string& work_dir) {
  std::error_code failure;
  std::filesystem::create_directories(work_dir, failure);
  if (failure) return errno_status(failure.value(), "create", work_dir);
  const std::string path = work_dir + "/worker.lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status(errno, "open", path);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const Result<std::string> holder = read_file(path, 64);
    return Status(
        Code::kAlreadyExists,
        fmt::format("{} is in use by another tailor-worker (process {}): stop it, or give this "
                    "one another --work-dir",
                    work_dir, holder && !holder->empty() ? *holder : "unknown"));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd, 0) == 0) {
    [[maybe_unused]] const ssize_t told = ::pwrite(fd, pid.data(), pid.size(), 0);
  }
  return Status::ok();  // fd stays open: the lock lives as long as the process
}

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  if (::getrandom(&value, sizeof value, 0) != sizeof value)
    value = static_cast<std::uint64_t>(::getpid());
  return value;
}

int refuse(const Status& status, int code) {
  fmt::print(stderr, "tailor-worker: {}\n", status.message());
  return code;
}

void prune_once(const std::string& trials_dir, const PruneRules& rules) {
  const Result<Pruned> pruned = prune(trials_dir, rules, SystemClock().wall_ms());
  if (!pruned) return log_warn("worker", "cannot prune", {{"reason", pruned.error().message()}});
  for (const std::string& failure : pruned->failures) {
    log_warn("worker", "cannot prune", {{"reason", failure}});
  }
  if (pruned->checkpoints + pruned->folders == 0) return;
  log_info("worker", "pruned old trials",
           {{"checkpoints", std::to_string(pruned->checkpoints)},
            {"folders", std::to_string(pruned->folders)},
            {"mib", std::to_string(pruned->bytes >> 20)}});
}

/// What a worker that was killed while it fetched has left.
void remove_old_fetches(const std::string& trials_dir) {
  const Pruned removed = prune_fetches(trials_dir, SystemClock().wall_ms());
  for (const std::string& failure : removed.failures) {
    log_warn("worker", "cannot prune", {{"reason", failure}});
  }
  if (removed.checkpoints == 0) return;
  log_info("worker", "removed checkpoints whose fetching was broken off",
           {{"checkpoints", std::to_string(removed.checkpoints)},
            {"mib", std::to_string(removed.bytes >> 20)}});
}

int run(WorkerConfig config) {
  const Status logging = init_logging(config.log_level);
  if (!logging) return refuse(logging, kUsage);
  const Status complete = complete_config(&config);
  if (!complete) return refuse(complete, kUsage);
  // Before the lock file, whose presence tells a folder of an earlier version.
  const Status named = complete_name(&config);
  if (!named) return refuse(named, named.code() == Code::kInvalidArgument ? kUsage : kInternal);
  const Status locked = lock_work_dir(config.work_dir);
  if (!locked) return refuse(locked, locked.code() == Code::kAlreadyExists ? kConflict : kInternal);
  const Status trainer = check_trainer(config);
  if (!trainer) return refuse(trainer, kUsage);

  // Before any thread starts, so that all of them leave these signals to the loop.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const int signal_fd = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0) return refuse(errno_status(errno, "watch", "signals"), kInternal);
  Supervisor::become_subreaper();

  std::shared_ptr<Nvml> nvml;
  if (config.device != "cpu") {
    if (Result<std::unique_ptr<Nvml>> opened = Nvml::open()) {
      nvml = *std::move(opened);
    } else if (opened.error().code() != Code::kNotFound) {
      log_warn("worker", "no GPUs", {{"reason", opened.error().message()}});
    }
  }
  const FoundGpus found = config.device == "cpu"
                              ? FoundGpus()
                              : find_gpus(nvml.get(), std::getenv("CUDA_VISIBLE_DEVICES"));
  for (const std::string& note : found.notes) log_warn("worker", "GPU", {{"note", note}});
  Result<Inventory> inventory = make_inventory(
      {config.device, config.slots, config.threads_per_slot}, found.gpus, usable_cores());
  if (!inventory) return refuse(inventory.error(), kUsage);
  std::error_code failure;
  std::filesystem::create_directories(config.trials_dir, failure);
  const Result<std::string> folder = folder_identity(config.trials_dir);
  if (!folder) return refuse(folder.error(), kInternal);
  log_info("worker", "effective config",
           {{"version", TAILOR_VERSION}, {"config", describe(config)}});
  for (const protocol::Slot& slot : inventory->slots) {
    log_info("worker", "slot",
             {{"index", std::to_string(slot.index)},
              {"device", slot.name},
              {"threads", std::to_string(slot.threads)}});
  }

  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  LoopConfig loop_config;
  AgentOptions& options = loop_config.options;
  options.worker_name = config.name;
  options.instance = fmt::format("{:016x}", random_u64());
  options.version = TAILOR_VERSION;
  options.host = host;
  options.slots = inventory->slots;
  options.folder = *folder;
  options.memory_bytes = config.memory_bytes;
  options.labels = config.label_list;
  // Not the host's name: it often stands for a loopback address in /etc/hosts.
  options.address = config.address.empty() ? address_towards(config.coordinator) : config.address;
  options.disk_reserve_bytes = config.disk_reserve_bytes;
  options.disk_reserve_share = config.disk_reserve_share;
  options.health_limit_ms = kHealthLimitMs;
  options.trainer_lease_ms = config.trainer_lease_ms;
  options.offline_limit_ms = config.offline_limit_ms;
  options.stop_grace_ms = config.stop_grace_ms;
  options.drain_limit_ms = config.drain_limit_ms;
  options.upload_limit_ms = config.upload_limit_ms;
  options.exit_when_idle = config.exit_when_idle;
  options.idle_exit_ms = config.idle_time_ms;
  options.seed = random_u64();
  loop_config.visible_devices = inventory->visible_devices;
  loop_config.trials_dir = config.trials_dir;
  loop_config.trainer = config.trainer;
  if (!config.no_cgroups) loop_config.cgroup_parent = Cgroup::parent().value_or("");
  if (nvml) {
    loop_config.memory_in_use = [nvml, indices = inventory->device_indices](std::uint32_t slot) {
      if (slot >= indices.size() || indices[slot] < 0) return std::optional<std::uint64_t>();
      const auto bytes = nvml->memory_in_use(static_cast<std::uint32_t>(indices[slot]));
      return bytes ? std::optional<std::uint64_t>(*bytes) : std::nullopt;
    };
  }

  loop_config.checkpoints =
      std::make_shared<ArtifactClient>(config.coordinator, config.upload_rate_bytes);
  const SystemClock clock;
  Mailbox mailbox;
  SessionClient session(config.coordinator,
                        [&](AgentEvent event) { mailbox.post(std::move(event)); });
  AgentLoop loop(std::move(loop_config), clock, session, mailbox, signal_fd);
  const Status started = loop.start();
  if (!started) return refuse(started, kInternal);
  std::vector<std::uint32_t> devices;
  for (const std::int32_t index : inventory->device_indices) {
    if (index >= 0) devices.push_back(static_cast<std::uint32_t>(index));
  }
  const Periodic watch(
      [&mailbox, nvml, errors = std::make_shared<GpuErrors>(nvml.get(), devices),
       trials = config.trials_dir]() -> std::function<void()> {
        NodeHealth health = look_at_disk(trials);
        if (std::string trouble = errors->trouble(); !trouble.empty()) {
          health.trouble += (health.trouble.empty() ? "" : "; ") + trouble;
        }
        return [&mailbox, health] { mailbox.post(health); };
      },
      kLookEveryMs);
  const Periodic pruner(
      [rules = PruneRules{config.prune_checkpoints_ms, config.prune_folders_ms},
       trials = config.trials_dir]() -> std::function<void()> {
        remove_old_fetches(trials);
        if (rules.checkpoints_after_ms > 0 || rules.folders_after_ms > 0) prune_once(trials, rules);
        return {};
      },
      kPruneEveryMs);
  const int code = loop.run();
  session.finish(2'000);
  return code;
}

}  // namespace
}  // namespace tailor::agent

int main(int argc, char** argv) {
  const tailor::agent::CommandLine line = tailor::agent::parse_command_line(argc, argv);
  if (!line.config) return line.exit_code;
  return tailor::agent::run(*line.config);
}
