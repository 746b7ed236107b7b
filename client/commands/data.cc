// tailor data: data sets of token shards. The work is done by tailor-tokenize, a program of its own
// (SentencePiece carries a protobuf that must not meet ours), which takes this process over.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "client/table.h"

namespace tailor::client {
namespace {

// argv[0] by which tailor-tokenize knows whose words it speaks.
constexpr const char* kDataProgram = "tailor data";

/// Replaces this process. Returns only by throwing.
[[noreturn]] void run_tokenizer(std::vector<std::string> words) {
  const std::string program = program_folder() + "/tailor-tokenize";
  words.insert(words.begin(), kDataProgram);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  throw Failure(errno == ENOENT ? Exit::kNotFound : Exit::kInternal,
                fmt::format("cannot run {}: {}; tailor-tokenize belongs beside tailor", program,
                            std::strerror(errno)));
}

}  // namespace

void add_data(CLI::App& app, Context& context) {
  CLI::App* group = add_command(
      app, "data",
      "Writes and checks the token shards that sweeps train on: from text, or from the .bin files "
      "of "
      "nanoGPT and llm.c. `tailor data COMMAND --help` says more.",
      "  tailor data prepare docs/ more.jsonl.zst --tokenizer docs.model --out data/docs\n"
      "  tailor data import train.bin --validation val.bin --vocab-size 50257 --eos 50256 --out "
      "data/owt\n"
      "  tailor data verify data/docs\n"
      "  tailor data show data/docs");
  group->require_subcommand(1);
  constexpr std::pair<const char*, const char*> kDataCommands[] = {
      {"prepare", "write a data set from text; run again after a failure, it goes on"},
      {"import", "write a data set from the .bin files of nanoGPT or llm.c"},
      {"verify", "read data sets or shards whole and check every hash"},
      {"show", "print what data sets or shards hold"}};
  for (const auto& [name, summary] : kDataCommands) {
    CLI::App* command = group->add_subcommand(name, summary);
    command->set_help_flag();  // --help is tailor-tokenize's too
    command->fallthrough(false);
    command->prefix_command();
    command->callback([&context, command] {
      std::vector<std::string> words = {command->get_name()};
      const std::vector<std::string> given = command->remaining();
      words.insert(words.end(), given.begin(), given.end());
      if (context.json && std::find(words.begin(), words.end(), "--json") == words.end()) {
        words.emplace_back("--json");
      }
      run_tokenizer(std::move(words));
    });
  }
}

}  // namespace tailor::client
