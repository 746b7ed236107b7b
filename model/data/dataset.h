// Dataset: token shards, in order, as one stream of ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/data/token_shard.h"

namespace tailor::data {

struct DatasetOptions {
  /// The model's vocabulary: opening fails when a shard holds an id that is not below it.
  /// 0 = unchecked.
  std::uint32_t vocab_size = 0;
  /// Reads every shard once (about 1 GB/s) and compares its SHA-256.
  bool verify = true;
};

/// A stream of tokens over shards. Threads: const functions may be called from any thread at once.
/// Memory: nothing is held but one descriptor a shard.
class Dataset {
 public:
  /// Opens the shards in the order given.
  /// Errors, naming the file: those of TokenShardReader; kInvalidArgument when the list is empty,
  /// when no shard holds a token, when shards come from different tokenizers, or when a token id is
  /// outside the model's vocabulary.
  static Result<Dataset> open(const std::vector<std::string>& paths, const DatasetOptions& options);

  /// Opens what a shell pattern ("data/x-train-*.tokens") names, sorted by name; a comma separates
  /// several patterns, which keep their order, and a backslash makes the character after it stand
  /// for itself (`escape_pattern`). Errors: as `open`; kNotFound when a pattern matches nothing;
  /// kInvalidArgument when it is the name of a file that it does not match.
  static Result<Dataset> open_glob(std::string_view patterns, const DatasetOptions& options);

  std::uint64_t token_count() const { return token_count_; }
  /// Bytes of text behind the tokens: for bits per byte.
  std::uint64_t text_bytes() const { return text_bytes_; }
  std::uint64_t document_count() const { return document_count_; }
  std::uint32_t vocab_size() const { return shards_.front().info().vocab_size; }
  std::uint32_t eos_id() const { return shards_.front().info().eos_id; }
  /// Equal for shards made with one tokenizer.
  const std::string& tokenizer_sha256() const { return shards_.front().info().tokenizer_sha256; }
  /// SHA-256 over the shards' hashes in order, 64 hex digits: says which data a trial saw
  /// (StartedReport.data_hash), wherever the files lie.
  const std::string& content_hash() const { return content_hash_; }
  const std::vector<TokenShardReader>& shards() const { return shards_; }

  /// Fills `out` with the ids from `position` on, across shards.
  /// REQUIRES: position + out.size() <= token_count().
  /// Errors: kDataLoss naming the file when it was cut or altered since it was opened.
  Status read(std::uint64_t position, std::span<std::uint32_t> out) const;

 private:
  std::vector<TokenShardReader> shards_;
  std::vector<std::uint64_t> starts_;  // position of each shard's first token
  std::uint64_t token_count_ = 0;
  std::uint64_t text_bytes_ = 0;
  std::uint64_t document_count_ = 0;
  std::string content_hash_;
};

/// kInvalidArgument, naming a file of each, unless both come from one tokenizer.
Status check_same_tokenizer(const Dataset& train, const Dataset& validation);

}  // namespace tailor::data
