// tailor: the command-line client. Everything it does is a public gRPC call
// or works on local files.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "client/context.h"
#include "client/table.h"

namespace {

using tailor::client::Context;
using tailor::client::Exit;

/// Points at the nearest known name for an unknown command or flag.
std::string suggestion(const CLI::App& app, int argc, char** argv) {
  const CLI::App* at = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::vector<std::string> names;
    if (word.rfind("--", 0) == 0) {
      const std::string flag = word.substr(0, word.find('='));
      bool known = false;
      for (const CLI::App* scope : {at, &app}) {
        for (const CLI::Option* option : scope->get_options()) {
          for (const std::string& name : option->get_lnames()) {
            names.push_back("--" + name);
            if (names.back() != flag || known) continue;
            known = true;
            if (flag == word && option->get_expected_max() > 0) ++i;  // its value is no command
          }
        }
      }
      if (known) continue;
      const std::vector<std::string_view> views(names.begin(), names.end());
      const std::string near = tailor::nearest_name(flag, views);
      return near.empty() ? "" : fmt::format("unknown flag {} (did you mean {}?)", flag, near);
    }
    if (word.rfind('-', 0) == 0) continue;
    for (const CLI::App* sub : at->get_subcommands({})) names.push_back(sub->get_name());
    if (names.empty()) continue;  // an argument
    if (std::find(names.begin(), names.end(), word) != names.end()) {
      at = at->get_subcommand(word);
      continue;
    }
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string near = tailor::nearest_name(word, views);
    return near.empty() ? "" : fmt::format("unknown command {} (did you mean {}?)", word, near);
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  Context context;
  CLI::App app(
      "Examples:\n"
      "  tailor plan sweep.toml              what will run, exact parameter counts\n"
      "  tailor submit sweep.toml --watch    start it and follow it\n"
      "  tailor compare last                 the paired answer\n\n"
      "Tailor searches for the shape of transformer language models.",
      "tailor");
  app.set_version_flag("--version", "tailor " TAILOR_VERSION);
  app.require_subcommand(1);
  app.add_option(
      "--coordinator", context.coordinator_flag,
      "HOST:PORT (else TAILOR_COORDINATOR, ./tailor.toml, ~/.config/tailor/tailor.toml)");
  app.add_flag("--json", context.json, "one JSON document on stdout");
  app.add_flag_callback(
      "--jsonl", [&context] { context.json = context.json_lines = true; },
      "JSON, one document a line; of a list one entry a line");
  app.add_option("--color", context.color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  app.add_option("--timeout", context.timeout_s,
                 "seconds to wait for an answer (30; for a backup 3600)")
      ->check(CLI::Range(0.001, 86400.0))
      ->each([&context](const std::string&) { context.timeout_given = true; });
  app.add_option("--reconnect", context.reconnect_s,
                 "seconds that logs -f and watch try to reach a coordinator that went away (300)")
      ->check(CLI::Range(0.0, 1e9));
  for (const auto& command : tailor::client::commands()) command.add(app, context);

  try {
    app.parse(argc, argv);
    // A disk that fills while results are written to it must not look like success.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      std::fprintf(
          stderr,
          "tailor: the output could not be written: free space where it goes, and repeat\n");
      return static_cast<int>(Exit::kInternal);
    }
    return static_cast<int>(Exit::kOk);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& failure) {
    const std::string near = suggestion(app, argc, argv);
    std::fprintf(stderr, "tailor: %s\n", near.empty() ? failure.what() : near.c_str());
    std::fprintf(stderr, "See `tailor --help` or `tailor COMMAND --help`.\n");
    return static_cast<int>(Exit::kUsage);
  } catch (const tailor::client::Failure& failure) {
    if (failure.what()[0] != '\0') std::fprintf(stderr, "tailor: %s\n", failure.what());
    return static_cast<int>(failure.exit_code());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "tailor: internal error: %s\n", failure.what());
    return static_cast<int>(Exit::kInternal);
  }
}
