#include "model/data/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "model/data/byte_source.h"
#include "model/data/dataset_writer.h"

namespace tailor::data {
namespace {

constexpr std::uint64_t kBlockTokens = 1 << 20;

struct Inputs {
  std::vector<BinFile> files;
  std::vector<CorpusFile> names;
  std::size_t training = 0;  // the first so many; the others are for validation
};

Result<Inputs> open_inputs(const std::vector<std::string>& training, const ImportOptions& options,
                           std::uint32_t id_bytes) {
  if (training.empty()) return error(Code::kInvalidArgument, "no file to import is named");
  Inputs inputs;
  std::set<std::string> seen;
  std::vector<std::string> all = training;
  all.insert(all.end(), options.validation_inputs.begin(), options.validation_inputs.end());
  for (const std::string& path : all) {
    TAILOR_ASSIGN_OR_RETURN(BinFile file, BinFile::open(path, options.format, id_bytes));
    std::error_code code;
    if (!seen.insert(std::filesystem::canonical(path, code).string()).second) {
      return error(Code::kInvalidArgument,
                   fmt::format("{} is given twice: its ids would count twice; name it once", path));
    }
    const BinInfo& info = file.info();
    inputs.names.push_back({path, std::filesystem::path(path).filename().string(),
                            info.header_bytes + info.token_count * info.token_bytes});
    inputs.files.push_back(std::move(file));
    const BinInfo& first = inputs.files.front().info();
    if (first.format != info.format || first.token_bytes != info.token_bytes) {
      return error(Code::kInvalidArgument,
                   fmt::format("{} and {} hold ids of different kinds: import them apart",
                               inputs.files.front().path(), path));
    }
  }
  inputs.training = training.size();
  return inputs;
}

/// The beginning of a file as 16-bit numbers, with which guesses at its ids are tried.
Result<std::vector<std::uint16_t>> halves_of(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const auto source, open_plain_source(path));
  std::vector<std::uint16_t> halves(kBlockTokens);
  const std::size_t room = halves.size() * sizeof halves[0];
  std::size_t size = 0;
  for (std::size_t got = 1; got > 0 && size < room; size += got) {
    TAILOR_ASSIGN_OR_RETURN(
        got, source->read(reinterpret_cast<char*>(halves.data()) + size, room - size));
  }
  halves.resize(size / sizeof halves[0]);
  return halves;
}

/// Bytes of an id that `halves` can only have: 8, 4, or 0 when they may well be ids of 2.
/// Vocabularies have fewer than 2^20 ids, so the upper half of a longer id is small, which every
/// second of many ids of 2 bytes never is.
std::uint32_t wider_ids(const std::vector<std::uint16_t>& halves) {
  constexpr std::size_t kHalvesMin = 64;
  constexpr std::uint16_t kUpperMax = 15;
  const std::size_t size = halves.size() / 4 * 4;
  if (size < kHalvesMin) return 0;
  std::uint16_t largest[4] = {};
  for (std::size_t i = 0; i < size; ++i) largest[i % 4] = std::max(largest[i % 4], halves[i]);
  const std::uint16_t lower = std::max(largest[0], largest[2]);
  const std::uint16_t upper = std::max(largest[1], largest[3]);
  if (largest[2] == 0 && largest[3] == 0 && largest[1] <= kUpperMax && largest[0] > 0) return 8;
  return upper <= kUpperMax && lower > (upper == 0 ? 0 : kUpperMax) ? 4 : 0;
}

/// How else `halves` could be read so that all are below `vocab_size`, for people; "" if in no way.
std::string other_readings(const std::vector<std::uint16_t>& halves, std::uint32_t id_bytes,
                           std::uint32_t vocab_size) {
  const auto turned = [](std::uint16_t half) { return __builtin_bswap16(half); };
  std::string ways;
  const auto add = [&](std::uint32_t bytes, bool big_endian, const auto& id_at) {
    if (bytes == id_bytes && !big_endian) return;
    const std::size_t halves_an_id = bytes / 2;
    const std::size_t count = halves.size() / halves_an_id;
    for (std::size_t i = 0; i < count; ++i) {
      if (id_at(i * halves_an_id) >= vocab_size) return;
    }
    ways += fmt::format("{}{}-bit{} ids{}", ways.empty() ? "" : " or ", bytes * 8,
                        big_endian ? " big-endian" : "",
                        big_endian ? "" : fmt::format(" (--id-bytes {})", bytes));
  };
  if (wider_ids(halves) == 0) {  // halves of wider ids always "fit"
    add(2, false, [&](std::size_t i) { return std::uint32_t{halves[i]}; });
    add(2, true, [&](std::size_t i) { return std::uint32_t{turned(halves[i])}; });
  }
  add(4, false, [&](std::size_t i) { return halves[i] | std::uint32_t{halves[i + 1]} << 16; });
  add(4, true, [&](std::size_t i) {
    return std::uint32_t{turned(halves[i])} << 16 | turned(halves[i + 1]);
  });
  if (ways.empty()) return "";
  return fmt::format("; as {} those at the beginning of the file would all be inside", ways);
}

constexpr std::uint32_t kVocabularyOfTwoBytes = 65'536;

/// Bytes of an id in files without a header; `notes` says what was found out.
Result<std::uint32_t> id_bytes_of(const Inputs& inputs, const ImportOptions& options,
                                  std::uint32_t vocab_size, std::vector<std::string>* notes) {
  const bool is_large = vocab_size > kVocabularyOfTwoBytes;
  if (options.id_bytes == 2 && is_large) {
    return error(
        Code::kInvalidArgument,
        fmt::format("ids of 2 bytes are below 65,536, so {} cannot hold ids of a vocabulary of "
                    "{}: give --id-bytes 4, or the vocabulary that they are of",
                    inputs.files.front().path(), vocab_size));
  }
  std::uint32_t found = is_large ? 4 : 0;
  for (const BinFile& file : inputs.files) {
    TAILOR_ASSIGN_OR_RETURN(const std::vector<std::uint16_t> halves, halves_of(file.path()));
    const std::uint32_t wider = wider_ids(halves);
    if (wider == 8) {
      return error(
          Code::kUnimplemented,
          fmt::format("{} holds ids of 8 bytes by the look of it (three of four 16-bit numbers "
                      "are 0 or nearly): write them as uint32 with numpy's astype and tofile",
                      file.path()));
    }
    if (options.id_bytes == 2 && wider == 4) {
      notes->push_back(
          fmt::format("{}: every second id is below 16, as in files with ids of 4 bytes; "
                      "they are kept as ids of 2 bytes, as --id-bytes says",
                      file.path()));
    }
    if (options.id_bytes > 0 || is_large) continue;
    const std::uint32_t here = wider == 4 ? 4 : 2;
    if (found != 0 && found != here) {
      return error(
          Code::kInvalidArgument,
          fmt::format("{} holds ids of {} bytes by the look of it and {} of {}: import them "
                      "apart, or say what both hold with --id-bytes",
                      inputs.files.front().path(), found, file.path(), here));
    }
    found = here;
  }
  if (options.id_bytes > 0) return options.id_bytes;
  if (is_large) {
    notes->push_back(
        fmt::format("the vocabulary of {} does not fit into ids of 2 bytes: read as ids "
                    "of 4",
                    vocab_size));
  } else if (found == 4) {
    notes->push_back(
        fmt::format("every second 16-bit number of {} is 0 or nearly: read as ids of 4 "
                    "bytes (--id-bytes 2 insists on the other)",
                    inputs.files.front().path()));
  }
  return found;
}

/// Vocabulary, EOS and hash of the ids.
Result<TokenizerIdentity> identity_of(const Inputs& inputs, const ImportOptions& options) {
  const BinInfo& info = inputs.files.front().info();
  TokenizerIdentity identity;
  identity.vocab_size = info.vocab_size;
  std::int64_t eos_id = info.vocab_size > 0 ? std::int64_t{info.eos_id} : -1;
  if (options.tokenizer != nullptr) {
    identity.vocab_size = options.tokenizer->vocab_size();
    eos_id = options.tokenizer->eos_id();
  }
  if (options.vocab_size > 0) identity.vocab_size = options.vocab_size;
  if (options.eos_id >= 0) eos_id = options.eos_id;
  if (identity.vocab_size == 0 || eos_id < 0) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} has no header that says which ids it holds: give --vocab-size and "
                             "--eos (GPT-2: 50257 and 50256)",
                             inputs.files.front().path()));
  }
  if (eos_id >= std::int64_t{identity.vocab_size}) {
    return error(Code::kInvalidArgument, fmt::format("--eos {} is not below the vocabulary {}",
                                                     eos_id, identity.vocab_size));
  }
  identity.eos_id = static_cast<std::uint32_t>(eos_id);
  if (options.tokenizer != nullptr) {
    identity.name = utf8_name(options.tokenizer_name);
    identity.sha256 = options.tokenizer->sha256();
    identity.bos_id = options.tokenizer->bos_id();
  } else {
    identity.name =
        fmt::format("imported ids, vocabulary {}, EOS {}", identity.vocab_size, identity.eos_id);
    identity.sha256 = unknown_tokenizer_sha256(identity.vocab_size, identity.eos_id);
  }
  return identity;
}

/// What a file of llm.c says of its ids against what it is said to hold.
Status check_header(const BinFile& file, const ImportOptions& options, std::uint32_t vocab_size) {
  const BinInfo& info = file.info();
  if (options.id_bytes > 0 && options.id_bytes != info.token_bytes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} says in its header that its ids have {} bytes, and --id-bytes {}",
                              file.path(), info.token_bytes, options.id_bytes));
  }
  if (info.token_bytes == 2 && vocab_size > kVocabularyOfTwoBytes) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} says in its header that its ids are GPT-2's and have 2 bytes, which "
                    "cannot hold a vocabulary of {}: leave --vocab-size and --tokenizer out, "
                    "or name GPT-2's",
                    file.path(), vocab_size));
  }
  return Status::ok();
}

/// Copies one file from `start` on. `split` gets it.
class FileImport {
 public:
  FileImport(const BinFile& file, const TokenizerIdentity& identity,
             const tokenizers::Tokenizer* tokenizer, DatasetWriter* writer)
      : file_(file), identity_(identity), tokenizer_(tokenizer), writer_(writer) {}

  /// Appends ids from position `at` on, up to a block; returns how many.
  Result<std::uint64_t> copy_block(std::size_t split, std::uint64_t at) {
    ids_.resize(std::min(kBlockTokens, file_.info().token_count - at));
    TAILOR_RETURN_IF_ERROR(file_.read(at, ids_));
    std::uint64_t documents = 0;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (ids_[i] >= identity_.vocab_size) {
        const auto halves = halves_of(file_.path());
        const bool has_header = file_.info().header_bytes > 0;
        return error(
            Code::kInvalidArgument,
            fmt::format(
                "{}: token {} is id {}, outside the vocabulary of {}: is --vocab-size right, "
                "and the format?{}",
                file_.path(), at + i, ids_[i], identity_.vocab_size,
                halves && !has_header
                    ? other_readings(*halves, file_.info().token_bytes, identity_.vocab_size)
                    : ""));
      }
      if (ids_[i] == identity_.eos_id) ++documents;
      if (ids_[i] == swapped_eos_id_) ++swapped_eos_;
    }
    std::uint64_t text_bytes = 0;
    if (tokenizer_ != nullptr) {
      TAILOR_ASSIGN_OR_RETURN(const std::string text, tokenizer_->decode(ids_));
      text_bytes = text.size();
    }
    TAILOR_RETURN_IF_ERROR(writer_->append(split, ids_, text_bytes, documents));
    documents_ += documents;
    text_bytes_ += text_bytes;
    return ids_.size();
  }

  std::uint64_t documents() const { return documents_; }
  /// How often this run met EOS with its bytes the other way round.
  std::uint64_t swapped_eos() const { return swapped_eos_; }
  std::uint64_t text_bytes() const { return text_bytes_; }
  void go_on(const CorpusPosition& position) {
    documents_ = position.documents;
    text_bytes_ = position.text_bytes;
  }

 private:
  const BinFile& file_;
  const TokenizerIdentity& identity_;
  const tokenizers::Tokenizer* tokenizer_;
  DatasetWriter* writer_;
  const std::uint32_t swapped_eos_id_ =
      file_.info().token_bytes == 2
          ? __builtin_bswap16(static_cast<std::uint16_t>(identity_.eos_id))
          : __builtin_bswap32(identity_.eos_id);
  std::uint64_t swapped_eos_ = 0;
  std::vector<std::uint32_t> ids_;
  std::uint64_t documents_ = 0;
  std::uint64_t text_bytes_ = 0;
};

Status copy_all(const Inputs& inputs, const TokenizerIdentity& identity,
                const ImportOptions& options, DataProgress progress, DatasetWriter* writer,
                std::uint64_t* swapped_eos) {
  double saved_s = steady_seconds();
  std::uint64_t bytes_before = 0;
  CorpusPosition next = writer->position();
  for (std::uint64_t i = 0; i < next.file; ++i) bytes_before += inputs.names[i].bytes;
  while (next.file < inputs.files.size()) {
    const BinFile& file = inputs.files[next.file];
    FileImport copy(file, identity, options.tokenizer, writer);
    copy.go_on(next);
    const std::size_t split = next.file < inputs.training ? kTrain : kValidation;
    while (next.offset < file.info().token_count) {
      TAILOR_ASSIGN_OR_RETURN(const std::uint64_t copied, copy.copy_block(split, next.offset));
      next.offset += copied;
      next.documents = copy.documents();
      next.text_bytes = copy.text_bytes();
      if (options.progress) {
        progress.bytes =
            bytes_before + file.info().header_bytes + next.offset * file.info().token_bytes;
        progress.documents = writer->documents(kTrain) + writer->documents(kValidation);
        progress.tokens = writer->tokens(kTrain) + writer->tokens(kValidation);
        options.progress(progress);
      }
      if (writer->has_new_shard() || steady_seconds() - saved_s >= options.save_every_s) {
        TAILOR_RETURN_IF_ERROR(writer->save(next));
        saved_s = steady_seconds();
      }
    }
    *swapped_eos += copy.swapped_eos();
    const CorpusFile& name = inputs.names[next.file];
    TAILOR_ASSIGN_OR_RETURN(std::string sha256, sha256_file(name.path));
    writer->source_done({utf8_name(name.name), name.bytes, std::move(sha256), next.documents, 0,
                         next.text_bytes, 0, false});
    bytes_before += name.bytes;
    next = {.file = next.file + 1};
  }
  return Status::ok();
}

/// What is odd about the ids of a split, all of which `writer` has.
void warn_of_missing_eos(const Inputs& inputs, const TokenizerIdentity& identity,
                         const ImportOptions& options, std::uint64_t swapped_eos,
                         DatasetWriter* writer) {
  const BinInfo& info = inputs.files.front().info();
  for (const std::size_t split : {kTrain, kValidation}) {
    if (writer->tokens(split) == 0 || writer->documents(split) > 0) continue;
    std::string sentence =
        fmt::format("none of the {} {} ids is the EOS {}: documents are not told apart",
                    writer->tokens(split), kSplitNames[split], identity.eos_id);
    if (info.vocab_size > 0 && info.eos_id != identity.eos_id) {
      sentence += fmt::format("; such files of llm.c put {} between them: import with --eos {}",
                              info.eos_id, info.eos_id);
    } else if (swapped_eos > 0) {
      sentence += "; with its bytes the other way round it is there: is the file big-endian?";
    } else {
      sentence += "; is --eos right, and the format?";
    }
    writer->warn(std::move(sentence));
  }
  if (options.tokenizer != nullptr && identity.eos_id != options.tokenizer->eos_id()) {
    writer->warn(fmt::format("the EOS {} is not that of the tokenizer, {}", identity.eos_id,
                             options.tokenizer->eos_id()));
  }
}

}  // namespace

Result<PrepareSummary> import_dataset(const std::vector<std::string>& training,
                                      const ImportOptions& options) {
  if (options.folder.empty()) return error(Code::kInvalidArgument, "no output folder is named");
  if (options.shard_tokens < 1) {
    return error(Code::kInvalidArgument, "a shard must hold at least one token");
  }
  if (options.id_bytes != 0 && options.id_bytes != 2 && options.id_bytes != 4) {
    return error(Code::kInvalidArgument,
                 fmt::format("--id-bytes {}: ids have 2 bytes or 4", options.id_bytes));
  }
  PrepareSummary summary;
  TAILOR_ASSIGN_OR_RETURN(Inputs inputs, open_inputs(training, options, 2));
  TAILOR_ASSIGN_OR_RETURN(const TokenizerIdentity identity, identity_of(inputs, options));
  if (inputs.files.front().info().header_bytes == 0) {
    TAILOR_ASSIGN_OR_RETURN(const std::uint32_t id_bytes,
                            id_bytes_of(inputs, options, identity.vocab_size, &summary.notes));
    if (id_bytes == 4) {
      TAILOR_ASSIGN_OR_RETURN(inputs, open_inputs(training, options, id_bytes));
    }
  } else {
    TAILOR_RETURN_IF_ERROR(check_header(inputs.files.front(), options, identity.vocab_size));
  }
  DatasetRequest request;
  request.folder = options.folder;
  request.tokenizer = identity;
  request.settings = {
      {"made_by", "import"},
      {"format", inputs.files.front().info().format == BinFormat::kLlmC ? "llmc" : "nanogpt"},
      {"shard_tokens", fmt::format("{}", options.shard_tokens)},
      {"validation_files", fmt::format("{}", inputs.files.size() - inputs.training)}};
  request.files = inputs.names;
  request.shard_tokens = options.shard_tokens;
  request.overwrite = options.overwrite;
  // Only then, so that data sets of older versions are still found to be the same.
  if (inputs.files.front().info().header_bytes == 0 &&
      inputs.files.front().info().token_bytes != 2) {
    request.settings["id_bytes"] = fmt::format("{}", inputs.files.front().info().token_bytes);
  }
  request.tokenizer_parts = options.tokenizer_parts;
  TAILOR_ASSIGN_OR_RETURN(DatasetWriter writer, DatasetWriter::open(std::move(request)));
  if (writer.finished()) {
    summary.manifest = *writer.finished();
    summary.already_done = true;
    return summary;
  }
  DataProgress progress = progress_at(writer, inputs.names);
  summary.resumed_tokens = progress.resumed_tokens;
  std::uint64_t swapped_eos = 0;
  if (Status copied = copy_all(inputs, identity, options, progress, &writer, &swapped_eos);
      !copied) {
    // Nothing to go on with: the next run may be asked for something else.
    if (writer.tokens(kTrain) + writer.tokens(kValidation) == 0) writer.discard();
    return error(std::move(copied));
  }
  warn_of_missing_eos(inputs, identity, options, swapped_eos, &writer);
  TAILOR_ASSIGN_OR_RETURN(summary.manifest, writer.finish());
  return summary;
}

}  // namespace tailor::data
