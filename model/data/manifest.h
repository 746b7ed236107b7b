// dataset.json: what a folder of token shards holds and what it was made of.
//
// Written once, last, by DatasetWriter; so a folder with a dataset.json is whole. It names every
// shard with its SHA-256, the tokenizer, every source with its size and SHA-256, and the settings
// that the result depends on; `check` is a hash of all the rest. No times and no machine: the same
// sources and settings give the same file.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::data {

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

struct TokenizerIdentity {
  std::string name;  ///< as it was given: a path, "bytes", or what imported ids are called
  std::string sha256;
  std::uint32_t vocab_size = 0;
  std::uint32_t eos_id = 0;
  friend bool operator==(const TokenizerIdentity&, const TokenizerIdentity&) = default;
};

struct DatasetManifest {
  TokenizerIdentity tokenizer;
  /// What the result depends on, beside tokenizer and sources; sorted by name.
  std::map<std::string, std::string> settings;
  std::array<ManifestSplit, 2> splits;
  std::vector<ManifestSource> sources;
  friend bool operator==(const DatasetManifest&, const DatasetManifest&) = default;
};

/// A file's name for JSON: bytes that are no UTF-8 are spelled "\\xNN".
std::string utf8_name(std::string_view name);

std::string format_manifest(const DatasetManifest& manifest);

/// Reads what format_manifest wrote; `name` is for messages.
/// Errors, naming the file: kDataLoss (no JSON, cut, altered, impossible);
/// kUnimplemented (a newer version).
Result<DatasetManifest> parse_manifest(std::string_view text, const std::string& name);

/// Reads FOLDER/dataset.json. Errors: as parse_manifest; kNotFound, saying what else is there.
Result<DatasetManifest> load_manifest(const std::string& folder);

/// Checks a folder against its manifest: every shard there and whole, with the hash and the counts
/// that the manifest says; no shard beside them that a pattern would pick up. Reads everything
/// once. Returns what is wrong, one Status for each file; empty when all is well.
/// Errors: those of load_manifest.
Result<std::vector<Status>> verify_dataset(const std::string& folder);

}  // namespace tailor::data
