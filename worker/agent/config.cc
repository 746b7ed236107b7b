// See config.h. The options stand once, in the table of `options_of`: flags, file keys and the
// effective config all come from it.
#include "worker/agent/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <variant>

#include "base/config.h"
#include "base/file.h"
#include "base/text.h"
#include "worker/agent/identity.h"

namespace tailor::agent {
namespace {

namespace fs = std::filesystem;

struct Duration {
  std::int64_t* ms;
};

struct Option {
  const char* key;  // of the file; the flag has '-' for '_'
  std::variant<std::string*, std::int32_t*, bool*, Duration> value;
  const char* help;
};

std::vector<Option> options_of(WorkerConfig& c) {
  return {
      {"coordinator", &c.coordinator, "Address of the coordinator, host:port"},
      {"name", &c.name,
       "Name of this worker, unique in the cluster (default: the host's name and some letters, "
       "kept "
       "in WORK_DIR/worker-name)"},
      {"work_dir", &c.work_dir, "Folder of this daemon; one daemon a folder"},
      {"trials_dir", &c.trials_dir,
       "Folder of the trials (default: WORK_DIR/trials); share it so that trials resume elsewhere"},
      {"device", &c.device, "auto (GPUs where there are any), cpu or gpu"},
      {"slots", &c.slots, "CPU slots: trials that run at once without a GPU (default: 1)"},
      {"threads_per_slot", &c.threads_per_slot,
       "CPU threads of each trainer (default: the cores, shared out evenly)"},
      {"trainer", &c.trainer, "Program that trains (default: tailor-trainer beside this one)"},
      {"trainer_lease", Duration{&c.trainer_lease_ms},
       "A trainer whose worker is gone saves and stops after this long"},
      {"offline_limit", Duration{&c.offline_limit_ms},
       "How long trainers go on without a coordinator"},
      {"stop_grace", Duration{&c.stop_grace_ms}, "From SIGTERM to SIGKILL of a trainer"},
      {"drain_limit", Duration{&c.drain_limit_ms},
       "After SIGTERM, trainers still running after this long are stopped (default: they finish)"},
      {"exit_when_idle", &c.exit_when_idle, "End when there is nothing to do"},
      {"idle_time", Duration{&c.idle_time_ms}, "How long nothing, for --exit-when-idle"},
      {"labels", &c.labels, "What trials may ask for: \"fast,rack=7\""},
      {"address", &c.address,
       "Where other nodes reach this one (default: its address on the way to the coordinator)"},
      {"memory", &c.memory,
       "Memory that trials may share out, such as 100GiB (default: all of it)"},
      {"disk_reserve", &c.disk_reserve,
       "Free space on the trials' disk below which no work is taken: \"2GiB\", \"5%\" or \"0\" "
       "(default: 1GiB or 2%, whichever is less)"},
      {"upload_rate", &c.upload_rate,
       "How fast checkpoints travel to and from the coordinator, a second (50MB; 0 = no limit)"},
      {"upload_limit", Duration{&c.upload_limit_ms},
       "How long a worker that ends waits for checkpoints on their way"},
      {"prune_checkpoints", Duration{&c.prune_checkpoints_ms},
       "Remove superseded checkpoints, and all of completed trials, of trial folders in which "
       "nothing has changed for so long (default: never)"},
      {"prune_folders", Duration{&c.prune_folders_ms},
       "Remove the folders of completed trials after so long (default: never)"},
      {"no_cgroups", &c.no_cgroups, "Make no control groups around trials"},
      {"log_level", &c.log_level, "debug, info, warn or error"},
  };
}

std::string flag_of(const Option& option) {
  std::string flag = std::string("--") + option.key;
  std::replace(flag.begin() + 2, flag.end(), '_', '-');
  return flag;
}

std::string value_text(const Option& option) {
  struct Visitor {
    std::string operator()(const std::string* text) const { return *text; }
    std::string operator()(const std::int32_t* number) const { return std::to_string(*number); }
    std::string operator()(const bool* flag) const { return *flag ? "true" : "false"; }
    std::string operator()(const Duration& duration) const {
      return fmt::format("{}ms", *duration.ms);
    }
  };
  return std::visit(Visitor{}, option.value);
}

Status in_range(const char* flag, std::int64_t value, std::int64_t low, std::int64_t high,
                const char* unit) {
  if (value >= low && value <= high) return Status::ok();
  return Status(Code::kInvalidArgument, fmt::format("{} is {}{}: allowed is {}{} to {}{}", flag,
                                                    value, unit, low, unit, high, unit));
}

Status absolute(const char* flag, std::string* path) {
  const std::string full = absolute_path(*path);
  if (!full.starts_with('/')) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} {}: the working folder is gone; give an absolute path", flag, *path));
  }
  *path = full;
  return Status::ok();
}

Status complete_labels(WorkerConfig& c) {
  c.label_list.clear();
  if (trim(c.labels).empty()) return Status::ok();
  for (const std::string_view part : split(c.labels, ',')) {
    const std::string label(trim(part));
    const bool good = !label.empty() && label.size() <= 128 && label.front() != '=' &&
                      label.find_first_of(" \t\n") == std::string::npos && is_valid_utf8(label);
    if (!good) {
      return Status(Code::kInvalidArgument,
                    fmt::format("--labels \"{}\": \"{}\" must be a name or name=value of 1 to 128 "
                                "bytes without spaces",
                                c.labels, label));
    }
    c.label_list.push_back(label);
  }
  if (c.label_list.size() > 64) return Status(Code::kInvalidArgument, "--labels takes 64 at most");
  return Status::ok();
}

Status complete_sizes(WorkerConfig& c) {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) {
    c.memory_bytes = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  }
  const auto bad = [](const char* flag, const std::string& text, const char* allowed) {
    return Status(Code::kInvalidArgument, fmt::format("{} \"{}\" must be {}", flag, text, allowed));
  };
  const Result<std::uint64_t> rate = parse_bytes(c.upload_rate);
  if (!rate) return bad("--upload-rate", c.upload_rate, "a size such as 50MB, or 0");
  c.upload_rate_bytes = *rate;
  if (!c.memory.empty()) {
    const Result<std::uint64_t> bytes = parse_bytes(c.memory);
    if (!bytes || *bytes == 0) return bad("--memory", c.memory, "a size such as 100GiB");
    c.memory_bytes = *bytes;
  }
  if (c.disk_reserve.empty()) return Status::ok();
  constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
  if (c.disk_reserve.back() == '%') {
    const std::string number(
        trim(std::string_view(c.disk_reserve).substr(0, c.disk_reserve.size() - 1)));
    const Result<double> percent = parse_count(number);
    if (!percent || !(*percent >= 0 && *percent <= 100)) {
      return bad("--disk-reserve", c.disk_reserve, "0% to 100%, or a size such as 2GiB");
    }
    c.disk_reserve_bytes = kNoLimit;
    c.disk_reserve_share = *percent / 100;
    return Status::ok();
  }
  const Result<std::uint64_t> bytes = parse_bytes(c.disk_reserve);
  if (!bytes) return bad("--disk-reserve", c.disk_reserve, "a size such as 2GiB, or 0% to 100%");
  c.disk_reserve_bytes = *bytes;
  c.disk_reserve_share = 1;
  return Status::ok();
}

}  // namespace

Status load_config_file(const std::string& path, WorkerConfig* config) {
  TAILOR_ASSIGN_OR_RETURN(const ConfigDocument document, ConfigDocument::load(path));
  ConfigTable root = document.root();
  for (const Option& option : options_of(*config)) {
    struct Visitor {
      ConfigTable& root;
      const char* key;
      void operator()(std::string* text) const { *text = root.string(key).value_or(*text); }
      void operator()(std::int32_t* number) const {
        *number = static_cast<std::int32_t>(root.integer_in(key, 0, 4096).value_or(*number));
      }
      void operator()(bool* flag) const { *flag = root.boolean(key).value_or(*flag); }
      void operator()(const Duration& duration) const {
        *duration.ms = root.parsed<std::int64_t>(key, &parse_duration_ms).value_or(*duration.ms);
      }
    };
    std::visit(Visitor{root, option.key}, option.value);
  }
  return root.finish();
}

CommandLine parse_command_line(int argc, const char* const* argv) {
  // Flags are kept as text first, so that a file read afterwards does not undo them.
  CLI::App app(
      "Runs trials on this node for a coordinator.\n\n"
      "Examples:\n"
      "  tailor-worker --coordinator 127.0.0.1:7070 --work-dir w1\n"
      "  tailor-worker --coordinator lab:7070 --work-dir /scratch/w --slots 4 --threads-per-slot "
      "2\n"
      "  tailor-worker --config worker.toml --exit-when-idle\n\n"
      "SIGTERM drains: running trials finish, then the daemon ends. A second SIGTERM makes "
      "trainers\n"
      "save a checkpoint and stop. A killed daemon leaves its trainers running until their lease "
      "runs\n"
      "out; started again in the same folders, it takes them over.",
      "tailor-worker");
  app.set_version_flag("--version", std::string(TAILOR_VERSION));
  std::string file;
  app.add_option("--config", file, "TOML file with these options (dashes written as underscores)");
  WorkerConfig flags;
  const std::vector<Option> options = options_of(flags);
  std::vector<std::string> texts(options.size());
  std::vector<CLI::Option*> given(options.size());
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (bool* const* flag = std::get_if<bool*>(&options[i].value)) {
      given[i] = app.add_flag(flag_of(options[i]), **flag, options[i].help);
    } else {
      given[i] = app.add_option(flag_of(options[i]), texts[i], options[i].help);
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    const int code = app.exit(problem);
    return {std::nullopt, code == 0 ? 0 : 2};
  }

  WorkerConfig config;
  const auto refuse = [](const std::string& message) {
    fmt::print(stderr, "tailor-worker: {}\n", message);
    return CommandLine{std::nullopt, 2};
  };
  if (!file.empty()) {
    const Status loaded = load_config_file(file, &config);
    if (!loaded) return refuse(loaded.message());
  }
  const std::vector<Option> targets = options_of(config);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (given[i]->count() == 0) continue;
    const std::string flag = flag_of(targets[i]);
    if (std::string* const* text = std::get_if<std::string*>(&targets[i].value)) **text = texts[i];
    if (bool* const* value = std::get_if<bool*>(&targets[i].value)) **value = true;
    if (std::int32_t* const* number = std::get_if<std::int32_t*>(&targets[i].value)) {
      const char* end = texts[i].data() + texts[i].size();
      const auto [at, failure] = std::from_chars(texts[i].data(), end, **number);
      if (failure != std::errc() || at != end || **number < 1 || **number > 4096) {
        return refuse(
            fmt::format("{} \"{}\" must be a whole number from 1 to 4096", flag, texts[i]));
      }
    }
    if (const Duration* duration = std::get_if<Duration>(&targets[i].value)) {
      const Result<std::int64_t> ms = parse_duration_ms(texts[i]);
      if (!ms) return refuse(fmt::format("{}: {}", flag, ms.error().message()));
      *duration->ms = *ms;
    }
  }
  return {std::move(config), 0};
}

Status complete_config(WorkerConfig* config) {
  WorkerConfig& c = *config;
  const std::size_t colon = c.coordinator.rfind(':');
  std::uint32_t port = 0;
  if (colon != std::string::npos) {
    const char* const end = c.coordinator.data() + c.coordinator.size();
    if (std::from_chars(c.coordinator.data() + colon + 1, end, port).ptr != end) port = 0;
  }
  if (colon == std::string::npos || colon == 0 || port == 0 || port > 65535) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--coordinator \"{}\" must be host:port, such as 127.0.0.1:7070",
                              c.coordinator));
  }
  if (c.work_dir.empty()) {
    return Status(Code::kInvalidArgument,
                  "--work-dir is missing: give this daemon a folder of its own, on a local disk");
  }
  TAILOR_RETURN_IF_ERROR(absolute("--work-dir", &c.work_dir));
  if (c.trials_dir.empty()) c.trials_dir = c.work_dir + "/trials";
  TAILOR_RETURN_IF_ERROR(absolute("--trials-dir", &c.trials_dir));
  if (c.device != "auto" && c.device != "cpu" && c.device != "gpu") {
    return Status(Code::kInvalidArgument,
                  fmt::format("--device \"{}\" must be auto, cpu or gpu", c.device));
  }
  constexpr std::int64_t kYear = 366ll * 24 * 3600 * 1000;
  TAILOR_RETURN_IF_ERROR(in_range("--trainer-lease", c.trainer_lease_ms, 500, 3'600'000, "ms"));
  TAILOR_RETURN_IF_ERROR(in_range("--offline-limit", c.offline_limit_ms, 0, kYear, "ms"));
  TAILOR_RETURN_IF_ERROR(in_range("--stop-grace", c.stop_grace_ms, 0, 3'600'000, "ms"));
  TAILOR_RETURN_IF_ERROR(in_range("--drain-limit", c.drain_limit_ms, 0, kYear, "ms"));
  TAILOR_RETURN_IF_ERROR(in_range("--idle-time", c.idle_time_ms, 0, kYear, "ms"));
  TAILOR_RETURN_IF_ERROR(complete_labels(c));
  TAILOR_RETURN_IF_ERROR(complete_sizes(c));
  if (c.trainer.empty()) {
    const std::string folder = program_folder();
    if (!folder.empty()) c.trainer = folder + "/tailor-trainer";
  }
  TAILOR_RETURN_IF_ERROR(absolute("--trainer", &c.trainer));
  return Status::ok();
}

Status complete_name(WorkerConfig* config) {
  std::string& name = config->name;
  if (name.empty()) {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    TAILOR_ASSIGN_OR_RETURN(name, default_worker_name(config->work_dir, host));
  }
  if (name.size() > 128 || !is_valid_utf8(name) || escape_controls(name) != name) {
    return Status(Code::kInvalidArgument,
                  "--name must be 1 to 128 bytes of UTF-8 without control characters");
  }
  return Status::ok();
}

Status check_trainer(const WorkerConfig& config) {
  std::error_code failure;
  const bool file = std::filesystem::is_regular_file(config.trainer, failure);  // not a folder
  if (file && ::access(config.trainer.c_str(), X_OK) == 0) return Status::ok();
  return Status(
      Code::kNotFound,
      fmt::format("{} is not a program that can be run: build it, or name another with --trainer",
                  config.trainer));
}

std::string describe(const WorkerConfig& config) {
  WorkerConfig copy = config;
  std::string text;
  for (const Option& option : options_of(copy)) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", option.key, value_text(option));
  }
  return text;
}

}  // namespace tailor::agent
