#include "model/data/dataset_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "model/data/import.h"
#include "model/data/manifest.h"
#include "model/data/prepare.h"
#include "model/data/terminal.h"
#include "model/data/token_shard.h"

namespace tailor::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

double ratio(std::uint64_t a, std::uint64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

std::string grouped(std::uint64_t count) {
  return with_thousands(static_cast<std::int64_t>(count));
}

Json split_json(const std::string& folder, const ManifestSplit& split) {
  Json files = Json::array();
  for (const ManifestShard& shard : split.shards) {
    files.push_back({{"path", (fs::path(folder) / shard.file).string()},
                     {"tokens", shard.tokens},
                     {"documents", shard.documents},
                     {"bytes", shard.text_bytes},
                     {"sha256", shard.sha256}});
  }
  return {{"documents", split.documents()},
          {"tokens", split.tokens()},
          {"bytes", split.text_bytes()},
          {"bytes_per_token", ratio(split.text_bytes(), split.tokens())},
          {"data_hash", split.content_hash()},
          {"files", std::move(files)}};
}

void print_splits(const std::string& folder, const DatasetManifest& manifest) {
  for (const std::size_t i : {kTrain, kValidation}) {
    const ManifestSplit& split = manifest.splits[i];
    if (split.shards.empty()) continue;
    print_line(stdout,
               fmt::format("{:<11} {:>11} documents {:>15} tokens {:>15} bytes {:.3f} bytes/token",
                           kSplitNames[i], grouped(split.documents()), grouped(split.tokens()),
                           grouped(split.text_bytes()), ratio(split.text_bytes(), split.tokens())));
    for (const ManifestShard& shard : split.shards) {
      print_line(stdout, "  " + (fs::path(folder) / shard.file).string());
    }
  }
}

struct Totals {
  std::uint64_t documents = 0, tokens = 0, bytes = 0;
  std::uint64_t empty_documents = 0, skipped_files = 0, skipped_lines = 0;
};

Totals totals_of(const DatasetManifest& manifest) {
  Totals totals;
  for (const ManifestSplit& split : manifest.splits) {
    totals.documents += split.documents();
    totals.tokens += split.tokens();
    totals.bytes += split.text_bytes();
  }
  for (const ManifestSource& source : manifest.sources) {
    totals.empty_documents += source.empty_documents;
    totals.skipped_files += source.skipped ? 1 : 0;
    totals.skipped_lines += source.skipped_lines;
  }
  return totals;
}

/// What `prepare` and `import` say at the end.
void report(const PrepareSummary& summary, const std::string& folder, double seconds, bool json) {
  const DatasetManifest& manifest = summary.manifest;
  const Totals totals = totals_of(manifest);
  for (const Status& reason : summary.reasons) {
    print_line(stderr, fmt::format("warning: skipped: {}", reason.message()));
  }
  if (json) {
    const Json document = {{"folder", folder},
                           {"manifest", (fs::path(folder) / kManifestName).string()},
                           {"already_done", summary.already_done},
                           {"resumed_tokens", summary.resumed_tokens},
                           {"tokenizer", manifest.tokenizer.name},
                           {"tokenizer_sha256", manifest.tokenizer.sha256},
                           {"vocab_size", manifest.tokenizer.vocab_size},
                           {"eos_id", manifest.tokenizer.eos_id},
                           {"sources", manifest.sources.size()},
                           {"documents", totals.documents},
                           {"tokens", totals.tokens},
                           {"bytes", totals.bytes},
                           {"bytes_per_token", ratio(totals.bytes, totals.tokens)},
                           {"empty_documents", totals.empty_documents},
                           {"skipped_files", totals.skipped_files},
                           {"skipped_lines", totals.skipped_lines},
                           {"seconds", seconds},
                           {"train", split_json(folder, manifest.splits[kTrain])},
                           {"validation", split_json(folder, manifest.splits[kValidation])}};
    return print_line(stdout, document.dump(2));
  }
  print_splits(folder, manifest);
  if (totals.skipped_files + totals.skipped_lines > 0) {
    print_line(stdout, fmt::format("skipped as bad: {} files, {} lines",
                                   grouped(totals.skipped_files), grouped(totals.skipped_lines)));
  }
  const std::string how =
      summary.already_done ? "was there already, unchanged"
      : summary.resumed_tokens > 0
          ? fmt::format("{} tokens of an earlier run kept", grouped(summary.resumed_tokens))
          : fmt::format("{:.1f} s", seconds);
  print_line(stdout,
             fmt::format("{} (vocabulary {}): {}", (fs::path(folder) / kManifestName).string(),
                         manifest.tokenizer.vocab_size, how));
}

Result<std::uint64_t> shard_tokens_of(const std::string& text) {
  TAILOR_ASSIGN_OR_RETURN(const double count, parse_count(text));
  if (!(count >= 1) || count > 1e15) {
    return error(Code::kInvalidArgument,
                 fmt::format("--shard-tokens {} is not in [1, 1e15]", text));
  }
  return static_cast<std::uint64_t>(count);
}

Json shard_json(const std::string& path, const TokenShardInfo& info) {
  return {{"path", path},
          {"tokens", info.token_count},
          {"documents", info.document_count},
          {"bytes", info.text_bytes},
          {"bytes_per_token", ratio(info.text_bytes, info.token_count)},
          {"vocab_size", info.vocab_size},
          {"eos_id", info.eos_id},
          {"max_id", info.max_id},
          {"token_bytes", info.token_bytes},
          {"tokenizer_sha256", info.tokenizer_sha256},
          {"sha256", info.sha256}};
}

}  // namespace

struct DatasetCommands::Impl {
  CLI::App* prepare = nullptr;
  CLI::App* import = nullptr;
  CLI::App* verify = nullptr;
  CLI::App* show = nullptr;
  LoadTokenizer load_tokenizer;

  std::vector<std::string> paths;
  std::string tokenizer;
  std::string folder;
  std::string text_key = "text";
  std::string format = "auto";
  double validation_fraction = kValidationFractionDefault;
  std::vector<std::string> validation_inputs;
  std::string shard_tokens = "100M";
  std::uint32_t vocab_size = 0;
  std::int64_t eos_id = -1;
  int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 256);
  std::uint64_t first_tokens = 32;
  bool skip_bad = false;
  bool overwrite = false;
  bool as_json = false;

  void add_output(CLI::App* command);
  void add_prepare(CLI::App* app);
  void add_import(CLI::App* app);
  void add_verify_and_show(CLI::App* app);
  Status run_prepare();
  Status run_import();
  Status run_verify();
  Status run_show();

  std::unique_ptr<tokenizers::Tokenizer> find_tokenizer(const std::string& name,
                                                        const std::string& sha256);
  Result<Json> first_of(const TokenShardReader& shard, const std::string& tokenizer_name);
  Result<Json> describe(const std::string& path);
};

void DatasetCommands::Impl::add_output(CLI::App* command) {
  command->add_option("--out,-o", folder, "Folder for the shards and dataset.json")
      ->required()
      ->type_name("FOLDER");
  command->add_option("--shard-tokens", shard_tokens, "Tokens a shard, such as 100M")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--overwrite", overwrite, "Replace another data set in the folder");
  command->add_flag("--json", as_json, "Summary as JSON");
}

void DatasetCommands::Impl::add_prepare(CLI::App* app) {
  prepare = app->add_subcommand(
      "prepare", "Write a data set from text; run again after a failure, it goes on");
  prepare->add_option("sources", paths, "Files and folders of .txt .rst .md .jsonl [.gz .zst]")
      ->required()
      ->type_name("SOURCE");
  prepare
      ->add_option("--tokenizer,--model", tokenizer,
                   "A SentencePiece model, tokenizer.json, .gguf, a folder with one, or bytes")
      ->required()
      ->type_name("FILE|bytes");
  prepare->add_option("--text-key", text_key, "Member of a JSON line that holds the text")
      ->type_name("KEY")
      ->capture_default_str();
  prepare
      ->add_option("--validation-fraction", validation_fraction,
                   "Share of documents held out, by hash of their names")
      ->type_name("F")
      ->capture_default_str();
  prepare
      ->add_option("--validation", validation_inputs,
                   "Text of the validation shards, instead of a fraction")
      ->type_name("PATH")
      ->excludes("--validation-fraction");
  prepare->add_option("--threads", threads, "Encoding threads; the result is the same for any")
      ->type_name("N")
      ->check(CLI::Range(1, 256).description(""))
      ->capture_default_str();
  prepare->add_flag(
      "--skip-bad", skip_bad,
      "Count and pass over lines and files that are not UTF-8, cut short or bad JSON");
  add_output(prepare);
}

void DatasetCommands::Impl::add_import(CLI::App* app) {
  import =
      app->add_subcommand("import", "Write a data set from the .bin files of nanoGPT or llm.c");
  import->add_option("files", paths, "Training files, in order")->required()->type_name("FILE");
  import->add_option("--validation", validation_inputs, "Validation files")->type_name("FILE");
  import->add_option("--format", format, "auto, nanogpt (uint16, no header) or llmc")
      ->type_name("FORMAT")
      ->capture_default_str();
  import->add_option("--vocab-size", vocab_size, "Every id is below it (nanogpt: needed)")
      ->type_name("N");
  import->add_option("--eos", eos_id, "Id between documents (nanogpt: needed)")->type_name("ID");
  import
      ->add_option("--tokenizer,--model", tokenizer,
                   "The tokenizer of the ids, if at hand: counts the bytes of text")
      ->type_name("FILE|bytes");
  add_output(import);
}

void DatasetCommands::Impl::add_verify_and_show(CLI::App* app) {
  verify = app->add_subcommand("verify", "Read data sets or shards whole and check every hash");
  verify->add_option("paths", paths, "Folders of data sets, and shards")
      ->required()
      ->type_name("FOLDER|SHARD");
  verify->add_flag("--json", as_json, "As JSON");

  show = app->add_subcommand("show", "Print what data sets or shards hold");
  show->add_option("paths", paths, "Folders of data sets, and shards")
      ->required()
      ->type_name("FOLDER|SHARD");
  show->add_option("--tokens", first_tokens, "Print so many of the first ids")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000).description(""))
      ->capture_default_str();
  show->add_option("--tokenizer,--model", tokenizer, "Decode them with this one")
      ->type_name("FILE|bytes");
  show->add_flag("--json", as_json, "As JSON");
}

Status DatasetCommands::Impl::run_prepare() {
  TAILOR_ASSIGN_OR_RETURN(const std::unique_ptr<tokenizers::Tokenizer> loaded,
                          load_tokenizer(tokenizer));
  PrepareOptions options;
  options.folder = folder;
  options.tokenizer_name = tokenizer;
  options.validation_fraction = validation_fraction;
  options.validation_inputs = validation_inputs;
  TAILOR_ASSIGN_OR_RETURN(options.shard_tokens, shard_tokens_of(shard_tokens));
  options.threads = threads;
  options.overwrite = overwrite;
  options.corpus.skip_bad = skip_bad;
  options.corpus.text_key = text_key;
  double seconds = 0;
  Result<PrepareSummary> summary;
  {
    ProgressBar bar("preparing");
    options.progress = [&](const DataProgress& progress) { bar.show(progress); };
    summary = prepare_dataset(paths, *loaded, options);
    seconds = bar.seconds();
  }
  if (!summary) return summary.error();
  report(*summary, folder, seconds, as_json);
  return Status::ok();
}

Status DatasetCommands::Impl::run_import() {
  ImportOptions options;
  std::unique_ptr<tokenizers::Tokenizer> loaded;
  if (!tokenizer.empty()) {
    TAILOR_ASSIGN_OR_RETURN(loaded, load_tokenizer(tokenizer));
    options.tokenizer = loaded.get();
    options.tokenizer_name = tokenizer;
  }
  options.folder = folder;
  TAILOR_ASSIGN_OR_RETURN(options.format, parse_bin_format(format));
  options.vocab_size = vocab_size;
  options.eos_id = eos_id;
  options.validation_inputs = validation_inputs;
  TAILOR_ASSIGN_OR_RETURN(options.shard_tokens, shard_tokens_of(shard_tokens));
  options.overwrite = overwrite;
  double seconds = 0;
  Result<PrepareSummary> summary;
  {
    ProgressBar bar("importing");
    options.progress = [&](const DataProgress& progress) { bar.show(progress); };
    summary = import_dataset(paths, options);
    seconds = bar.seconds();
  }
  if (!summary) return summary.error();
  report(*summary, folder, seconds, as_json);
  return Status::ok();
}

Status DatasetCommands::Impl::run_verify() {
  Json all = Json::array();
  std::size_t damaged = 0;
  for (const std::string& path : paths) {
    std::error_code code;
    std::vector<Status> problems;
    if (fs::is_directory(path, code)) {
      TAILOR_ASSIGN_OR_RETURN(problems, verify_dataset(path));
    } else {
      Result<TokenShardReader> shard = TokenShardReader::open(path);
      Status status = shard ? shard->verify() : shard.error();
      if (status.code() == Code::kNotFound) return status;
      if (!status) problems.push_back(std::move(status));
    }
    damaged += problems.size();
    Json messages = Json::array();
    for (const Status& problem : problems) {
      messages.push_back(problem.message());
      print_line(stderr, "error: " + problem.message());
    }
    all.push_back({{"path", path}, {"ok", problems.empty()}, {"problems", messages}});
    if (!as_json && problems.empty()) print_line(stdout, path + ": whole, every SHA-256 is right");
  }
  if (as_json) print_line(stdout, all.dump(2));
  if (damaged == 0) return Status::ok();
  return Status(Code::kDataLoss,
                fmt::format("{} file{} damaged", damaged, damaged == 1 ? " is" : "s are"));
}

/// The tokenizer `name`, if it can be had and is the one with that hash; else null.
std::unique_ptr<tokenizers::Tokenizer> DatasetCommands::Impl::find_tokenizer(
    const std::string& name, const std::string& sha256) {
  std::unique_ptr<tokenizers::Tokenizer> bytes = tokenizers::make_byte_tokenizer();
  if (bytes->sha256() == sha256) return bytes;
  std::error_code code;
  if (!fs::is_regular_file(name, code)) return nullptr;
  Result<std::unique_ptr<tokenizers::Tokenizer>> loaded = load_tokenizer(name);
  if (!loaded || (*loaded)->sha256() != sha256) return nullptr;
  return std::move(*loaded);
}

/// The first ids of a shard, decoded where possible.
Result<Json> DatasetCommands::Impl::first_of(const TokenShardReader& shard,
                                             const std::string& tokenizer_name) {
  std::vector<std::uint32_t> ids(std::min(first_tokens, shard.info().token_count));
  TAILOR_RETURN_IF_ERROR(shard.read(0, ids));
  Json json = {{"ids", ids}, {"text", nullptr}};
  std::unique_ptr<tokenizers::Tokenizer> decoder;
  if (!tokenizer.empty()) {
    TAILOR_ASSIGN_OR_RETURN(decoder, load_tokenizer(tokenizer));
    if (decoder->sha256() != shard.info().tokenizer_sha256) {
      return error(
          Code::kInvalidArgument,
          fmt::format("{} was written with another tokenizer than {}", shard.path(), tokenizer));
    }
  } else {
    decoder = find_tokenizer(tokenizer_name, shard.info().tokenizer_sha256);
  }
  if (decoder != nullptr) {
    TAILOR_ASSIGN_OR_RETURN(json["text"], decoder->decode(ids));
  }
  return json;
}

/// A folder or a shard as JSON; a data set has "manifest", a shard has not.
Result<Json> DatasetCommands::Impl::describe(const std::string& path) {
  std::error_code code;
  if (!fs::is_directory(path, code)) {
    TAILOR_ASSIGN_OR_RETURN(const TokenShardReader shard, TokenShardReader::open(path));
    Json json = shard_json(path, shard.info());
    const fs::path parent = fs::path(path).parent_path();
    const auto beside = load_manifest(parent.empty() ? "." : parent.string());
    TAILOR_ASSIGN_OR_RETURN(json["first"], first_of(shard, beside ? beside->tokenizer.name : ""));
    return json;
  }
  TAILOR_ASSIGN_OR_RETURN(const DatasetManifest manifest, load_manifest(path));
  Json json = parse_ordered_json(format_manifest(manifest)).value();
  json.erase("check");
  json["path"] = path;
  json["first"] = nullptr;
  for (const ManifestSplit& split : manifest.splits) {
    if (split.shards.empty()) continue;
    TAILOR_ASSIGN_OR_RETURN(
        const TokenShardReader shard,
        TokenShardReader::open((fs::path(path) / split.shards.front().file).string()));
    TAILOR_ASSIGN_OR_RETURN(json["first"], first_of(shard, manifest.tokenizer.name));
    break;
  }
  return json;
}

Status DatasetCommands::Impl::run_show() {
  Json all = Json::array();
  for (const std::string& path : paths) {
    TAILOR_ASSIGN_OR_RETURN(Json described, describe(path));
    if (as_json) {
      all.push_back(std::move(described));
      continue;
    }
    print_line(stdout, path);
    if (described.contains("settings")) {
      TAILOR_ASSIGN_OR_RETURN(const DatasetManifest manifest, load_manifest(path));
      print_splits(path, manifest);
      const Totals totals = totals_of(manifest);
      print_line(stdout, fmt::format("tokenizer   {} (vocabulary {}, EOS {}, SHA-256 {})",
                                     escape_controls(manifest.tokenizer.name),
                                     manifest.tokenizer.vocab_size, manifest.tokenizer.eos_id,
                                     manifest.tokenizer.sha256));
      std::string settings;
      for (const auto& [name, value] : manifest.settings) {
        settings += fmt::format("{}{} {}", settings.empty() ? "" : ", ", name, value);
      }
      print_line(stdout, "settings    " + escape_controls(settings));
      print_line(stdout,
                 fmt::format("sources     {} files; empty documents {}; skipped {} files, {} lines",
                             grouped(manifest.sources.size()), grouped(totals.empty_documents),
                             grouped(totals.skipped_files), grouped(totals.skipped_lines)));
    } else {
      const auto count = [&](const char* key) { return grouped(described[key]); };
      print_line(stdout,
                 fmt::format("  tokens {}  documents {}  text bytes {}  bytes/token {:.3f}\n"
                             "  vocabulary {}  EOS {}  largest id {}  bytes an id {}\n"
                             "  tokenizer {}\n  SHA-256   {} (checked by verify)",
                             count("tokens"), count("documents"), count("bytes"),
                             described["bytes_per_token"].get<double>(),
                             described["vocab_size"].dump(), described["eos_id"].dump(),
                             described["max_id"].dump(), described["token_bytes"].dump(),
                             described["tokenizer_sha256"].get<std::string>(),
                             described["sha256"].get<std::string>()));
    }
    const Json& first = described["first"];
    if (!first.is_object() || first["ids"].empty()) continue;
    std::string ids;
    for (const Json& id : first["ids"]) ids += " " + id.dump();
    print_line(stdout, "first ids  " + ids);
    print_line(stdout, first["text"].is_string()
                           ? "first text  " + escape_controls(first["text"].get<std::string>())
                           : "first text  (give --tokenizer to see it)");
  }
  // Decoded ids may end inside a character.
  if (as_json) print_line(stdout, all.dump(2, ' ', false, Json::error_handler_t::replace));
  return Status::ok();
}

DatasetCommands::DatasetCommands(CLI::App* app, LoadTokenizer load_tokenizer)
    : impl_(std::make_unique<Impl>()) {
  impl_->load_tokenizer = std::move(load_tokenizer);
  impl_->add_prepare(app);
  impl_->add_import(app);
  impl_->add_verify_and_show(app);
}

DatasetCommands::~DatasetCommands() = default;

std::optional<Status> DatasetCommands::run() {
  if (impl_->prepare->parsed()) return impl_->run_prepare();
  if (impl_->import->parsed()) return impl_->run_import();
  if (impl_->verify->parsed()) return impl_->run_verify();
  if (impl_->show->parsed()) return impl_->run_show();
  return std::nullopt;
}

}  // namespace tailor::data
