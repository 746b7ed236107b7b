#include "coordinator/config.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <optional>
#include <utility>

#include "base/config.h"
#include "base/file.h"
#include "base/text.h"
#include "coordinator/http/server.h"

namespace tailor::coordinator {
namespace {

constexpr std::array<std::string_view, 4> kLogLevels = {"debug", "info", "warn", "error"};

constexpr std::int64_t kPruneAgeMsMin = 3'600'000;

constexpr const char* kExamples = R"(Examples:
  tailor-coordinator --database runs/tailor.db
  tailor-coordinator --database runs/tailor.db --listen 127.0.0.1:0 --http 127.0.0.1:0 )"
                                  R"(--port-file ports.json
  tailor-coordinator --config coordinator.toml --log-level debug

Exit codes: 0 stopped by a signal, 1 cannot go on (the reason is said), 2 bad settings,
7 the database or a port is in use.)";

Status check_address(std::string_view name, const std::string& address, bool insecure) {
  auto parts = http::split_address(address);
  if (!parts.has_value()) return parts.error().with_context(name);
  if (!insecure && !http::is_loopback(parts->first)) {
    return {
        Code::kInvalidArgument,
        fmt::format("{} = {}: anybody who reaches this address could run sweeps and read results, "
                    "because there is no TLS and no token; use 127.0.0.1 (and an SSH tunnel), or "
                    "say --insecure on a network you trust",
                    name, address)};
  }
  return Status::ok();
}

/// [quarantine]
void read_quarantine(ConfigTable& root, Config& config) {
  auto table = root.table("quarantine");
  if (!table) return;
  config.quarantine_after = static_cast<std::uint32_t>(
      table->integer_in("after", 1, 1'000'000).value_or(config.quarantine_after));
  config.quarantine_probe_ms =
      table->parsed<std::int64_t>("probe", parse_duration_ms).value_or(config.quarantine_probe_ms);
  if (table->has("patterns")) {
    config.quarantine_patterns.clear();
    for (const ConfigValue& pattern : table->array("patterns")) {
      if (const auto text = pattern.as_string()) config.quarantine_patterns.push_back(*text);
    }
  }
  (void)table->finish();  // noted in the document
}

/// [prune]: logs = "30d", points = "365d"...; the quota with a unit of bytes.
void read_prune(ConfigTable& table, Config& config) {
  for (const auto& [key, to] : {std::pair{"logs", &config.prune_logs_ms},
                                {"points", &config.prune_points_ms},
                                {"events", &config.prune_events_ms}}) {
    *to = table.parsed<std::int64_t>(key, parse_duration_ms).value_or(*to);
    if (*to != 0 && *to < kPruneAgeMsMin) {
      table.fail(std::string(key) + " would go within the hour: allowed are 1 h and longer, or 0");
    }
  }
  config.prune_logs_bytes =
      table.parsed<std::uint64_t>("logs_bytes", parse_bytes).value_or(config.prune_logs_bytes);
}

}  // namespace

Result<Config> parse_config(std::string_view toml, const std::string& file, Config config) {
  TAILOR_ASSIGN_OR_RETURN(ConfigDocument document, ConfigDocument::parse(toml, file));
  ConfigTable root = document.root();
  config.database = root.string("database").value_or(config.database);
  config.listen = root.string("listen").value_or(config.listen);
  config.http = root.string("http").value_or(config.http);
  if (const auto hosts = root.value("allowed_hosts")) {
    config.allowed_hosts.clear();
    for (const ConfigValue& host : hosts->as_array()) {
      if (const auto name = host.as_string()) config.allowed_hosts.push_back(*name);
    }
  }
  config.heartbeat_ms =
      root.parsed<std::int64_t>("heartbeat", parse_duration_ms).value_or(config.heartbeat_ms);
  config.lease_ms = root.parsed<std::int64_t>("lease", parse_duration_ms).value_or(config.lease_ms);
  config.backoff_ms =
      root.parsed<std::int64_t>("backoff", parse_duration_ms).value_or(config.backoff_ms);
  config.checkpoint_wait_ms = root.parsed<std::int64_t>("checkpoint_wait", parse_duration_ms)
                                  .value_or(config.checkpoint_wait_ms);
  config.preemption = root.boolean("preemption").value_or(config.preemption);
  read_quarantine(root, config);
  config.log_level =
      root.one_of("log_level", {kLogLevels.begin(), kLogLevels.end()}).value_or(config.log_level);
  config.port_file = root.string("port_file").value_or(config.port_file);
  config.artifacts = root.string("artifacts").value_or(config.artifacts);
  config.artifacts_quota =
      root.parsed<std::uint64_t>("artifacts_quota", parse_bytes).value_or(config.artifacts_quota);
  config.insecure = root.boolean("insecure").value_or(config.insecure);
  config.allow_network_file_system =
      root.boolean("allow_network_file_system").value_or(config.allow_network_file_system);
  if (auto prune = root.table("prune")) {
    read_prune(*prune, config);
    TAILOR_RETURN_IF_ERROR(prune->finish());
  }
  TAILOR_RETURN_IF_ERROR(root.finish());
  return config;
}

Status validate(const Config& config) {
  if (config.database.empty()) {
    return {Code::kInvalidArgument, "no database: say where with --database PATH"};
  }
  TAILOR_RETURN_IF_ERROR(check_address("listen", config.listen, config.insecure));
  TAILOR_RETURN_IF_ERROR(check_address("http", config.http, config.insecure));
  for (const std::string& host : config.allowed_hosts) {
    if (host == "*" || http::is_host(host)) continue;
    return {Code::kInvalidArgument,
            fmt::format(
                "allowed host \"{}\": expected a name or an address, such as tailor.example.org or "
                "[fd00::7], or * for any",
                host)};
  }
  if (config.heartbeat_ms < 50 || config.heartbeat_ms > 600'000) {
    return {Code::kInvalidArgument,
            fmt::format("heartbeat = {} ms: allowed are 50 ms to 10 min", config.heartbeat_ms)};
  }
  if (config.lease_ms < 3 * config.heartbeat_ms || config.lease_ms > 86'400'000) {
    return {
        Code::kInvalidArgument,
        fmt::format("lease = {} ms: allowed are three heartbeats ({} ms) to 24 h, so that one lost "
                    "heartbeat costs no trial",
                    config.lease_ms, 3 * config.heartbeat_ms)};
  }
  if (config.backoff_ms < 0 || config.backoff_ms > 300'000) {
    return {Code::kInvalidArgument,
            fmt::format("backoff = {} ms: allowed are 0 to 5 min", config.backoff_ms)};
  }
  if (config.checkpoint_wait_ms < 0 || config.checkpoint_wait_ms > 86'400'000) {
    return {Code::kInvalidArgument, fmt::format("checkpoint_wait = {} ms: allowed are 0 to 24 h",
                                                config.checkpoint_wait_ms)};
  }
  if (config.quarantine_probe_ms < 1'000 || config.quarantine_probe_ms > 86'400'000) {
    return {Code::kInvalidArgument, fmt::format("quarantine.probe = {} ms: allowed are 1 s to 24 h",
                                                config.quarantine_probe_ms)};
  }
  for (const std::string& pattern : config.quarantine_patterns) {
    if (pattern.size() >= 4 && pattern.size() <= 200 && pattern.find('\n') == std::string::npos) {
      continue;
    }
    return {Code::kInvalidArgument,
            fmt::format("quarantine.patterns has \"{}\": allowed are texts of 4 to 200 bytes "
                        "within a line",
                        pattern.substr(0, 200))};
  }
  if (config.quarantine_patterns.size() > 64) {
    return {Code::kInvalidArgument,
            fmt::format("quarantine.patterns has {} texts: allowed are up to 64",
                        config.quarantine_patterns.size())};
  }
  if (std::find(kLogLevels.begin(), kLogLevels.end(), config.log_level) == kLogLevels.end()) {
    return {Code::kInvalidArgument,
            fmt::format("log_level = {}: allowed are debug, info, warn, error", config.log_level)};
  }
  return Status::ok();
}

std::string describe(const Config& config) {
  return fmt::format(
      "database=\"{}\" listen=\"{}\" http=\"{}\" allowed_hosts=[{}] heartbeat=\"{} ms\" lease=\"{} "
      "ms\" "
      "backoff=\"{} ms\" log_level=\"{}\" port_file=\"{}\" insecure={} "
      "artifacts=\"{}\" artifacts_quota={} allow_network_file_system={} preemption={} "
      "quarantine.after={} quarantine.probe=\"{} ms\" quarantine.patterns=[\"{}\"] "
      "prune.logs=\"{} ms\" prune.points=\"{} ms\" prune.events=\"{} ms\" prune.logs_bytes={}",
      config.database, config.listen, config.http, fmt::join(config.allowed_hosts, ", "),
      config.heartbeat_ms, config.lease_ms, config.backoff_ms, config.log_level, config.port_file,
      config.insecure, config.artifacts, config.artifacts_quota, config.allow_network_file_system,
      config.preemption, config.quarantine_after, config.quarantine_probe_ms,
      fmt::join(config.quarantine_patterns, "\", \""), config.prune_logs_ms, config.prune_points_ms,
      config.prune_events_ms, config.prune_logs_bytes);
}

Result<CommandLine> parse_command_line(int argc, const char* const* argv) {
  CLI::App app("Schedules sweeps, records results, serves clients, workers and the dashboard.",
               "tailor-coordinator");
  app.footer(kExamples);
  app.set_version_flag("--version", std::string(TAILOR_VERSION));
  std::string config_file;
  std::optional<std::string> database, listen, http, heartbeat, lease, backoff, log_level,
      port_file, artifacts, artifacts_quota;
  std::vector<std::string> allowed_hosts;
  bool insecure = false;
  bool network = false;
  app.add_option("--database", database, "SQLite file; made when it is not there");
  app.add_option("--listen", listen, "gRPC address (127.0.0.1:7070; port 0 = any free one)");
  app.add_option("--http", http, "dashboard, JSON, /metrics (127.0.0.1:7071)");
  app.add_option(
      "--allowed-host", allowed_hosts,
      "further name that browsers and proxies may call the HTTP port by (again for each; * = any)");
  app.add_option("--config", config_file, "TOML file with these settings; the command line wins");
  app.add_option("--heartbeat", heartbeat, "asked of workers (5s)");
  app.add_option("--lease", lease, "of an attempt without heartbeats (30s)");
  app.add_option("--backoff", backoff, "before the second attempt after a failure (2s)");
  app.add_option("--log-level", log_level, "debug, info, warn or error (info)");
  app.add_option("--port-file", port_file, "write the ports in use here, as JSON, once serving");
  app.add_option("--artifacts", artifacts,
                 "folder of the checkpoints that workers bring (DATABASE.artifacts)");
  app.add_option("--artifacts-quota", artifacts_quota,
                 "how much of them is kept (50GiB; 0 = none: trials then resume only where their "
                 "folder is)");
  app.add_flag("--insecure", insecure,
               "allow addresses other than loopback, without TLS and tokens");
  app.add_flag("--allow-network-file-system", network, "the database may lie on NFS and the like");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    return CommandLine{{}, true};
  } catch (const CLI::ParseError& failed) {
    return error(Code::kInvalidArgument, std::string(failed.what()) + "; see --help");
  }
  Config config;
  if (!config_file.empty()) {
    auto text = read_file(config_file, 1 << 20);
    if (!text.has_value()) return error(Code::kInvalidArgument, text.error().message());
    TAILOR_ASSIGN_OR_RETURN(config, parse_config(*text, config_file, config));
  }
  const auto take = [](std::string& to, const std::optional<std::string>& from) {
    if (from.has_value()) to = *from;
  };
  take(config.database, database);
  take(config.listen, listen);
  take(config.http, http);
  take(config.log_level, log_level);
  take(config.port_file, port_file);
  take(config.artifacts, artifacts);
  if (artifacts_quota) {
    auto bytes = parse_bytes(*artifacts_quota);
    if (!bytes.has_value()) return error(bytes.error().with_context("--artifacts-quota"));
    config.artifacts_quota = *bytes;
  }
  if (!allowed_hosts.empty()) config.allowed_hosts = allowed_hosts;
  const std::array<std::tuple<std::string_view, const std::optional<std::string>*, std::int64_t*>,
                   3>
      durations = {{{"--heartbeat", &heartbeat, &config.heartbeat_ms},
                    {"--lease", &lease, &config.lease_ms},
                    {"--backoff", &backoff, &config.backoff_ms}}};
  for (const auto& [name, text, to] : durations) {
    if (!text->has_value()) continue;
    auto parsed = parse_duration_ms(**text);
    if (!parsed.has_value()) return error(parsed.error().with_context(name));
    *to = *parsed;
  }
  // Clients are told this path (`tailor info`), and the working folder means nothing to them.
  if (!config.database.empty()) {
    config.database = absolute_path(config.database);
    if (config.artifacts.empty()) config.artifacts = config.database + ".artifacts";
    config.artifacts = absolute_path(config.artifacts);
  }
  config.insecure = config.insecure || insecure;
  config.allow_network_file_system = config.allow_network_file_system || network;
  TAILOR_RETURN_IF_ERROR(validate(config));
  return CommandLine{std::move(config), false};
}

}  // namespace tailor::coordinator
