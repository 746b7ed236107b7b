// The tokenizer that travels with an exported network: its files beside the weights, under the
// names that other programs look for, and tailor_tokenizer.json, which says what token shards of it
// name.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "model/data/dataset.h"
#include "model/data/manifest.h"
#include "model/tokenizers/tokenizer_parts.h"

namespace tailor::data {

struct ExportedTokenizer {
  /// `files` are those of `parts`; `name` is left out, since it is a path of one machine.
  TokenizerIdentity identity;
  std::vector<tokenizers::TokenizerPart> parts;  ///< empty when the tokenizer is not at hand
  std::string missing;                           ///< then why, for people
};

/// The tokenizer whose ids `dataset` holds: bytes; what the folder of its shards keeps; a
/// SentencePiece model there, or where dataset.json says, whose SHA-256 the shards name. Reads
/// those files.
ExportedTokenizer tokenizer_of_dataset(const Dataset& dataset);

/// Writes the parts and tailor_tokenizer.json into `folder`. Each file is there whole or not at
/// all.
Status write_exported_tokenizer(const std::string& folder, const ExportedTokenizer& tokenizer);

/// Reads FOLDER/tailor_tokenizer.json. Errors: kNotFound without one; kDataLoss when it is altered.
Result<TokenizerIdentity> read_exported_tokenizer(const std::string& folder);

}  // namespace tailor::data
