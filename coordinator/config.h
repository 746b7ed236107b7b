// Settings of tailor-coordinator: defaults in the struct < TOML file < command line,
// all checked at start.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace tailor::coordinator {

struct Config {
  std::string database;                    ///< path of the SQLite file; required
  std::string listen = "127.0.0.1:7070";   ///< gRPC, HOST:PORT; port 0 = any free one
  std::string http = "127.0.0.1:7071";     ///< dashboard, JSON, metrics
  std::vector<std::string> allowed_hosts;  ///< further names that an HTTP request's Host may have
  std::int64_t heartbeat_ms = 5'000;       ///< asked of workers
  std::int64_t lease_ms = 30'000;          ///< of an attempt without heartbeats
  std::int64_t backoff_ms = 2'000;         ///< before the second attempt after a failure
  /// A trial waits so long for a worker that can read its checkpoint before it starts over.
  std::int64_t checkpoint_wait_ms = 120'000;
  bool preemption = true;  ///< trials of higher priority may stop running ones of lower
  /// Times in a row that attempts went wrong on a worker before it is quarantined.
  std::uint32_t quarantine_after = 3;
  std::int64_t quarantine_probe_ms = 300'000;  ///< before one trial tries such a worker again
  /// Log lines with one of these texts quarantine the worker until someone releases it.
  std::vector<std::string> quarantine_patterns = {"uncorrectable ECC error",
                                                  "GPU has fallen off the bus"};
  std::string log_level = "info";  ///< debug | info | warn | error
  std::string port_file;           ///< "" = none; JSON with the ports in use, once serving
  bool insecure = false;           ///< allow addresses other than loopback without TLS and tokens
  std::string artifacts;           ///< folder of workers' checkpoints; default: DATABASE.artifacts
  std::uint64_t artifacts_quota = 50ull << 30;  ///< bytes; 0 = none are kept
  bool allow_network_file_system = false;       ///< the database may lie on NFS and the like
  // What is deleted of trials that ended so long ago; 0 = nothing.
  std::int64_t prune_logs_ms = 0;
  std::int64_t prune_points_ms = 0;
  std::int64_t prune_events_ms = 0;
  std::uint64_t prune_logs_bytes = 0;  ///< of all logs; above it the oldest go; 0 = no limit
};

/// What the command line asks for.
struct CommandLine {
  Config config;
  bool exit = false;  ///< help or version was printed: exit with 0
};

/// Reads the command line and, if given, its --config file.
/// Errors: kInvalidArgument with what is allowed.
Result<CommandLine> parse_command_line(int argc, const char* const* argv);

/// Settings from the text of a TOML file on top of `defaults`. Errors: kInvalidArgument with file,
/// line and column; unknown keys are errors that name the nearest one.
Result<Config> parse_config(std::string_view toml, const std::string& file, Config defaults);

/// Errors: kInvalidArgument (an address, a range), kPermissionDenied never: an address that is not
/// loopback without `insecure` is kInvalidArgument too.
Status validate(const Config& config);

/// The settings in force as one line of TOML-like text, for the log.
std::string describe(const Config& config);

}  // namespace tailor::coordinator
