// BinFile: token ids as other trainers store them.
//
// nanoGPT: little-endian uint16 from the first byte to the last, no header (data/*/prepare.py).
//   Others write uint32 in the same way where the vocabulary is larger than 65,536. Nothing in the
//   file says which.
// llm.c: 256 little-endian int32 of header, then the ids (dev/data/data_common.py):
//   [0] 20240520, [1] 1   ids of GPT-2 as uint16
//   [0] 20240801, [1] 7   ids of Llama 3 as uint32
//   [2]                   the number of ids; the others 0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace tailor::data {

enum class BinFormat { kAuto, kNanoGpt, kLlmC };

/// "auto", "nanogpt", "llmc".
Result<BinFormat> parse_bin_format(const std::string& text);

struct BinInfo {
  BinFormat format = BinFormat::kNanoGpt;  ///< never kAuto
  std::uint32_t token_bytes = 2;
  std::uint64_t header_bytes = 0;
  std::uint64_t token_count = 0;
  /// What the header's magic stands for: GPT-2 50257 and 50256, Llama 3 128256 and 128000 (llm.c
  /// puts <|begin_of_text|> between documents); 0 and 0 without a header.
  std::uint32_t vocab_size = 0;
  std::uint32_t eos_id = 0;
};

/// Reads forward and by position. Threads: `read` may be called from any thread at once.
class BinFile {
 public:
  /// Opens and checks the header and the exact size; reads no ids. kAuto takes a file that starts
  /// with a magic of llm.c for one and any other for nanoGPT's, with ids of `id_bytes` (2 or 4).
  /// Errors, all naming the file: kNotFound; kDataLoss (cut, longer than its header says, an
  /// impossible header, a nanoGPT file whose size is no multiple of `id_bytes`); kUnimplemented
  /// (another version or kind of llm.c's files, big-endian); kInvalidArgument (no ids, no regular
  /// file, a file that says itself that it is something else); the system's reason.
  static Result<BinFile> open(const std::string& path, BinFormat format = BinFormat::kAuto,
                              std::uint32_t id_bytes = 2);
  ~BinFile();
  BinFile(BinFile&&) noexcept;
  BinFile& operator=(BinFile&&) noexcept;

  const BinInfo& info() const;
  const std::string& path() const;

  /// Fills `out` with the ids from `position` on; ids are as they are stored, not checked.
  /// REQUIRES: position + out.size() <= token_count. Errors: kDataLoss when the file was cut.
  Status read(std::uint64_t position, std::span<std::uint32_t> out) const;

 private:
  struct Impl;
  explicit BinFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::data
