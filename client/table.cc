#include "client/table.h"

namespace tailor::client {
namespace {

constexpr Command kCommands[] = {
    {"plan", add_plan},       {"submit", add_submit},   {"ls", add_ls},
    {"show", add_show},       {"why", add_why},         {"watch", add_watch},
    {"logs", add_logs},       {"control", add_control}, {"compare", add_compare},
    {"profile", add_profile}, {"query", add_query},     {"export", add_export},
    {"workers", add_workers}, {"backup", add_backup},   {"shape", add_shape},
    {"info", add_info},       {"completion", add_completion},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& summary,
                      const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->description("Examples:\n" + examples + "\n" + summary);
  command->fallthrough();  // global flags may follow the command
  return command;
}

}  // namespace tailor::client
