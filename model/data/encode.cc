#include "model/data/encode.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"

namespace tailor::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBlockTextBytes = 1 << 20;
constexpr std::array<std::string_view, 2> kSplitNames = {"train", "validation"};
constexpr std::size_t kTrain = 0;
constexpr std::size_t kValidation = 1;

/// What one thread encodes at a time.
struct Block {
  struct Part {
    std::size_t split;
    std::string text;
    bool ends_document;
  };
  std::vector<Part> parts;
  std::uint64_t bytes = 0;
};

/// A block's ids, by split.
struct Encoded {
  std::array<std::vector<std::uint32_t>, 2> ids;
  std::array<std::uint64_t, 2> bytes{};
  std::array<std::uint64_t, 2> documents{};
};

Encoded encode_block(const Block& block, Tokenizer* tokenizer) {
  Encoded encoded;
  for (const Block::Part& part : block.parts) {
    std::vector<std::uint32_t>& ids = encoded.ids[part.split];
    tokenizer->encode(part.text, &ids);
    encoded.bytes[part.split] += part.text.size();
    if (part.ends_document) {
      ids.push_back(tokenizer->eos_id());
      ++encoded.documents[part.split];
    }
  }
  return encoded;
}

/// Threads that encode blocks; each has a tokenizer of its own. `submit` and `take` from one
/// thread.
class EncodingThreads {
 public:
  EncodingThreads(const Tokenizer& tokenizer, int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, own = std::shared_ptr<Tokenizer>(tokenizer.clone())](
                                const std::stop_token& stop) { work(stop, own.get()); });
    }
  }

  void submit(Block block) {
    Task task{std::move(block), {}};
    results_.push_back(task.promise.get_future());
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }

  std::size_t pending() const { return results_.size(); }

  /// The oldest block that was submitted, waiting for it. REQUIRES: pending() > 0.
  Encoded take() {
    Encoded encoded = results_.front().get();
    results_.pop_front();
    return encoded;
  }

 private:
  struct Task {
    Block block;
    std::promise<Encoded> promise;
  };

  void work(const std::stop_token& stop, Tokenizer* tokenizer) {
    for (;;) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        if (!wake_.wait(lock, stop, [this] { return !tasks_.empty(); })) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task.promise.set_value(encode_block(task.block, tokenizer));
    }
  }

  std::mutex mutex_;  // guards: tasks_
  std::condition_variable_any wake_;
  std::deque<Task> tasks_;
  std::deque<std::future<Encoded>> results_;  // of the submitting thread
  std::vector<std::jthread> threads_;         // last: they end before what they use
};

/// Names of one split's shards under a prefix.
class ShardNames {
 public:
  ShardNames(const std::string& prefix, std::string_view split)
      : folder_(fs::path(prefix).parent_path()),
        stem_(fmt::format("{}-{}-", fs::path(prefix).filename().string(), split)) {}

  std::string path(std::size_t index) const {
    return (folder_ / fmt::format("{}{:05}.tokens", stem_, index)).string();
  }

  /// What is there already whose name ends in `suffix` (".tokens", ".tokens.new").
  Result<std::vector<std::string>> existing(std::string_view suffix) const {
    std::vector<std::string> found;
    std::error_code code;
    fs::directory_iterator entry(folder_.empty() ? fs::path(".") : folder_, code);
    for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
      const std::string name = entry->path().filename().string();
      const std::string_view middle =
          name.starts_with(stem_) && name.ends_with(suffix) &&
                  name.size() >= stem_.size() + suffix.size()
              ? std::string_view(name).substr(stem_.size(),
                                              name.size() - stem_.size() - suffix.size())
              : std::string_view();
      const bool digits = !middle.empty() && std::all_of(middle.begin(), middle.end(), [](char c) {
        return c >= '0' && c <= '9';
      });
      if (digits) found.push_back((folder_ / name).string());
    }
    if (code) return error(errno_status(code.value(), "list the folder of", path(0)));
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  fs::path folder_;
  std::string stem_;
};

/// Writes the shards of one split under names ending in ".new"; `publish` gives them their own.
class SplitWriter {
 public:
  SplitWriter(const Tokenizer& tokenizer, ShardNames names, std::uint64_t shard_tokens)
      : vocab_size_(tokenizer.vocab_size()),
        eos_id_(tokenizer.eos_id()),
        tokenizer_sha256_(tokenizer.sha256()),
        names_(std::move(names)),
        shard_tokens_(shard_tokens) {}

  ~SplitWriter() {
    std::error_code ignored;
    for (std::size_t i = 0; !published_ && i < split_.files.size(); ++i) {
      fs::remove(new_path(i), ignored);
    }
  }
  SplitWriter(const SplitWriter&) = delete;
  SplitWriter& operator=(const SplitWriter&) = delete;

  Status append(std::span<const std::uint32_t> ids, std::uint64_t bytes, std::uint64_t documents) {
    if (ids.empty()) return Status::ok();
    if (!writer_) {
      TAILOR_ASSIGN_OR_RETURN(
          writer_, TokenShardWriter::create(new_path(split_.files.size()), vocab_size_, eos_id_,
                                            tokenizer_sha256_));
    }
    TAILOR_RETURN_IF_ERROR(writer_->append(ids, bytes, documents));
    split_.tokens += ids.size();
    split_.bytes += bytes;
    split_.documents += documents;
    return writer_->token_count() >= shard_tokens_ ? finish_shard() : Status::ok();
  }

  Status finish_shard() {
    if (!writer_) return Status::ok();
    TAILOR_ASSIGN_OR_RETURN(TokenShardInfo info, writer_->finish());
    writer_.reset();
    split_.files.push_back({names_.path(split_.files.size()), std::move(info)});
    return Status::ok();
  }

  /// Removes the shards of an earlier run and renames ours. REQUIRES: finish_shard was called.
  Status publish() {
    TAILOR_ASSIGN_OR_RETURN(const std::vector<std::string> old, names_.existing(".tokens"));
    for (const std::string& path : old) {
      std::error_code code;
      if (!fs::remove(path, code) && code) return errno_status(code.value(), "remove", path);
    }
    Sha256 hash;
    for (std::size_t i = 0; i < split_.files.size(); ++i) {
      std::error_code code;
      fs::rename(new_path(i), split_.files[i].path, code);
      if (code) return errno_status(code.value(), "rename onto", split_.files[i].path);
      hash.update(split_.files[i].info.sha256);
    }
    published_ = true;
    if (!split_.files.empty()) split_.content_hash = hash.hex();
    const std::string folder = fs::path(names_.path(0)).parent_path().string();
    return sync_directory(folder.empty() ? "." : folder);
  }

  const EncodedSplit& split() const { return split_; }

 private:
  std::string new_path(std::size_t index) const { return names_.path(index) + ".new"; }

  std::uint32_t vocab_size_;
  std::uint32_t eos_id_;
  std::string tokenizer_sha256_;
  ShardNames names_;
  std::uint64_t shard_tokens_;
  std::optional<TokenShardWriter> writer_;
  EncodedSplit split_;
  bool published_ = false;
};

Status check_options(const EncodeOptions& options) {
  const auto bad = [](std::string message) {
    return Status(Code::kInvalidArgument, std::move(message));
  };
  if (options.prefix.empty() || options.prefix.ends_with('/')) {
    return bad(fmt::format("the output prefix \"{}\" has no file name; give one such as data/docs",
                           options.prefix));
  }
  if (!(options.validation_fraction >= 0) || options.validation_fraction >= 1) {
    return bad(
        fmt::format("the validation fraction {} is not in [0, 1)", options.validation_fraction));
  }
  if (options.shard_tokens < 1) return bad("a shard must hold at least one token");
  if (options.threads < 1) {
    return bad(fmt::format("{} encoding threads; at least 1", options.threads));
  }
  return Status::ok();
}

Status prepare_output(const EncodeOptions& options) {
  const fs::path folder = fs::path(options.prefix).parent_path();
  std::error_code code;
  if (!folder.empty()) fs::create_directories(folder, code);
  if (code) return errno_status(code.value(), "create the folder", folder.string());
  for (const std::string_view split : kSplitNames) {
    const ShardNames names(options.prefix, split);
    TAILOR_ASSIGN_OR_RETURN(const std::vector<std::string> old, names.existing(".tokens"));
    if (!old.empty() && !options.overwrite) {
      return Status(
          Code::kAlreadyExists,
          fmt::format("{} is there already: use another prefix, or --overwrite to replace the "
                      "shards of this one",
                      old.front()));
    }
    // Left by a run that was killed. (Of two live runs the second fails on the lock of a partial
    // file.)
    TAILOR_ASSIGN_OR_RETURN(const std::vector<std::string> stale, names.existing(".tokens.new"));
    for (const std::string& path : stale) fs::remove(path, code);
  }
  return Status::ok();
}

/// Reads corpora, hands blocks to the threads, writes what comes back in the order it was read.
class Pipeline {
 public:
  Pipeline(const Tokenizer& tokenizer, const EncodeOptions& options)
      : options_(options),
        train_(tokenizer, ShardNames(options.prefix, kSplitNames[kTrain]), options.shard_tokens),
        validation_(tokenizer, ShardNames(options.prefix, kSplitNames[kValidation]),
                    options.shard_tokens),
        threads_(tokenizer, options.threads) {}

  /// Streams `files`; `split_of` says where a document goes.
  Status run(const std::vector<CorpusFile>& files,
             const std::function<std::size_t(const std::string&)>& split_of) {
    TAILOR_ASSIGN_OR_RETURN(
        const CorpusSummary read, read_corpus(files, options_.corpus, [&](CorpusPiece&& piece) {
          block_.bytes += piece.text.size();
          block_.parts.push_back(
              {split_of(piece.document), std::move(piece.text), piece.ends_document});
          return block_.bytes >= kBlockTextBytes ? submit() : Status::ok();
        }));
    TAILOR_RETURN_IF_ERROR(submit());
    while (threads_.pending() > 0) TAILOR_RETURN_IF_ERROR(write_oldest());
    summary_.empty_documents += read.empty_documents;
    summary_.skipped.insert(summary_.skipped.end(), read.skipped.begin(), read.skipped.end());
    return Status::ok();
  }

  Result<EncodeSummary> finish() {
    TAILOR_RETURN_IF_ERROR(train_.finish_shard());
    TAILOR_RETURN_IF_ERROR(validation_.finish_shard());
    const bool wants_validation =
        options_.validation_fraction > 0 || !options_.validation_inputs.empty();
    const EncodedSplit& train = train_.split();
    const EncodedSplit& validation = validation_.split();
    if (train.documents == 0 || (wants_validation && validation.documents == 0)) {
      return error(
          Code::kInvalidArgument,
          fmt::format("of {} documents {} fell to training and {} to validation: change "
                      "--validation-fraction (0 for none), or name the validation text with "
                      "--validation",
                      train.documents + validation.documents, train.documents,
                      validation.documents));
    }
    TAILOR_RETURN_IF_ERROR(train_.publish());
    TAILOR_RETURN_IF_ERROR(validation_.publish());
    summary_.train = train_.split();
    summary_.validation = validation_.split();
    return std::move(summary_);
  }

 private:
  Status submit() {
    if (block_.parts.empty()) return Status::ok();
    threads_.submit(std::exchange(block_, {}));
    // Bounded: reading never runs far ahead of encoding.
    while (threads_.pending() > 3 * static_cast<std::size_t>(options_.threads)) {
      TAILOR_RETURN_IF_ERROR(write_oldest());
    }
    return Status::ok();
  }

  Status write_oldest() {
    const Encoded encoded = threads_.take();
    TAILOR_RETURN_IF_ERROR(
        train_.append(encoded.ids[kTrain], encoded.bytes[kTrain], encoded.documents[kTrain]));
    TAILOR_RETURN_IF_ERROR(validation_.append(encoded.ids[kValidation], encoded.bytes[kValidation],
                                              encoded.documents[kValidation]));
    if (options_.progress) {
      options_.progress(train_.split().bytes + validation_.split().bytes,
                        train_.split().tokens + validation_.split().tokens);
    }
    return Status::ok();
  }

  const EncodeOptions& options_;
  SplitWriter train_;
  SplitWriter validation_;
  Block block_;
  EncodeSummary summary_;
  EncodingThreads threads_;
};

}  // namespace

bool is_validation_document(std::string_view name, double fraction) {
  const std::uint64_t hash = stable_hash(name, stable_hash("validation split"));
  return static_cast<double>(hash >> 11) * 0x1.0p-53 < fraction;
}

Result<EncodeSummary> encode_corpus(const std::vector<std::string>& inputs,
                                    const Tokenizer& tokenizer, const EncodeOptions& options) {
  TAILOR_RETURN_IF_ERROR(check_options(options));
  TAILOR_ASSIGN_OR_RETURN(const std::vector<CorpusFile> files, list_corpus(inputs));
  std::vector<CorpusFile> validation_files;
  if (!options.validation_inputs.empty()) {
    TAILOR_ASSIGN_OR_RETURN(validation_files, list_corpus(options.validation_inputs));
  }
  TAILOR_RETURN_IF_ERROR(prepare_output(options));
  Pipeline pipeline(tokenizer, options);
  if (validation_files.empty()) {
    TAILOR_RETURN_IF_ERROR(pipeline.run(files, [&](const std::string& name) {
      return is_validation_document(name, options.validation_fraction) ? kValidation : kTrain;
    }));
  } else {
    TAILOR_RETURN_IF_ERROR(pipeline.run(files, [](const std::string&) { return kTrain; }));
    TAILOR_RETURN_IF_ERROR(
        pipeline.run(validation_files, [](const std::string&) { return kValidation; }));
  }
  return pipeline.finish();
}

}  // namespace tailor::data
