// tailor completion: shell completion for bash, zsh and fish, made from the table of commands.
#include <fmt/format.h>

#include "client/table.h"

namespace tailor::client {
namespace {

std::string bash(const CLI::App& app) {
  std::string words, cases;
  for (const CLI::App* sub : app.get_subcommands({})) {
    words += sub->get_name() + " ";
    std::string flags, nested;
    const auto add_flags = [&flags](const CLI::App* command) {
      for (const CLI::Option* option : command->get_options()) {
        for (const auto& name : option->get_lnames()) flags += "--" + name + " ";
      }
    };
    add_flags(sub);
    for (const CLI::App* inner : sub->get_subcommands({})) {
      nested += inner->get_name() + " ";
      add_flags(inner);
    }
    cases += fmt::format("    {}) flags=\"{}\" nested=\"{}\" ;;\n", sub->get_name(), flags, nested);
  }
  return fmt::format(
      "_tailor() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} flags=\"\" nested=\"\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return; "
      "fi\n"
      "  case ${{COMP_WORDS[1]}} in\n{}  esac\n"
      "  if [ \"$COMP_CWORD\" -eq 2 ] && [ -n \"$nested\" ]; then COMPREPLY=($(compgen -W "
      "\"$nested\" -- \"$word\")); return; fi\n"
      "  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"$flags --json --coordinator --color "
      "--timeout\" -- \"$word\"))\n"
      "  else COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
      "}}\ncomplete -o filenames -F _tailor tailor\n",
      words, cases);
}

std::string fish(const CLI::App& app) {
  std::string out = "complete -c tailor -f\n";
  for (const CLI::App* sub : app.get_subcommands({})) {
    out += fmt::format("complete -c tailor -n __fish_use_subcommand -a {}\n", sub->get_name());
    const auto add_flags = [&out](const CLI::App* command) {
      for (const CLI::Option* option : command->get_options()) {
        for (const auto& name : option->get_lnames()) {
          out += fmt::format("complete -c tailor -n '__fish_seen_subcommand_from {}' -l {}\n",
                             command->get_name(), name);
        }
      }
    };
    add_flags(sub);
    for (const CLI::App* inner : sub->get_subcommands({})) {
      out += fmt::format("complete -c tailor -n '__fish_seen_subcommand_from {}' -a {}\n",
                         sub->get_name(), inner->get_name());
      add_flags(inner);
    }
  }
  out += "complete -c tailor -n '__fish_seen_subcommand_from plan submit shape geometry' -F\n";
  return out;
}

}  // namespace

void add_completion(CLI::App& app, Context& context) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      add_command(app, "completion", "Prints shell completion for bash, zsh or fish.",
                  "  source <(tailor completion bash)\n  tailor completion fish > "
                  "~/.config/fish/completions/tailor.fish");
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, &context, shell] {
    const Printer out = context.printer();
    if (*shell == "fish") return out.line(fish(app));
    // zsh reads bash completions through bashcompinit.
    out.line((*shell == "zsh" ? "autoload -Uz bashcompinit && bashcompinit\n" : "") + bash(app));
  });
}

}  // namespace tailor::client
