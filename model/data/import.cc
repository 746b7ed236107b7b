#include "model/data/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "model/data/dataset_writer.h"

namespace tailor::data {
namespace {

constexpr std::uint64_t kBlockTokens = 1 << 20;

struct Inputs {
  std::vector<BinFile> files;
  std::vector<CorpusFile> names;
  std::size_t training = 0;  // the first so many; the others are for validation
};

Result<Inputs> open_inputs(const std::vector<std::string>& training, const ImportOptions& options) {
  if (training.empty()) return error(Code::kInvalidArgument, "no file to import is named");
  Inputs inputs;
  std::set<std::string> seen;
  std::vector<std::string> all = training;
  all.insert(all.end(), options.validation_inputs.begin(), options.validation_inputs.end());
  for (const std::string& path : all) {
    TAILOR_ASSIGN_OR_RETURN(BinFile file, BinFile::open(path, options.format));
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
    identity.name = options.tokenizer_name;
    identity.sha256 = options.tokenizer->sha256();
  } else {
    identity.name =
        fmt::format("imported ids, vocabulary {}, EOS {}", identity.vocab_size, identity.eos_id);
    identity.sha256 = sha256_hex("tailor " + identity.name);
  }
  return identity;
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
        return error(Code::kInvalidArgument,
                     fmt::format("{}: token {} is id {}, outside the vocabulary of {}: is "
                                 "--vocab-size right, and the format?",
                                 file_.path(), at + i, ids_[i], identity_.vocab_size));
      }
      if (ids_[i] == identity_.eos_id) ++documents;
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
  std::vector<std::uint32_t> ids_;
  std::uint64_t documents_ = 0;
  std::uint64_t text_bytes_ = 0;
};

Status copy_all(const Inputs& inputs, const TokenizerIdentity& identity,
                const ImportOptions& options, DataProgress progress, DatasetWriter* writer) {
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
    const CorpusFile& name = inputs.names[next.file];
    TAILOR_ASSIGN_OR_RETURN(std::string sha256, sha256_file(name.path));
    writer->source_done({utf8_name(name.name), name.bytes, std::move(sha256), next.documents, 0,
                         next.text_bytes, 0, false});
    bytes_before += name.bytes;
    next = {.file = next.file + 1};
  }
  return Status::ok();
}

}  // namespace

Result<PrepareSummary> import_dataset(const std::vector<std::string>& training,
                                      const ImportOptions& options) {
  if (options.folder.empty()) return error(Code::kInvalidArgument, "no output folder is named");
  if (options.shard_tokens < 1) {
    return error(Code::kInvalidArgument, "a shard must hold at least one token");
  }
  TAILOR_ASSIGN_OR_RETURN(const Inputs inputs, open_inputs(training, options));
  TAILOR_ASSIGN_OR_RETURN(const TokenizerIdentity identity, identity_of(inputs, options));
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
  TAILOR_ASSIGN_OR_RETURN(DatasetWriter writer, DatasetWriter::open(std::move(request)));
  PrepareSummary summary;
  if (writer.finished()) {
    summary.manifest = *writer.finished();
    summary.already_done = true;
    return summary;
  }
  DataProgress progress = progress_at(writer, inputs.names);
  summary.resumed_tokens = progress.resumed_tokens;
  TAILOR_RETURN_IF_ERROR(copy_all(inputs, identity, options, progress, &writer));
  TAILOR_ASSIGN_OR_RETURN(summary.manifest, writer.finish());
  return summary;
}

}  // namespace tailor::data
