// Token shards: files of token ids with a checked header (token_shard_format.h, README.md).
//
// A shard appears under its name only when it is whole: the writer fills `PATH.partial`, fsyncs it
// and renames it. The reader opens read-only and reads by position (pread): its resident memory
// does not grow with the file, and a file that shrinks under it gives an error, not SIGBUS as a
// mapping would.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace tailor::data {

/// What the header of a shard says.
struct TokenShardInfo {
  std::uint32_t vocab_size = 0;   ///< of the tokenizer; every id is below it
  std::uint32_t eos_id = 0;       ///< the id that ends a document
  std::uint32_t max_id = 0;       ///< the largest id in the shard (0 if it is empty)
  std::uint32_t token_bytes = 2;  ///< width of a stored id: 2 or 4
  std::uint64_t token_count = 0;
  std::uint64_t text_bytes = 0;  ///< bytes of UTF-8 that the tokens stand for; EOS stands for none
  std::uint64_t document_count = 0;  ///< documents that end in the shard
  std::string tokenizer_sha256;      ///< 64 hex digits; equal for shards of one tokenizer
  std::string sha256;                ///< 64 hex digits, over tokens and header
  friend bool operator==(const TokenShardInfo&, const TokenShardInfo&) = default;
};

/// How far an unfinished shard got.
struct TokenShardProgress {
  std::uint64_t token_count = 0;
  std::uint64_t text_bytes = 0;
  std::uint64_t document_count = 0;
  std::string sha256;  ///< of the ids so far
  friend bool operator==(const TokenShardProgress&, const TokenShardProgress&) = default;
};

/// Writes one shard. Not thread-safe. Destroying it before `finish` removes the partial file,
/// unless it was saved or resumed.
class TokenShardWriter {
 public:
  /// Starts `path`.partial. `path` itself is untouched until `finish`.
  /// Errors: kInvalidArgument (vocab_size 0 or eos_id not below it, bad hash), kFailedPrecondition
  /// (another process is writing this shard), or the system's reason.
  static Result<TokenShardWriter> create(const std::string& path, std::uint32_t vocab_size,
                                         std::uint32_t eos_id, const std::string& tokenizer_sha256);
  /// Goes on with `path`.partial as `save` left it; what was appended later is dropped.
  /// Errors: as `create`; kNotFound; kDataLoss when the file holds fewer ids or others.
  static Result<TokenShardWriter> resume(const std::string& path, std::uint32_t vocab_size,
                                         std::uint32_t eos_id, const std::string& tokenizer_sha256,
                                         const TokenShardProgress& saved);
  ~TokenShardWriter();
  TokenShardWriter(TokenShardWriter&&) noexcept;
  TokenShardWriter& operator=(TokenShardWriter&&) noexcept;

  /// Appends ids. `text_bytes` and `documents` are added to the header's totals.
  /// Errors: kInvalidArgument for an id that is not below vocab_size;
  /// the system's reason (disk full).
  Status append(std::span<const std::uint32_t> ids, std::uint64_t text_bytes,
                std::uint64_t documents);

  std::uint64_t token_count() const;

  /// Makes what was appended durable, so that `resume` can go on from here even after a power cut.
  Result<TokenShardProgress> save();

  /// Writes the header, fsyncs, renames over `path` and returns what was written.
  /// REQUIRES: called once, last.
  Result<TokenShardInfo> finish();

 private:
  struct Impl;
  static Result<TokenShardWriter> open(const std::string& path, std::uint32_t vocab_size,
                                       std::uint32_t eos_id, const std::string& tokenizer_sha256,
                                       int flags);
  explicit TokenShardWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Reads one shard. Threads: const functions may be called from any thread at once.
class TokenShardReader {
 public:
  /// Opens and checks magic, version, header check and exact size; reads no tokens.
  /// Errors, all naming the file: kNotFound; kDataLoss (cut, longer than its header says, altered
  /// header, not a token shard); kUnimplemented (a newer version); the system's reason.
  static Result<TokenShardReader> open(const std::string& path);
  ~TokenShardReader();
  TokenShardReader(TokenShardReader&&) noexcept;
  TokenShardReader& operator=(TokenShardReader&&) noexcept;

  const TokenShardInfo& info() const;
  const std::string& path() const;

  /// Fills `out` with the ids from `position` on. REQUIRES: position + out.size() <= token_count.
  /// Errors: kDataLoss when an id is not below vocab_size or the file was cut meanwhile.
  Status read(std::uint64_t position, std::span<std::uint32_t> out) const;

  /// Reads everything and compares the SHA-256. Errors: kDataLoss naming the file.
  Status verify() const;

 private:
  struct Impl;
  explicit TokenShardReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::data
