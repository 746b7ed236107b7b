// dataset.json: what a folder of token shards holds and what it was made of.
//
// Written once, last, by DatasetWriter; so a folder with a dataset.json is whole. It names every
// shard with its SHA-256, the tokenizer and its files, every source with its size and SHA-256, the
// settings that the result depends on, what of the sources' folders was not read, and what is odd
// about it all; `check` is a hash of all the rest. No times and no machine: the same sources and
// settings give the same file. Members that older versions did not write may be missing.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/data/corpus.h"

namespace tailor::data {

class Dataset;

inline constexpr std::array<std::string_view, 2> kSplitNames = {"train", "validation"};
inline constexpr std::size_t kTrain = 0;
inline constexpr std::size_t kValidation = 1;
inline constexpr std::string_view kManifestName = "dataset.json";

struct ManifestShard {
  std::string file;  ///< within the folder, "train-00000.tokens"
  std::string sha256;
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::uint64_t text_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint32_t max_id = 0;
  friend bool operator==(const ManifestShard&, const ManifestShard&) = default;
};

struct ManifestSplit {
  std::vector<ManifestShard> shards;
  std::uint64_t tokens() const { return sum(&ManifestShard::tokens); }  ///< EOS included
  std::uint64_t documents() const { return sum(&ManifestShard::documents); }
  std::uint64_t text_bytes() const { return sum(&ManifestShard::text_bytes); }
  /// Dataset::content_hash of the shards; "" without any.
  std::string content_hash() const;
  friend bool operator==(const ManifestSplit&, const ManifestSplit&) = default;

 private:
  std::uint64_t sum(std::uint64_t ManifestShard::*member) const {
    std::uint64_t total = 0;
    for (const ManifestShard& shard : shards) total += shard.*member;
    return total;
  }
};

/// A file that the tokens come from.
struct ManifestSource {
  std::string name;  ///< CorpusFile::name as utf8_name
  std::uint64_t bytes = 0;
  std::string sha256;
  std::uint64_t documents = 0;
  std::uint64_t empty_documents = 0;
  std::uint64_t text_bytes = 0;
  std::uint64_t skipped_lines = 0;
  bool skipped = false;
  friend bool operator==(const ManifestSource&, const ManifestSource&) = default;
};

/// A file of the tokenizer that lies in the data set's folder.
struct ManifestTokenizerFile {
  std::string file;  ///< within the folder, "tokenizer.json"
  std::uint64_t bytes = 0;
  std::string sha256;  ///< of the file
  friend bool operator==(const ManifestTokenizerFile&, const ManifestTokenizerFile&) = default;
};

struct TokenizerIdentity {
  std::string name;    ///< as it was given: a path, "bytes", or what imported ids are called
  std::string sha256;  ///< Tokenizer::sha256, which the shards name; of unknown_tokenizer_sha256
  std::uint32_t vocab_size = 0;
  std::uint32_t eos_id = 0;
  std::optional<std::uint32_t> bos_id;  ///< Tokenizer::bos_id
  /// What open_tokenizer needs, the file to open first. Empty for bytes, ids that were imported
  /// without a tokenizer, and data sets of older versions.
  std::vector<ManifestTokenizerFile> files;
  friend bool operator==(const TokenizerIdentity&, const TokenizerIdentity&) = default;
};

/// What ids that were imported without their tokenizer have in place of its SHA-256.
std::string unknown_tokenizer_sha256(std::uint32_t vocab_size, std::uint32_t eos_id);

struct DatasetManifest {
  TokenizerIdentity tokenizer;
  /// What the result depends on, beside tokenizer and sources; sorted by name.
  std::map<std::string, std::string> settings;
  std::array<ManifestSplit, 2> splits;
  std::vector<ManifestSource> sources;
  std::vector<PassedOver> passed_over;  ///< of the sources' folders
  std::vector<std::string> warnings;    ///< what a person should know of the ids, a sentence each
  friend bool operator==(const DatasetManifest&, const DatasetManifest&) = default;
};

std::string format_manifest(const DatasetManifest& manifest);

/// Reads what format_manifest wrote; `name` is for messages.
/// Errors, naming the file: kDataLoss (no JSON, cut, altered, impossible);
/// kUnimplemented (a newer version).
Result<DatasetManifest> parse_manifest(std::string_view text, const std::string& name);

/// Reads FOLDER/dataset.json. Errors: as parse_manifest; kNotFound, saying what else is there.
Result<DatasetManifest> load_manifest(const std::string& folder);

/// Reads the manifest beside token shards: FOLDER/dataset.json of the first one's folder, if the
/// shards are of its tokenizer; nullopt otherwise.
std::optional<DatasetManifest> manifest_beside(const Dataset& dataset);

/// The tokenizer file of `manifest`, which lies in `folder`, to open; "" when none is kept. Errors:
/// kDataLoss naming a file that is gone or altered.
Result<std::string> kept_tokenizer(const std::string& folder, const DatasetManifest& manifest);

/// The "tokenizer" of a manifest alone, as JSON, and back. Errors: kDataLoss, naming `name`.
std::string format_tokenizer(const TokenizerIdentity& tokenizer);
Result<TokenizerIdentity> parse_tokenizer(std::string_view text, const std::string& name);

/// Checks a folder against its manifest: every shard there and whole, with the hash and the counts
/// that the manifest says, and every file of the tokenizer; no shard beside them that a pattern
/// would pick up. Reads everything once. Returns what is wrong, one Status for each file; empty
/// when all is well. Errors: those of load_manifest.
Result<std::vector<Status>> verify_dataset(const std::string& folder);

}  // namespace tailor::data
