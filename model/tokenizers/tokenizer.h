// Tokenizer: text to ids and back. The library holds plain bytes and the tokenizers of published
// models (open_tokenizer.h); Google's SentencePiece library lives in the program tailor-tokenize
// alone (sentencepiece_tokenizer.h), since it carries a protobuf of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::tokenizers {

/// Ids are in [0, vocab_size()). Threads: one object a thread (`clone`);
/// implementations may keep a cache.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::uint32_t vocab_size() const = 0;
  /// The id put after every document; `encode` never makes it from text.
  virtual std::uint32_t eos_id() const = 0;
  /// 64 hex digits that are equal only for tokenizers that give the same ids: what token shards
  /// name. Of a SentencePiece model the SHA-256 of its file, of bytes that of "tailor bytes 257",
  /// else a hash of all that decides about ids.
  virtual std::string sha256() const = 0;
  /// What its file says and its ids are not, a sentence each: for people to read.
  virtual std::vector<std::string> notes() const { return {}; }
  /// The id that begins a text, where the tokenizer has one.
  virtual std::optional<std::uint32_t> bos_id() const { return {}; }
  /// True when the model was trained with bos_id() before every text, so that its scores are only
  /// right with it (Gemma, Llama). `encode` never adds it.
  virtual bool adds_bos() const { return false; }
  /// Appends the ids of `text`. Special tokens written out in it ("<|endoftext|>") are plain text.
  /// REQUIRES: valid UTF-8, but for tokenizers from open_tokenizer, which take any bytes and read
  /// what is no UTF-8 as U+FFFD, one for each maximal part of a character, as the originals do.
  virtual void encode(std::string_view text, std::vector<std::uint32_t>* ids) = 0;
  /// As `encode`, but special tokens written out in the text become their ids.
  virtual void encode_with_specials(std::string_view text, std::vector<std::uint32_t>* ids) {
    encode(text, ids);
  }

  /// Which part of a text is encoded.
  struct Part {
    bool begins = true;  ///< nothing comes before
    bool ends = true;    ///< nothing comes behind
  };
  /// The last place in `text`, after its first character and before its last, where it may be cut:
  /// the ids of the parts, by `encode_part`, are together those of the whole, whatever comes before
  /// and behind `text`. 0: it has no such place, and only the whole text can be encoded.
  /// REQUIRES: whole characters of valid UTF-8.
  virtual std::size_t last_cut(std::string_view text) {
    static_cast<void>(text);
    return 0;
  }
  /// As `encode`, for a part of a text that was cut where `last_cut` says.
  virtual void encode_part(std::string_view text, Part part, std::vector<std::uint32_t>* ids) {
    static_cast<void>(part);
    encode(text, ids);
  }
  /// The text of `ids`; EOS and other special tokens stand for nothing. Ids that end within a
  /// character give bytes that do too. Errors: kInvalidArgument for an id outside the vocabulary.
  virtual Result<std::string> decode(std::span<const std::uint32_t> ids) const = 0;
  /// Another object with the same ids, for another thread.
  virtual std::unique_ptr<Tokenizer> clone() const = 0;
};

/// One id a byte, 0 to 255, and EOS = 256: vocabulary 257. Any text decodes to itself.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

}  // namespace tailor::tokenizers
