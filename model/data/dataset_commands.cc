#include "model/data/dataset_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "model/data/import.h"
#include "model/data/manifest.h"
#include "model/data/prepare.h"
#include "model/data/terminal.h"
#include "model/data/token_shard.h"
#include "model/tokenizers/tokenizer_parts.h"

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
  std::string first_empty;  // source with an empty document
};

Totals totals_of(const DatasetManifest& manifest) {
  Totals totals;
  for (const ManifestSplit& split : manifest.splits) {
    totals.documents += split.documents();
    totals.tokens += split.tokens();
    totals.bytes += split.text_bytes();
  }
  for (const ManifestSource& source : manifest.sources) {
    if (totals.empty_documents == 0) totals.first_empty = source.name;
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
  for (const std::string& note : summary.notes) print_line(stderr, "note: " + note);
  for (const std::string& sentence : manifest.warnings) {
    print_line(stderr, "warning: " + sentence);
  }
  if (!summary.passed_over.empty()) {
    print_line(stderr, "note: passed over: " + describe_passed_over(summary.passed_over));
  }
  if (totals.empty_documents > 0) {
    print_line(stderr,
               fmt::format("note: {} empty document{} (the first in {}) left out",
                           grouped(totals.empty_documents), totals.empty_documents == 1 ? "" : "s",
                           escape_controls(totals.first_empty)));
  }
  if (json) {
    Json passed_over = passed_over_json(summary.passed_over);
    Json tokenizer_files = Json::array();
    for (const ManifestTokenizerFile& file : manifest.tokenizer.files) {
      tokenizer_files.push_back((fs::path(folder) / file.file).string());
    }
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
                           {"passed_over", std::move(passed_over)},
                           {"notes", summary.notes},
                           {"warnings", manifest.warnings},
                           {"tokenizer_files", std::move(tokenizer_files)},
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

Result<int> window_log_of(const std::string& text) {
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t bytes, parse_bytes(text));
  const int log = static_cast<int>(std::bit_width(bytes)) - 1;
  if (!std::has_single_bit(bytes) || log < kZstdWindowLogMin || log > kZstdWindowLogMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("--zstd-window {} is no power of two from 1 KiB to 2 GiB", text));
  }
  return log;
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

Json passed_over_json(const std::vector<PassedOver>& passed_over) {
  Json json = Json::array();
  for (const PassedOver& passed : passed_over) {
    json.push_back({{"kind", passed.kind}, {"files", passed.files}, {"first", passed.first}});
  }
  return json;
}

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
  std::uint32_t id_bytes = 0;
  std::optional<std::int64_t> eos_id;
  std::string zstd_window = "2 GiB";
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

  std::unique_ptr<tokenizers::Tokenizer> find_tokenizer(const std::string& place,
                                                        const DatasetManifest& manifest);
  Result<Json> first_of(const TokenShardReader& shard, const std::string& place,
                        const std::optional<DatasetManifest>& manifest);
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
  prepare
      ->add_option("sources", paths,
                   "Files and folders of .txt .rst .md .jsonl .ndjson .json [.gz .zst]")
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
  prepare
      ->add_option("--zstd-window", zstd_window,
                   "Refuse .zst files that need more memory than this, a power of two up to 2 GiB")
      ->type_name("SIZE")
      ->capture_default_str();
  add_output(prepare);
}

void DatasetCommands::Impl::add_import(CLI::App* app) {
  import =
      app->add_subcommand("import", "Write a data set from the .bin files of nanoGPT or llm.c");
  import->add_option("files", paths, "Training files, in order")->required()->type_name("FILE");
  import->add_option("--validation", validation_inputs, "Validation files")->type_name("FILE");
  import->add_option("--format", format, "auto, nanogpt (ids alone, no header) or llmc")
      ->type_name("FORMAT")
      ->capture_default_str();
  import->add_option("--vocab-size", vocab_size, "Every id is below it (nanogpt: needed)")
      ->type_name("N");
  import
      ->add_option("--id-bytes", id_bytes,
                   "Bytes of an id without header: 2, 4, or 0 to tell by vocabulary and content")
      ->type_name("N")
      ->capture_default_str();
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
  TAILOR_ASSIGN_OR_RETURN(options.corpus.zstd_window_log, window_log_of(zstd_window));
  TAILOR_ASSIGN_OR_RETURN(options.tokenizer_parts,
                          tokenizers::read_tokenizer_parts(tokenizer, *loaded));
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
    TAILOR_ASSIGN_OR_RETURN(options.tokenizer_parts,
                            tokenizers::read_tokenizer_parts(tokenizer, *loaded));
  }
  options.folder = folder;
  TAILOR_ASSIGN_OR_RETURN(options.format, parse_bin_format(format));
  options.vocab_size = vocab_size;
  options.id_bytes = id_bytes;
  if (eos_id && *eos_id < 0) {
    return Status(Code::kInvalidArgument, fmt::format("--eos {} is no id", *eos_id));
  }
  options.eos_id = eos_id.value_or(-1);
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

/// The tokenizer of a data set: the one that its folder keeps, else the one that it names, if that
/// is still there and the same; else null.
std::unique_ptr<tokenizers::Tokenizer> DatasetCommands::Impl::find_tokenizer(
    const std::string& place, const DatasetManifest& manifest) {
  const std::string& sha256 = manifest.tokenizer.sha256;
  if (const Result<std::string> kept = kept_tokenizer(place, manifest); kept && !kept->empty()) {
    Result<std::unique_ptr<tokenizers::Tokenizer>> loaded = load_tokenizer(*kept);
    if (loaded) return std::move(*loaded);
  }
  std::error_code code;
  if (!fs::exists(manifest.tokenizer.name, code)) return nullptr;
  Result<std::unique_ptr<tokenizers::Tokenizer>> loaded = load_tokenizer(manifest.tokenizer.name);
  if (!loaded || (*loaded)->sha256() != sha256) return nullptr;
  return std::move(*loaded);
}

/// The first ids of a shard, decoded where possible.
Result<Json> DatasetCommands::Impl::first_of(const TokenShardReader& shard,
                                             const std::string& place,
                                             const std::optional<DatasetManifest>& manifest) {
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
  } else if (auto bytes = tokenizers::make_byte_tokenizer();
             bytes->sha256() == shard.info().tokenizer_sha256) {
    decoder = std::move(bytes);
  } else if (manifest && manifest->tokenizer.sha256 == shard.info().tokenizer_sha256) {
    decoder = find_tokenizer(place, *manifest);
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
    const std::string place = parent.empty() ? "." : parent.string();
    const auto beside = load_manifest(place);
    TAILOR_ASSIGN_OR_RETURN(json["first"],
                            first_of(shard, place, beside ? std::optional(*beside) : std::nullopt));
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
    TAILOR_ASSIGN_OR_RETURN(json["first"], first_of(shard, path, manifest));
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
      std::string kept;
      for (const ManifestTokenizerFile& file : manifest.tokenizer.files) {
        kept += fmt::format("{}{}", kept.empty() ? "" : ", ", file.file);
      }
      if (!kept.empty()) print_line(stdout, "            kept here as " + kept);
      std::string settings;
      for (const auto& [name, value] : manifest.settings) {
        settings += fmt::format("{}{} {}", settings.empty() ? "" : ", ", name, value);
      }
      print_line(stdout, "settings    " + escape_controls(settings));
      print_line(stdout,
                 fmt::format("sources     {} files; empty documents {}; skipped {} files, {} lines",
                             grouped(manifest.sources.size()), grouped(totals.empty_documents),
                             grouped(totals.skipped_files), grouped(totals.skipped_lines)));
      if (!manifest.passed_over.empty()) {
        print_line(stdout, "passed over " + describe_passed_over(manifest.passed_over));
      }
      for (const std::string& sentence : manifest.warnings) {
        print_line(stdout, "warning     " + escape_controls(sentence));
      }
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
