// WorkerConfig: what the daemon is told, flag > file > default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::agent {

/// Durations in milliseconds. On the command line and in the file they are written "10s", "24h".
struct WorkerConfig {
  std::string coordinator = "127.0.0.1:7070";  ///< host:port
  std::string name;                            ///< unique in the cluster; default: see identity.h
  std::string work_dir;                        ///< lock file and, by default, trials
  std::string trials_dir;             ///< default: work_dir/trials; may be shared between nodes
  std::string device = "auto";        ///< auto | cpu | gpu
  std::int32_t slots = 0;             ///< CPU slots; 0 = one
  std::int32_t threads_per_slot = 0;  ///< 0 = the cores shared out evenly
  std::string trainer;                ///< default: tailor-trainer beside this program
  std::int64_t trainer_lease_ms = 10'000;
  std::int64_t offline_limit_ms = 24ll * 3600 * 1000;
  std::int64_t stop_grace_ms = 30'000;
  std::int64_t drain_limit_ms = 0;  ///< 0 = no limit
  bool exit_when_idle = false;
  std::int64_t idle_time_ms = 30'000;
  std::string labels;   ///< "a,b=c": what trials may ask for
  std::string address;  ///< where other nodes reach this one; default: found out
  std::string memory;   ///< of the node, for trials; default: what is installed
  /// Free space below which the node asks for no work: "2GiB", "5%", "0" (never); default: 1 GiB or
  /// 2 %, whichever is less.
  std::string disk_reserve;
  std::string upload_rate = "50MB";  ///< a second, to and from the coordinator; "0" = no limit
  std::int64_t upload_limit_ms = 10 * 60 * 1000;
  std::int64_t prune_checkpoints_ms = 0;  ///< pruning.h; 0 = never
  std::int64_t prune_folders_ms = 0;
  bool no_cgroups = false;
  std::string log_level = "info";

  // Made of the texts by complete_config.
  std::vector<std::string> label_list = {};
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_reserve_bytes = 1ull << 30;
  double disk_reserve_share = 0.02;
  std::uint64_t upload_rate_bytes = 0;
};

/// Reads a TOML file over `*config`. Errors: kInvalidArgument with position.
Status load_config_file(const std::string& path, WorkerConfig* config);

/// What the command line says: a config, or an exit code when there is nothing more to do (--help,
/// --version, a usage error already printed).
struct CommandLine {
  std::optional<WorkerConfig> config;
  int exit_code = 0;
};
CommandLine parse_command_line(int argc, const char* const* argv);

/// Fills defaults that depend on the machine (paths, memory; not the name) and checks every value.
/// Errors: kInvalidArgument naming the option and what is allowed.
Status complete_config(WorkerConfig* config);
/// The name, drawn on first use and kept in the work folder when none was given (identity.h).
/// Errors: those of default_worker_name; kInvalidArgument.
Status complete_name(WorkerConfig* config);
/// Errors: kNotFound when the trainer is no program that can be run.
Status check_trainer(const WorkerConfig& config);

/// One line, "key=value ...", for the log.
std::string describe(const WorkerConfig& config);

}  // namespace tailor::agent
