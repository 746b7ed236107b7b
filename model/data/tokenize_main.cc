// tailor-tokenize: text to token shards, ahead of training. Reading starts at `main` below.
//
// A program of its own because SentencePiece carries a protobuf that must not meet ours (design
// decision in ARCHITECTURE.md). Results go to stdout, progress and errors to stderr. Exit codes: 0
// ok, 1 internal or out of disk, 2 usage or bad input, 3 not found, 7 shards exist already.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "model/data/encode.h"
#include "model/data/sentencepiece_tokenizer.h"
#include "model/data/token_shard.h"
#include "model/data/tokenizer.h"

namespace tailor::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kVersionText = "tailor-tokenize 0.1.0";

constexpr std::string_view kExamples = R"(Examples:
  tailor-tokenize train  --input docs/ --vocab-size 4096 --model docs.model
  tailor-tokenize encode --input docs/ --model docs.model --output data/docs
  tailor-tokenize encode --input a.jsonl.zst b.txt.gz --model bytes --output data/mixed --json
  tailor-tokenize info   data/docs-train-*.tokens
  tailor-tokenize decode data/docs-validation-00000.tokens --model docs.model --tokens 200

Turns text (.txt .rst .md .jsonl, each also .gz or .zst, and folders of them) into token shards for
training. Sweep files name the shards: train = "data/docs-train-*.tokens".)";

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

void print_line(std::FILE* file, std::string_view text) { fmt::print(file, "{}\n", text); }

/// Progress on stderr: a line that is rewritten on a terminal, else one every few seconds.
class Progress {
 public:
  explicit Progress(std::string action) : action_(std::move(action)) {}
  ~Progress() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::uint64_t bytes, std::uint64_t tokens) {
    const MonotonicMs now = clock_.now_ms();
    if (now - last_ms_ < (terminal_ ? 200 : 5000)) return;
    last_ms_ = now;
    const double seconds = static_cast<double>(now - start_ms_) / 1000;
    const std::string text =
        fmt::format("{}: {:.1f} MB, {:.1f} M tokens, {:.1f} MB/s", action_,
                    static_cast<double>(bytes) / 1e6, static_cast<double>(tokens) / 1e6,
                    seconds > 0 ? static_cast<double>(bytes) / 1e6 / seconds : 0);
    if (terminal_) {
      fmt::print(stderr, "\r\033[K{}", text);
      std::fflush(stderr);
      drawn_ = true;
    } else {
      print_line(stderr, text);
    }
  }
  double seconds() const { return static_cast<double>(clock_.now_ms() - start_ms_) / 1000; }

 private:
  SystemClock clock_;
  std::string action_;
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  MonotonicMs start_ms_ = clock_.now_ms();
  MonotonicMs last_ms_ = start_ms_;
  bool drawn_ = false;
};

/// What the command line says, for all commands.
struct Arguments {
  std::vector<std::string> inputs;
  std::string model;
  std::uint32_t vocab_size = 0;
  std::string sample_bytes = "16 MiB";
  std::string output;
  double validation_fraction = kValidationFractionDefault;
  std::vector<std::string> validation_inputs;
  std::string shard_tokens = "100M";
  int threads = 2;
  bool overwrite = false;
  bool skip_bad = false;
  bool json = false;
  std::vector<std::string> files;
  std::int64_t tokens = -1;
};

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& model) {
  if (model == "bytes") return make_byte_tokenizer();
  TAILOR_ASSIGN_OR_RETURN(std::unique_ptr<SentencePieceTokenizer> loaded,
                          load_sentencepiece(model));
  if (!loaded->is_lossless()) {
    print_line(stderr,
               fmt::format("warning: {} normalises its text: decoding will not give back the "
                           "text exactly",
                           model));
  }
  return std::unique_ptr<Tokenizer>(std::move(loaded));
}

void report_skipped(const std::vector<Status>& skipped) {
  for (const Status& status : skipped) {
    print_line(stderr, fmt::format("warning: skipped: {}", status.message()));
  }
}

double per(std::uint64_t a, std::uint64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
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
  const Progress progress("training");
  TAILOR_ASSIGN_OR_RETURN(const TrainedModel trained,
                          train_sentencepiece(arguments.inputs, options));
  const std::filesystem::path folder = std::filesystem::path(arguments.model).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, code);
  TAILOR_RETURN_IF_ERROR(write_file_atomic(arguments.model, trained.model));
  report_skipped(trained.skipped);
  if (arguments.json) {
    const Json summary = {{"model", arguments.model},
                          {"vocab_size", arguments.vocab_size},
                          {"corpus_bytes", trained.corpus_bytes},
                          {"sample_bytes", trained.sample_bytes},
                          {"skipped_files", trained.skipped.size()},
                          {"sha256", sha256_hex(trained.model)},
                          {"seconds", progress.seconds()}};
    print_line(stdout, summary.dump(2));
  } else {
    print_line(stdout, fmt::format("{}: {} pieces from {} of {} bytes of text, {:.1f} s",
                                   arguments.model, arguments.vocab_size,
                                   with_thousands(static_cast<std::int64_t>(trained.sample_bytes)),
                                   with_thousands(static_cast<std::int64_t>(trained.corpus_bytes)),
                                   progress.seconds()));
  }
  return Status::ok();
}

Json split_json(const EncodedSplit& split) {
  Json files = Json::array();
  for (const EncodedFile& file : split.files) {
    files.push_back(
        {{"path", file.path}, {"tokens", file.info.token_count}, {"sha256", file.info.sha256}});
  }
  return {{"documents", split.documents},
          {"tokens", split.tokens},
          {"bytes", split.bytes},
          {"bytes_per_token", per(split.bytes, split.tokens)},
          {"data_hash", split.content_hash},
          {"files", files}};
}

void print_split(std::string_view name, const EncodedSplit& split) {
  print_line(stdout,
             fmt::format("{:<11} {:>11} documents {:>15} tokens {:>15} bytes {:.3f} bytes/token",
                         name, with_thousands(static_cast<std::int64_t>(split.documents)),
                         with_thousands(static_cast<std::int64_t>(split.tokens)),
                         with_thousands(static_cast<std::int64_t>(split.bytes)),
                         per(split.bytes, split.tokens)));
  for (const EncodedFile& file : split.files) print_line(stdout, "  " + file.path);
}

Status run_encode(const Arguments& arguments) {
  TAILOR_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          load_tokenizer(arguments.model));
  Progress progress("encoding");
  EncodeOptions options;
  options.prefix = arguments.output;
  options.validation_fraction = arguments.validation_fraction;
  options.validation_inputs = arguments.validation_inputs;
  TAILOR_ASSIGN_OR_RETURN(const double shard_tokens, parse_count(arguments.shard_tokens));
  if (!(shard_tokens >= 1) || shard_tokens > 1e15) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--shard-tokens {} is not in [1, 1e15]", arguments.shard_tokens));
  }
  options.shard_tokens = static_cast<std::uint64_t>(shard_tokens);
  options.threads = arguments.threads;
  options.overwrite = arguments.overwrite;
  options.corpus.skip_bad = arguments.skip_bad;
  options.progress = [&](std::uint64_t bytes, std::uint64_t tokens) {
    progress.show(bytes, tokens);
  };
  TAILOR_ASSIGN_OR_RETURN(const EncodeSummary summary,
                          encode_corpus(arguments.inputs, *tokenizer, options));
  report_skipped(summary.skipped);
  if (arguments.json) {
    const Json json = {{"vocab_size", tokenizer->vocab_size()},
                       {"eos_id", tokenizer->eos_id()},
                       {"tokenizer_sha256", tokenizer->sha256()},
                       {"documents", summary.train.documents + summary.validation.documents},
                       {"tokens", summary.train.tokens + summary.validation.tokens},
                       {"bytes", summary.train.bytes + summary.validation.bytes},
                       {"bytes_per_token", per(summary.train.bytes + summary.validation.bytes,
                                               summary.train.tokens + summary.validation.tokens)},
                       {"empty_documents", summary.empty_documents},
                       {"skipped_files", summary.skipped.size()},
                       {"seconds", progress.seconds()},
                       {"train", split_json(summary.train)},
                       {"validation", split_json(summary.validation)}};
    print_line(stdout, json.dump(2));
  } else {
    print_split("train", summary.train);
    print_split("validation", summary.validation);
    print_line(stdout,
               fmt::format("vocabulary {}, {:.1f} s", tokenizer->vocab_size(), progress.seconds()));
  }
  return Status::ok();
}

Status run_info(const Arguments& arguments) {
  Json all = Json::array();
  for (const std::string& path : arguments.files) {
    TAILOR_ASSIGN_OR_RETURN(const TokenShardReader shard, TokenShardReader::open(path));
    TAILOR_RETURN_IF_ERROR(shard.verify());
    const TokenShardInfo& info = shard.info();
    if (arguments.json) {
      all.push_back({{"path", path},
                     {"tokens", info.token_count},
                     {"documents", info.document_count},
                     {"bytes", info.text_bytes},
                     {"bytes_per_token", per(info.text_bytes, info.token_count)},
                     {"vocab_size", info.vocab_size},
                     {"eos_id", info.eos_id},
                     {"max_id", info.max_id},
                     {"token_bytes", info.token_bytes},
                     {"tokenizer_sha256", info.tokenizer_sha256},
                     {"sha256", info.sha256}});
      continue;
    }
    print_line(stdout,
               fmt::format("{}\n  tokens {}  documents {}  text bytes {}  bytes/token {:.3f}\n"
                           "  vocabulary {}  EOS {}  largest id {}  bytes an id {}\n"
                           "  tokenizer {}\n  SHA-256   {} (verified)",
                           path, with_thousands(static_cast<std::int64_t>(info.token_count)),
                           with_thousands(static_cast<std::int64_t>(info.document_count)),
                           with_thousands(static_cast<std::int64_t>(info.text_bytes)),
                           per(info.text_bytes, info.token_count), info.vocab_size, info.eos_id,
                           info.max_id, info.token_bytes, info.tokenizer_sha256, info.sha256));
  }
  if (arguments.json) print_line(stdout, all.dump(2));
  return Status::ok();
}

/// Prints the text of shards; EOS stands for nothing, so documents follow each other directly.
Status run_decode(const Arguments& arguments) {
  constexpr std::uint64_t kBlockTokens = 1 << 16;
  TAILOR_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
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
void print_examples(const std::string& command) {
  print_line(stdout, "Examples:");
  for (const std::string_view line : split(kExamples, '\n')) {
    if (line.starts_with("  tailor-tokenize " + command + " ")) print_line(stdout, line);
  }
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(std::string(kExamples), "tailor-tokenize");
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

  CLI::App* encode = app.add_subcommand("encode", "Write token shards");
  add_input(encode, &arguments);
  encode->add_option("--model", arguments.model, "A model from train, or the word bytes")
      ->required()
      ->type_name("FILE|bytes");
  encode
      ->add_option(
          "--output,-o", arguments.output,
          "Shards are PREFIX-train-00000.tokens ... and PREFIX-validation-00000.tokens ...")
      ->required()
      ->type_name("PREFIX");
  encode
      ->add_option("--validation", arguments.validation_inputs,
                   "Text of the validation shards, instead of a fraction of the input")
      ->type_name("PATH")
      ->excludes("--validation-fraction");
  encode->add_option("--shard-tokens", arguments.shard_tokens, "Tokens a shard, such as 100M")
      ->type_name("N")
      ->capture_default_str();
  encode->add_option("--threads", arguments.threads, "Encoding threads")
      ->type_name("N")
      ->check(CLI::Range(1, 256).description(""))
      ->capture_default_str();
  encode->add_flag("--json", arguments.json, "Summary as JSON");

  CLI::App* info = app.add_subcommand("info", "Print headers and verify checksums");
  info->add_option("files", arguments.files, "Token shards")->required()->type_name("FILE");
  info->add_flag("--json", arguments.json, "As JSON");

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
      for (const CLI::App* command : app.get_subcommands()) print_examples(command->get_name());
      return app.exit(problem);
    }
    const std::string unknown = unknown_word(app, std::vector<std::string>(argv + 1, argv + argc));
    print_line(stderr, fmt::format("tailor-tokenize: {} (tailor-tokenize --help shows examples)",
                                   unknown.empty() ? problem.what() : unknown));
    return 2;
  }

  const Status status = *train    ? run_train(arguments)
                        : *encode ? run_encode(arguments)
                        : *info   ? run_info(arguments)
                                  : run_decode(arguments);
  if (!status.is_ok()) print_line(stderr, "tailor-tokenize: " + status.message());
  if (std::fflush(stdout) != 0 && status.is_ok()) {
    print_line(stderr, "tailor-tokenize: cannot write to stdout");
    return 1;
  }
  return exit_code(status);
}

}  // namespace
}  // namespace tailor::data

int main(int argc, char** argv) {
  try {
    return tailor::data::run(argc, argv);
  } catch (const std::exception& problem) {
    fmt::print(stderr, "tailor-tokenize: {}\n", problem.what());
    return 1;
  }
}
