#include "client/table.h"

namespace tailor::client {
namespace {

/// Help of one command: its examples before everything else.
class ExamplesFirst : public CLI::Formatter {
 public:
  explicit ExamplesFirst(std::string examples) : examples_(std::move(examples)) {}
  std::string make_description(const CLI::App* app) const override {
    return "Examples:\n" + examples_ + "\n\n" + app->get_description() + "\n";
  }

 private:
  std::string examples_;
};

constexpr Command kCommands[] = {
    {"plan", add_plan},
    {"submit", add_submit},
    {"ls", add_ls},
    {"show", add_show},
    {"why", add_why},
    {"watch", add_watch},
    {"logs", add_logs},
    {"control", add_control},
    {"compare", add_compare},
    {"profile", add_profile},
    {"query", add_query},
    {"export", add_export},
    {"workers", add_workers},
    {"backup", add_backup},
    {"shape", add_shape},
    {"geometry", add_geometry},
    {"data", add_data},
    {"info", add_info},
    {"completion", add_completion},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& summary,
                      const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->formatter(std::make_shared<ExamplesFirst>(examples));
  command->fallthrough();  // global flags may follow the command
  return command;
}

}  // namespace tailor::client
