#include "model/data/prepare.h"

#include <fmt/format.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/rng.h"
#include "model/data/dataset_writer.h"

namespace tailor::data {
namespace {

constexpr std::size_t kRunReasonsMax = 100;

/// What one thread encodes at a time, and what is true once it is written.
struct Block {
  struct Part {
    std::size_t split;
    std::string text;
    bool begins_document;
    bool ends_document;
  };
  std::vector<Part> parts;
  std::uint64_t bytes = 0;
  CorpusPosition next;
  std::vector<ManifestSource> done;  // files that end in it
  std::uint64_t file_bytes = 0;      // of the sources on disk, up to here
};

/// A block's ids, by split.
struct Encoded {
  std::array<std::vector<std::uint32_t>, 2> ids;
  std::array<std::uint64_t, 2> bytes{};
  std::array<std::uint64_t, 2> documents{};
  CorpusPosition next;
  std::vector<ManifestSource> done;
  std::uint64_t file_bytes = 0;
};

Encoded encode_block(Block block, tokenizers::Tokenizer* tokenizer) {
  Encoded encoded;
  for (Block::Part& part : block.parts) {
    std::vector<std::uint32_t>& ids = encoded.ids[part.split];
    tokenizer->encode_part(part.text, {part.begins_document, part.ends_document}, &ids);
    encoded.bytes[part.split] += part.text.size();
    if (part.ends_document) {
      ids.push_back(tokenizer->eos_id());
      ++encoded.documents[part.split];
    }
    std::string().swap(part.text);
  }
  encoded.next = block.next;
  encoded.done = std::move(block.done);
  encoded.file_bytes = block.file_bytes;
  return encoded;
}

/// Threads that encode blocks, each with a tokenizer of its own. `submit` and `close` from one
/// thread, `take` from another.
class EncodingThreads {
 public:
  EncodingThreads(const tokenizers::Tokenizer& tokenizer, int count)
      : pending_max_(3 * static_cast<std::size_t>(count)) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, own = std::shared_ptr<tokenizers::Tokenizer>(tokenizer.clone())](
                                const std::stop_token& stop) { work(stop, own.get()); });
    }
  }

  /// Waits while reading is far ahead of writing. False: nobody wants more.
  bool submit(Block block) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return results_.size() < pending_max_ || abandoned_; });
    if (abandoned_) return false;
    Task task{std::move(block), {}};
    results_.push_back(task.promise.get_future());
    tasks_.push_back(std::move(task));
    lock.unlock();
    changed_.notify_all();
    return true;
  }

  /// No more blocks come; `status` says why when reading failed.
  void close(Status status) {
    {
      const std::lock_guard lock(mutex_);
      closed_ = std::move(status);
    }
    changed_.notify_all();
  }

  /// Makes `submit` return false from now on.
  void abandon() {
    {
      const std::lock_guard lock(mutex_);
      abandoned_ = true;
    }
    changed_.notify_all();
  }

  /// The oldest block, in the order of `submit`; nullopt after the last. Errors: what `close` got,
  /// after the blocks before it.
  Result<std::optional<Encoded>> take() {
    std::future<Encoded> oldest;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !results_.empty() || closed_.has_value(); });
      if (results_.empty()) {
        if (!*closed_) return error(*closed_);
        return std::optional<Encoded>();
      }
      oldest = std::move(results_.front());
    }
    std::optional<Encoded> encoded = oldest.get();
    {
      const std::lock_guard lock(mutex_);
      results_.pop_front();  // only now: what is being encoded counts as pending
    }
    changed_.notify_all();
    return encoded;
  }

 private:
  struct Task {
    Block block;
    std::promise<Encoded> promise;
  };

  void work(const std::stop_token& stop, tokenizers::Tokenizer* tokenizer) {
    for (;;) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return !tasks_.empty(); })) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task.promise.set_value(encode_block(std::move(task.block), tokenizer));
    }
  }

  const std::size_t pending_max_;
  std::mutex mutex_;  // guards all below but threads_
  std::condition_variable_any changed_;
  std::deque<Task> tasks_;
  std::deque<std::future<Encoded>> results_;
  std::optional<Status> closed_;
  bool abandoned_ = false;
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

/// The reading thread: corpus to blocks.
class Reader {
 public:
  Reader(const std::vector<CorpusFile>& files, std::size_t training_files,
         const PrepareOptions& options, const CorpusPosition& start, EncodingThreads* threads)
      : files_(files),
        training_files_(training_files),
        options_(options),
        start_(start),
        threads_(threads) {
    for (std::uint64_t i = 0; i < start.file; ++i) bytes_before_ += files[i].bytes;
    block_.next = start;
  }

  /// Reads to the end or to a failure, and closes the threads with it.
  void run() {
    const Result<CorpusSummary> read = read_corpus(
        files_, options_.corpus, [this](CorpusPiece&& piece) { return take(std::move(piece)); },
        start_, [this](CorpusFileSummary&& done) { return take_end(std::move(done)); });
    Status status = status_of(read);
    if (status) status = submit();
    threads_->close(std::move(status));
  }

  /// Why something was skipped. REQUIRES: run has returned.
  std::vector<Status> take_reasons() { return std::move(reasons_); }

 private:
  Status take(CorpusPiece&& piece) {
    block_.bytes += piece.text.size();
    block_.next = piece.next;
    block_.file_bytes = bytes_before_ + piece.file_bytes;
    const std::size_t split = split_of(piece);
    block_.parts.push_back(
        {split, std::move(piece.text), piece.begins_document, piece.ends_document});
    return block_.bytes >= options_.corpus.piece_bytes ? submit() : Status::ok();
  }

  std::size_t split_of(const CorpusPiece& piece) const {
    if (training_files_ < files_.size()) {
      return piece.next.file < training_files_ ? kTrain : kValidation;
    }
    return is_validation_document(piece.document, options_.validation_fraction) ? kValidation
                                                                                : kTrain;
  }

  Status take_end(CorpusFileSummary&& done) {
    bytes_before_ += done.file_bytes;
    block_.file_bytes = bytes_before_;
    block_.next = {.file = done.file + 1};
    block_.done.push_back({utf8_name(files_[done.file].name), done.file_bytes,
                           std::move(done.sha256), done.documents, done.empty_documents,
                           done.text_bytes, done.skipped_lines, done.skipped});
    for (Status& reason : done.reasons) {
      if (reasons_.size() < kRunReasonsMax) reasons_.push_back(std::move(reason));
    }
    return Status::ok();
  }

  Status submit() {
    const CorpusPosition next = block_.next;
    const bool wanted = threads_->submit(std::exchange(block_, {}));
    block_.next = next;
    block_.file_bytes = bytes_before_;
    return wanted ? Status::ok() : Status(Code::kCancelled, "reading was given up");
  }

  const std::vector<CorpusFile>& files_;
  const std::size_t training_files_;
  const PrepareOptions& options_;
  const CorpusPosition start_;
  EncodingThreads* threads_;
  Block block_;
  std::uint64_t bytes_before_ = 0;
  std::vector<Status> reasons_;
};

Status check_options(const PrepareOptions& options) {
  const auto bad = [](std::string message) {
    return Status(Code::kInvalidArgument, std::move(message));
  };
  if (options.folder.empty()) return bad("no output folder is named");
  if (!(options.validation_fraction >= 0) || options.validation_fraction >= 1) {
    return bad(
        fmt::format("the validation fraction {} is not in [0, 1)", options.validation_fraction));
  }
  if (options.shard_tokens < 1) return bad("a shard must hold at least one token");
  if (options.corpus.text_key.empty()) return bad("the text key is empty");
  if (options.threads < 1) {
    return bad(fmt::format("{} encoding threads; at least 1", options.threads));
  }
  return Status::ok();
}

/// Everything that the result depends on beside tokenizer and files.
std::map<std::string, std::string> settings_of(const PrepareOptions& options,
                                               std::size_t validation_files) {
  std::map<std::string, std::string> settings = {
      {"made_by", "prepare"},
      {"shard_tokens", fmt::format("{}", options.shard_tokens)},
      {"text_key", options.corpus.text_key},
      {"skip_bad", options.corpus.skip_bad ? "yes" : "no"},
      {"piece_bytes", fmt::format("{}", options.corpus.piece_bytes)},
  };
  if (options.corpus.zstd_window_log != kZstdWindowLogMax) {
    settings["zstd_window_log"] = fmt::format("{}", options.corpus.zstd_window_log);
  }
  if (options.validation_inputs.empty()) {
    settings["validation_fraction"] = fmt::format("{}", options.validation_fraction);
  } else {
    settings["validation_files"] = fmt::format("{}", validation_files);
  }
  return settings;
}

/// Takes blocks from the threads and writes them, saving now and then.
Status write_blocks(EncodingThreads* threads, DatasetWriter* writer, const PrepareOptions& options,
                    DataProgress progress) {
  double saved_s = steady_seconds();
  CorpusPosition next = writer->position();
  const auto save = [&]() -> Status {
    TAILOR_RETURN_IF_ERROR(writer->save(next));
    saved_s = steady_seconds();
    return Status::ok();
  };
  for (;;) {
    Result<std::optional<Encoded>> taken = threads->take();
    if (!taken) {
      // What is whole is kept: the run that goes on begins at the bad file.
      TAILOR_RETURN_IF_ERROR(save());
      return taken.error();
    }
    if (!taken->has_value()) return Status::ok();
    Encoded& encoded = **taken;
    for (const std::size_t split : {kTrain, kValidation}) {
      TAILOR_RETURN_IF_ERROR(writer->append(split, encoded.ids[split], encoded.bytes[split],
                                            encoded.documents[split]));
    }
    for (ManifestSource& source : encoded.done) writer->source_done(std::move(source));
    next = encoded.next;
    if (options.progress) {
      progress.bytes = encoded.file_bytes;
      progress.documents = writer->documents(kTrain) + writer->documents(kValidation);
      progress.tokens = writer->tokens(kTrain) + writer->tokens(kValidation);
      options.progress(progress);
    }
    if (writer->has_new_shard() || steady_seconds() - saved_s >= options.save_every_s) {
      TAILOR_RETURN_IF_ERROR(save());
    }
  }
}

}  // namespace

bool is_validation_document(std::string_view name, double fraction) {
  const std::uint64_t hash = stable_hash(name, stable_hash("validation split"));
  return static_cast<double>(hash >> 11) * 0x1.0p-53 < fraction;
}

DataProgress progress_at(const DatasetWriter& writer, const std::vector<CorpusFile>& files) {
  DataProgress progress;
  for (const CorpusFile& file : files) progress.bytes_total += file.bytes;
  for (const ManifestSource& source : writer.sources()) progress.resumed_bytes += source.bytes;
  progress.resumed_tokens = writer.tokens(kTrain) + writer.tokens(kValidation);
  return progress;
}

Result<PrepareSummary> prepare_dataset(const std::vector<std::string>& inputs,
                                       const tokenizers::Tokenizer& tokenizer,
                                       const PrepareOptions& wanted) {
  TAILOR_RETURN_IF_ERROR(check_options(wanted));
  // The reading thread cuts long documents with a tokenizer of its own.
  PrepareOptions options = wanted;
  options.corpus.last_cut = [own = std::shared_ptr<tokenizers::Tokenizer>(tokenizer.clone())](
                                std::string_view text) { return own->last_cut(text); };
  std::vector<std::string> all = inputs;
  all.insert(all.end(), options.validation_inputs.begin(), options.validation_inputs.end());
  TAILOR_ASSIGN_OR_RETURN(const CorpusListing training, list_corpus(inputs, options.folder));
  TAILOR_ASSIGN_OR_RETURN(const CorpusListing listing, list_corpus(all, options.folder));
  const std::vector<CorpusFile>& files = listing.files;

  DatasetRequest request;
  request.folder = options.folder;
  request.tokenizer = {utf8_name(options.tokenizer_name),
                       tokenizer.sha256(),
                       tokenizer.vocab_size(),
                       tokenizer.eos_id(),
                       tokenizer.bos_id(),
                       {}};
  request.tokenizer_parts = options.tokenizer_parts;
  request.settings = settings_of(options, files.size() - training.files.size());
  request.files = files;
  request.passed_over = listing.passed_over;
  request.shard_tokens = options.shard_tokens;
  request.overwrite = options.overwrite;
  TAILOR_ASSIGN_OR_RETURN(DatasetWriter writer, DatasetWriter::open(std::move(request)));

  PrepareSummary summary;
  summary.passed_over = listing.passed_over;
  if (writer.finished()) {
    summary.manifest = *writer.finished();
    summary.already_done = true;
    return summary;
  }
  DataProgress progress = progress_at(writer, files);
  summary.resumed_tokens = progress.resumed_tokens;

  Status written;
  {
    EncodingThreads threads(tokenizer, options.threads);
    Reader reader(files, training.files.size(), options, writer.position(), &threads);
    {
      const std::jthread reading([&reader] { reader.run(); });
      written = write_blocks(&threads, &writer, options, progress);
      threads.abandon();
    }
    summary.reasons = reader.take_reasons();
  }
  if (!written) {
    if (writer.tokens(kTrain) + writer.tokens(kValidation) == 0) writer.discard();
    return error(written);
  }

  const bool wants_validation =
      options.validation_fraction > 0 || !options.validation_inputs.empty();
  const std::uint64_t train_documents = writer.documents(kTrain);
  const std::uint64_t validation_documents = writer.documents(kValidation);
  if (train_documents == 0 || (wants_validation && validation_documents == 0)) {
    writer.discard();
    return error(
        Code::kInvalidArgument,
        fmt::format("of {} documents {} fell to training and {} to validation: change "
                    "--validation-fraction (0 for none), or name the validation text with "
                    "--validation",
                    train_documents + validation_documents, train_documents, validation_documents));
  }
  TAILOR_ASSIGN_OR_RETURN(summary.manifest, writer.finish());
  return summary;
}

}  // namespace tailor::data
