#include "client/table.h"

#include <fmt/format.h>

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
    {"scaling", add_scaling},
    {"calibrate", add_calibrate},
    {"profile", add_profile},
    {"schedule", add_schedule},
    {"reproduce", add_reproduce},
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

std::shared_ptr<Page> add_page(CLI::App* command, const std::string& what, std::uint64_t standard) {
  auto page = std::make_shared<Page>();
  CLI::Option* limit = command
                           ->add_option_function<std::uint64_t>(
                               "--limit",
                               [page](const std::uint64_t& value) {
                                 page->limit = value;
                                 page->limit_given = true;
                               },
                               fmt::format("{} at most ({})", what, standard))
                           ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  command->add_option("--offset", page->offset, what + " to pass over");
  command->add_flag("--all", page->all, "all " + what)->excludes(limit);
  return page;
}

}  // namespace tailor::client
