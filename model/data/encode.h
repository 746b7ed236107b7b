// encode_corpus: a corpus through a tokenizer into token shards, on several threads, in order.
//
// Every document is followed by EOS. Which split a document belongs to depends on its name alone,
// so it does not change when documents are added. The shards of both splits appear together at the
// end, each whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/data/corpus.h"
#include "model/data/token_shard.h"
#include "model/data/tokenizer.h"

namespace tailor::data {

/// Share of documents held out unless told otherwise.
inline constexpr double kValidationFractionDefault = 0.01;

/// Whether the document `name` is held out when a share of `fraction` is; the same for ever. A
/// document held out at one fraction is held out at every larger one.
bool is_validation_document(std::string_view name, double fraction);

struct EncodeOptions {
  /// Shards are PREFIX-train-00000.tokens ... and PREFIX-validation-00000.tokens ...
  std::string prefix;
  /// In [0, 1): share of the documents of the corpus that goes to the validation shards; 0 writes
  /// none.
  double validation_fraction = kValidationFractionDefault;
  /// If not empty, the validation shards hold these files and folders, and the fraction is unused.
  std::vector<std::string> validation_inputs;
  std::uint64_t shard_tokens = 100'000'000;  ///< a shard ends at the first block after so many
  int threads = 1;                           ///< encoding threads beside the reading one
  bool overwrite = false;  ///< replace the shards of an earlier run under this prefix
  CorpusOptions corpus;
  /// Told now and then, on the calling thread, how many bytes of text and tokens are done.
  std::function<void(std::uint64_t bytes, std::uint64_t tokens)> progress;
};

struct EncodedFile {
  std::string path;
  TokenShardInfo info;
};

struct EncodedSplit {
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;  ///< EOS included
  std::uint64_t bytes = 0;   ///< of text
  std::vector<EncodedFile> files;
  std::string content_hash;  ///< Dataset::content_hash of the files; "" without files
};

struct EncodeSummary {
  EncodedSplit train;
  EncodedSplit validation;
  std::uint64_t empty_documents = 0;
  std::vector<Status> skipped;  ///< files passed over (CorpusOptions::skip_bad)
};

/// Errors: those of list_corpus and read_corpus; kInvalidArgument (options out of range, a split
/// without a document); kAlreadyExists (shards under this prefix and no `overwrite`); the system's
/// reason when writing fails. On failure no shard of an earlier run is touched.
Result<EncodeSummary> encode_corpus(const std::vector<std::string>& inputs,
                                    const Tokenizer& tokenizer, const EncodeOptions& options);

}  // namespace tailor::data
