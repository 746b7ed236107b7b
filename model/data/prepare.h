// prepare_dataset: a corpus through a tokenizer into a folder of token shards, on several threads.
//
// One thread reads and decompresses, others encode, the calling one writes in the order of reading:
// the result depends on neither their number nor on when a run was killed and run again. Every
// document is followed by EOS. Which split a document belongs to depends on its name alone, so it
// does not change when documents are added.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/data/corpus.h"
#include "model/data/manifest.h"
#include "model/tokenizers/tokenizer.h"
#include "model/tokenizers/tokenizer_parts.h"

namespace tailor::data {

class DatasetWriter;

/// Share of documents held out unless told otherwise.
inline constexpr double kValidationFractionDefault = 0.01;
inline constexpr std::uint64_t kShardTokensDefault = 100'000'000;

/// Whether the document `name` is held out when a share of `fraction` is; the same for ever. A
/// document held out at one fraction is held out at every larger one.
bool is_validation_document(std::string_view name, double fraction);

struct DataProgress {
  std::uint64_t bytes = 0;        ///< of the sources on disk, done
  std::uint64_t bytes_total = 0;  ///< of all sources on disk
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t resumed_bytes = 0;   ///< done by an earlier run
  std::uint64_t resumed_tokens = 0;  ///< likewise
};
/// What a run over `files` starts with when it goes on where `writer` stands.
DataProgress progress_at(const DatasetWriter& writer, const std::vector<CorpusFile>& files);
using DataProgressSink = std::function<void(const DataProgress&)>;

struct PrepareOptions {
  std::string folder;
  std::string tokenizer_name;  ///< as it was given, for the manifest
  /// What the folder keeps of the tokenizer.
  std::vector<tokenizers::TokenizerPart> tokenizer_parts;
  /// In [0, 1): share of the documents of the corpus that goes to the validation shards; 0 writes
  /// none.
  double validation_fraction = kValidationFractionDefault;
  /// If not empty, the validation shards hold these files and folders, and the fraction is unused.
  std::vector<std::string> validation_inputs;
  /// A shard ends at the first block after so many.
  std::uint64_t shard_tokens = kShardTokensDefault;
  int threads = 1;         ///< encoding threads beside the reading one
  bool overwrite = false;  ///< replace another data set in the folder
  CorpusOptions corpus;
  double save_every_s = 3;    ///< what is lost when the run is killed
  DataProgressSink progress;  ///< called now and then on the calling thread
};

struct PrepareSummary {
  DatasetManifest manifest;
  bool already_done = false;            ///< nothing was to do
  std::uint64_t resumed_tokens = 0;     ///< of an earlier, unfinished run
  std::vector<Status> reasons;          ///< why something was skipped in this run: the first few
  std::vector<PassedOver> passed_over;  ///< of the sources' folders, as they are now
  std::vector<std::string> notes;       ///< what was found out and not told, a sentence each
};

/// Errors: those of list_corpus, read_corpus and DatasetWriter; kInvalidArgument (options out of
/// range, a split without a document). After a failure the same call goes on where it was saved; a
/// finished data set in the folder is untouched until the new one is whole.
Result<PrepareSummary> prepare_dataset(const std::vector<std::string>& inputs,
                                       const tokenizers::Tokenizer& tokenizer,
                                       const PrepareOptions& options);

}  // namespace tailor::data
