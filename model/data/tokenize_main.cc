// tailor-tokenize: text to token shards, ahead of training. Reading starts at `main` below.
//
// A program of its own because SentencePiece carries a protobuf that must not meet ours (design
// decision in ARCHITECTURE.md). `tailor data` runs it under the name "tailor data". Results go to
// stdout, progress and errors to stderr. Exit codes: 0 ok, 1 internal or out of disk, 2 usage or
// bad input, 3 not found, 7 another data set is there.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "model/data/dataset_commands.h"
#include "model/data/prepare.h"
#include "model/data/sentencepiece_training.h"
#include "model/data/terminal.h"
#include "model/data/token_shard.h"
#include "model/tokenizers/open_tokenizer.h"
#include "model/tokenizers/sentencepiece_tokenizer.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kVersionText = "tailor-tokenize 0.1.0";
// What client/commands/data.cc calls us.
constexpr std::string_view kNameInClient = "tailor data";

// {0} is the name of the program.
constexpr std::string_view kExamples = R"(Examples:
  {0} train  --input docs/ --vocab-size 4096 --model docs.model
  {0} prepare docs/ --tokenizer docs.model --out data/docs
  {0} prepare a.jsonl.zst b.txt.gz --text-key content --tokenizer bytes --out data/mixed --json
  {0} import train.bin --validation val.bin --vocab-size 50257 --eos 50256 --out data/owt
  {0} import fineweb_train_*.bin --validation fineweb_val_*.bin --out data/fineweb
  {0} verify data/docs
  {0} show data/docs
  {0} decode data/docs/validation-00000.tokens --model docs.model --tokens 200

Turns text (.txt .rst .md .jsonl .ndjson .json, each also .gz or .zst, and folders of them) into
token shards for training. Sweep files name the shards: train = "data/docs/train-*.tokens".)";

int exit_code(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return 0;
    case Code::kInvalidArgument:
    case Code::kDataLoss:
    case Code::kPermissionDenied:
    case Code::kUnimplemented:
      return 2;
    case Code::kNotFound:
      return 3;
    case Code::kAlreadyExists:
    case Code::kFailedPrecondition:
      return 7;
    default:
      return 1;
  }
}

/// What the command line says, for all commands.
struct Arguments {
  std::vector<std::string> inputs;
  std::string model;
  std::uint32_t vocab_size = 0;
  std::string sample_bytes = "16 MiB";
  double validation_fraction = kValidationFractionDefault;
  bool overwrite = false;
  bool skip_bad = false;
  bool json = false;
  std::vector<std::string> files;
  std::int64_t tokens = -1;
};

Result<std::unique_ptr<tokenizers::Tokenizer>> load_tokenizer(const std::string& model) {
  if (model == "bytes") return tokenizers::make_byte_tokenizer();
  std::error_code ignored;
  if (model.ends_with(".json") || model.ends_with(".gguf") ||
      std::filesystem::is_directory(model, ignored)) {
    auto opened = tokenizers::open_tokenizer(model);  // of a published model
    if (!opened) return opened;
    for (const std::string& note : (*opened)->notes()) {
      print_line(stderr, fmt::format("note: {}", note));
    }
    return opened;
  }
  TAILOR_ASSIGN_OR_RETURN(std::unique_ptr<tokenizers::SentencePieceTokenizer> loaded,
                          tokenizers::load_sentencepiece(model));
  if (!loaded->is_lossless()) {
    print_line(stderr,
               fmt::format("warning: {} normalises its text: decoding will not give back the "
                           "text exactly",
                           model));
  }
  return std::unique_ptr<tokenizers::Tokenizer>(std::move(loaded));
}

void report_skipped(const std::vector<Status>& skipped) {
  for (const Status& status : skipped) {
    print_line(stderr, fmt::format("warning: skipped: {}", status.message()));
  }
}

Status run_train(const Arguments& arguments) {
  std::error_code code;
  if (!arguments.overwrite && std::filesystem::exists(arguments.model, code)) {
    return Status(
        Code::kAlreadyExists,
        fmt::format("{} is there already: use another --model, or --overwrite", arguments.model));
  }
  TrainingOptions options;
  options.vocab_size = arguments.vocab_size;
  TAILOR_ASSIGN_OR_RETURN(options.sample_bytes, parse_bytes(arguments.sample_bytes));
  options.validation_fraction = arguments.validation_fraction;
  options.corpus.skip_bad = arguments.skip_bad;
  options.sampled = [](std::uint64_t sample, std::uint64_t corpus) {
    print_line(stderr,
               fmt::format("training on {:.1f} of {:.1f} MB of text",
                           static_cast<double>(sample) / 1e6, static_cast<double>(corpus) / 1e6));
  };
  const double start_s = steady_seconds();
  TAILOR_ASSIGN_OR_RETURN(const TrainedModel trained,
                          train_sentencepiece(arguments.inputs, options));
  const std::filesystem::path folder = std::filesystem::path(arguments.model).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, code);
  TAILOR_RETURN_IF_ERROR(write_file_atomic(arguments.model, trained.model));
  report_skipped(trained.read.reasons);
  if (!trained.passed_over.empty()) {
    print_line(stderr, "note: passed over: " + describe_passed_over(trained.passed_over));
  }
  if (arguments.json) {
    Json passed_over = passed_over_json(trained.passed_over);
    const Json summary = {{"model", arguments.model},
                          {"vocab_size", arguments.vocab_size},
                          {"corpus_bytes", trained.corpus_bytes},
                          {"sample_bytes", trained.sample_bytes},
                          {"skipped_files", trained.read.skipped_files},
                          {"skipped_lines", trained.read.skipped_lines},
                          {"passed_over", std::move(passed_over)},
                          {"sha256", sha256_hex(trained.model)},
                          {"seconds", steady_seconds() - start_s}};
    print_line(stdout, summary.dump(2));
  } else {
    print_line(stdout, fmt::format("{}: {} pieces from {} of {} bytes of text, {:.1f} s",
                                   arguments.model, arguments.vocab_size,
                                   with_thousands(static_cast<std::int64_t>(trained.sample_bytes)),
                                   with_thousands(static_cast<std::int64_t>(trained.corpus_bytes)),
                                   steady_seconds() - start_s));
  }
  return Status::ok();
}

/// Prints the text of shards; EOS stands for nothing, so documents follow each other directly.
Status run_decode(const Arguments& arguments) {
  constexpr std::uint64_t kBlockTokens = 1 << 16;
  TAILOR_ASSIGN_OR_RETURN(const std::unique_ptr<tokenizers::Tokenizer> tokenizer,
                          load_tokenizer(arguments.model));
  std::uint64_t left =
      arguments.tokens < 0 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(arguments.tokens);
  std::vector<std::uint32_t> ids;
  for (const std::string& path : arguments.files) {
    TAILOR_ASSIGN_OR_RETURN(const TokenShardReader shard, TokenShardReader::open(path));
    if (shard.info().tokenizer_sha256 != tokenizer->sha256()) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{} was written with another tokenizer than {}", path, arguments.model));
    }
    for (std::uint64_t position = 0; left > 0 && position < shard.info().token_count;) {
      ids.resize(std::min({kBlockTokens, left, shard.info().token_count - position}));
      TAILOR_RETURN_IF_ERROR(shard.read(position, ids));
      TAILOR_ASSIGN_OR_RETURN(const std::string text, tokenizer->decode(ids));
      std::fwrite(text.data(), 1, text.size(), stdout);
      position += ids.size();
      left -= ids.size();
    }
  }
  return Status::ok();
}

void add_input(CLI::App* command, Arguments* arguments) {
  command->add_option("--input,-i", arguments->inputs, "Files and folders of text")
      ->required()
      ->type_name("PATH");
  command->add_flag("--skip-bad", arguments->skip_bad,
                    "Count and pass over files that are not UTF-8, cut short or bad JSON");
  command
      ->add_option("--validation-fraction", arguments->validation_fraction,
                   "Share of documents held out, by hash of their names (train does not look at "
                   "them)")
      ->type_name("F")
      ->capture_default_str();
  command->add_flag("--overwrite", arguments->overwrite, "Replace what an earlier run wrote");
}

/// What is wrong with the first unknown command or option of the line, with the nearest known one;
/// "" when all are known. CLI11 alone would complain of what is missing instead.
std::string unknown_word(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> names = {"--help", "--version"};
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool option = words[i].starts_with("--");
    if (!option && (i > 0 || words[i].starts_with('-'))) continue;
    const std::string word = words[i].substr(0, words[i].find('='));
    if (word == "--") return "";
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    const std::string near = nearest_name(word, known);
    return fmt::format("unknown {} {}{}", option ? "option" : "command", word,
                       near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  return "";
}

/// The examples of one command, ahead of its help.
void print_examples(const std::string& program, const std::string& command) {
  print_line(stdout, "Examples:");
  const std::string examples = fmt::format(kExamples, program);
  for (const std::string_view line : split(examples, '\n')) {
    if (line.starts_with("  " + program + " " + command + " ")) print_line(stdout, line);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Arguments arguments;
  const std::string program =
      argc > 0 && argv[0] == kNameInClient ? std::string(kNameInClient) : "tailor-tokenize";
  CLI::App app(fmt::format(kExamples, program), program);
  app.set_version_flag("--version", std::string(kVersionText));
  app.require_subcommand(1);

  CLI::App* train =
      app.add_subcommand("train", "Train a SentencePiece BPE model with byte fallback");
  add_input(train, &arguments);
  train->add_option("--vocab-size", arguments.vocab_size, "Pieces, with EOS and 256 bytes")
      ->required()
      ->type_name("N");
  train->add_option("--model", arguments.model, "Where to write the model")
      ->required()
      ->type_name("FILE");
  train->add_option("--sample-bytes", arguments.sample_bytes, "Train on about so much of the text")
      ->type_name("SIZE")
      ->capture_default_str();
  train->add_flag("--json", arguments.json, "Summary as JSON");

  DatasetCommands datasets(&app, load_tokenizer);

  CLI::App* decode = app.add_subcommand("decode", "Print the text of shards");
  decode->add_option("files", arguments.files, "Token shards")->required()->type_name("FILE");
  decode->add_option("--model", arguments.model, "The model they were encoded with")
      ->required()
      ->type_name("FILE|bytes");
  decode->add_option("--tokens", arguments.tokens, "Only so many tokens")->type_name("N");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    if (problem.get_exit_code() == 0) {  // --help, --version
      for (const CLI::App* command : app.get_subcommands())
        print_examples(program, command->get_name());
      return app.exit(problem);
    }
    const std::string unknown = unknown_word(app, std::vector<std::string>(argv + 1, argv + argc));
    print_line(stderr, fmt::format("{0}: {1} ({0} --help shows examples)", program,
                                   unknown.empty() ? problem.what() : unknown));
    return 2;
  }

  const std::optional<Status> done = datasets.run();
  const Status status = done ? *done : *train ? run_train(arguments) : run_decode(arguments);
  if (!status.is_ok()) print_line(stderr, program + ": " + status.message());
  if (std::fflush(stdout) != 0 && status.is_ok()) {
    print_line(stderr, program + ": cannot write to stdout");
    return 1;
  }
  return exit_code(status);
}

}  // namespace
}  // namespace tailor::data

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error like a full disk
  try {
    return tailor::data::run(argc, argv);
  } catch (const std::exception& problem) {
    fmt::print(stderr, "tailor-tokenize: {}\n", problem.what());
    return 1;
  }
}
