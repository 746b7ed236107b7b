// import_dataset: token ids that another program made (bin_file.h) into a folder of token shards.
//
// The ids are kept as they are, one after the other, file after file. How many bytes an id has in a
// file without a header is told, or found out from the vocabulary and the bytes: what cannot be is
// refused, what was found out is said. Documents are counted by their end marks; llm.c puts the
// mark before a document, which is the same stream but for its first and last id. Killed and run
// again, it goes on where it was (dataset_writer.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/data/bin_file.h"
#include "model/data/prepare.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::data {

struct ImportOptions {
  std::string folder;
  BinFormat format = BinFormat::kAuto;
  /// 2 or 4: bytes of an id in files without a header. 0: 4 where the vocabulary is larger than
  /// 65,536 or the bytes can only be that, else 2.
  std::uint32_t id_bytes = 0;
  std::uint32_t vocab_size = 0;  ///< 0: what the header of llm.c stands for
  std::int64_t eos_id = -1;      ///< -1: likewise
  std::vector<std::string> validation_inputs;
  std::uint64_t shard_tokens = kShardTokensDefault;
  bool overwrite = false;
  /// The tokenizer that made the ids, if it is at hand: gives vocabulary, EOS, the bytes of text
  /// and its hash. Otherwise bytes of text are unknown (0).
  const tokenizers::Tokenizer* tokenizer = nullptr;
  std::string tokenizer_name;
  std::vector<tokenizers::TokenizerPart> tokenizer_parts;  ///< what the folder keeps of it
  double save_every_s = 3;
  DataProgressSink progress;
};

/// A split in which EOS does not occur is a warning of the manifest. Errors: those of BinFile and
/// DatasetWriter; kInvalidArgument (an id that is not below the vocabulary, with file and position,
/// and how the bytes would have to be read to fit; a vocabulary that ids of 2 bytes cannot have; no
/// vocabulary or EOS for a nanoGPT file; files of different kinds; the same file twice);
/// kUnimplemented (ids of 8 bytes).
Result<PrepareSummary> import_dataset(const std::vector<std::string>& inputs,
                                      const ImportOptions& options);

}  // namespace tailor::data
