// Tokenizer: text to ids and back. The library holds plain bytes; SentencePiece lives in the
// program tailor-tokenize alone (sentencepiece_tokenizer.h), since its library carries a protobuf
// of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::data {

/// Ids are in [0, vocab_size()). Threads: one object a thread (`clone`); implementations may keep a
/// cache.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::uint32_t vocab_size() const = 0;
  /// The id put after every document; `encode` never makes it from text.
  virtual std::uint32_t eos_id() const = 0;
  /// 64 hex digits that are equal only for tokenizers that give the same ids.
  virtual std::string sha256() const = 0;
  /// Appends the ids of `text`. REQUIRES: valid UTF-8.
  virtual void encode(std::string_view text, std::vector<std::uint32_t>* ids) = 0;
  /// The text of `ids`; EOS stands for nothing. Errors: kInvalidArgument for an id outside the
  /// vocabulary.
  virtual Result<std::string> decode(std::span<const std::uint32_t> ids) const = 0;
  /// Another object with the same ids, for another thread.
  virtual std::unique_ptr<Tokenizer> clone() const = 0;
};

/// One id a byte, 0 to 255, and EOS = 256: vocabulary 257. Any text decodes to itself.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace tailor::data
