// DatasetWriter: a folder of token shards with its manifest, written so that a run that is killed
// at any point goes on where it was, with the same result to the byte.
//
// While it is being written, the folder holds
//   prepare.journal            a line with the request, then one for every save: where reading goes
//                              on and what each split holds; each line starts with a hash of itself
//   train-00000.tokens.new     a finished shard; ".new.partial" is the one being filled
// and at the end tokenizer.json.new and dataset.json.new are written, shards and tokenizer get
// their names, the journal goes, and the manifest gets its name. A data set that was there before
// is whole until then. One process writes a folder at a time (a lock that ends with the process).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/data/corpus.h"
#include "model/data/manifest.h"
#include "model/data/token_shard.h"
#include "model/tokenizers/tokenizer_parts.h"

namespace tailor::data {

/// What a data set is to be; two equal requests over unchanged sources give the same folder.
struct DatasetRequest {
  std::string folder;
  TokenizerIdentity tokenizer;
  std::map<std::string, std::string> settings;
  std::vector<CorpusFile> files;  ///< what it is made of, in order
  std::vector<PassedOver> passed_over;
  /// Files that the folder gets beside the shards (tokenizers::read_tokenizer_parts).
  std::vector<tokenizers::TokenizerPart> tokenizer_parts;
  std::uint64_t shard_tokens = 0;  ///< a shard ends at the first append after so many
  /// A finished data set, or an unfinished one of another request, may be replaced.
  bool overwrite = false;
};

/// Not thread-safe.
class DatasetWriter {
 public:
  /// Starts, or goes on where the last `save` of an equal request left it. Sources that changed
  /// since are found by size and time, then by hash, and reading goes back to before them.
  /// Errors: kAlreadyExists (another data set is there, or a tokenizer that is none of ours),
  /// kFailedPrecondition (an unfinished one of
  /// another request; another process is writing), kDataLoss (what was saved is gone or altered),
  /// the system's reason.
  static Result<DatasetWriter> open(DatasetRequest request);
  ~DatasetWriter();
  DatasetWriter(DatasetWriter&&) noexcept;
  DatasetWriter& operator=(DatasetWriter&&) noexcept;

  /// The data set, when it was there already and equal.
  const std::optional<DatasetManifest>& finished() const;
  /// Where reading goes on; all zero at the beginning.
  const CorpusPosition& position() const;
  /// What is known of the files before position().file.
  const std::vector<ManifestSource>& sources() const;

  /// Appends to a split (kTrain, kValidation). Errors: those of TokenShardWriter.
  Status append(std::size_t split, std::span<const std::uint32_t> ids, std::uint64_t text_bytes,
                std::uint64_t documents);
  /// The next file is wholly appended. Called once for each, in order.
  void source_done(ManifestSource source);
  /// True when a shard was finished since the last `save`: a good moment for the next.
  bool has_new_shard() const;
  /// Makes all of that durable; `next` is where reading goes on.
  Status save(const CorpusPosition& next);

  std::uint64_t tokens(std::size_t split) const;
  std::uint64_t documents(std::size_t split) const;
  std::uint64_t text_bytes(std::size_t split) const;

  /// What the manifest is to say that is odd about the ids.
  void warn(std::string sentence);
  /// Gives everything its name. REQUIRES: called once, last, with all sources done.
  Result<DatasetManifest> finish();
  /// Removes what was written.
  void discard();

 private:
  struct Impl;
  explicit DatasetWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::data
