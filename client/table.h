// The list of commands: one line each in table.cc, one file each in commands/.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "client/context.h"

namespace tailor::client {

struct Command {
  std::string_view name;
  /// Adds the sub-command with its options, examples and callback. The callback throws Failure.
  void (*add)(CLI::App& app, Context& context);
};

/// In the order of `tailor --help`.
std::span<const Command> commands();

/// Adds a sub-command whose help starts with `examples` (one a line) after `summary`.
CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& summary,
                      const std::string& examples);

/// Adds --limit, --offset and --all. `what`: "trials"; `standard`: how many without --limit.
std::shared_ptr<Page> add_page(CLI::App* command, const std::string& what, std::uint64_t standard);

// ---- commands/*.cc
void add_plan(CLI::App& app, Context& context);
void add_submit(CLI::App& app, Context& context);
void add_ls(CLI::App& app, Context& context);
void add_show(CLI::App& app, Context& context);
void add_why(CLI::App& app, Context& context);
void add_watch(CLI::App& app, Context& context);
void add_logs(CLI::App& app, Context& context);
void add_control(CLI::App& app, Context& context);  // pause, resume, cancel, retry, priority
void add_compare(CLI::App& app, Context& context);
void add_scaling(CLI::App& app, Context& context);
void add_calibrate(CLI::App& app, Context& context);
void add_query(CLI::App& app, Context& context);
void add_export(CLI::App& app, Context& context);
void add_workers(CLI::App& app, Context& context);  // workers, drain, ...
void add_profile(CLI::App& app, Context& context);
void add_reproduce(CLI::App& app, Context& context);
void add_schedule(CLI::App& app, Context& context);
void add_backup(CLI::App& app, Context& context);
void add_shape(CLI::App& app, Context& context);
// persistence, wasserstein, gw, dimension, work, allocate
void add_geometry(CLI::App& app, Context& context);
void add_data(CLI::App& app, Context& context);  // prepare, import, verify, show
void add_info(CLI::App& app, Context& context);
void add_completion(CLI::App& app, Context& context);

/// Calls `take` with every trial of the sweep, by id, a page at a time. Returns how many.
std::uint64_t for_each_trial(Context& context, const v1::SweepRef& sweep,
                             const std::function<void(const v1::Trial&)>& take);

/// Shows a sweep until it ends. Returns kOk, kSomeFailed or kInterrupted.
/// Used by watch and submit --watch.
Exit watch_sweep(Context& context, const v1::SweepRef& sweep, double interval_s);

}  // namespace tailor::client
