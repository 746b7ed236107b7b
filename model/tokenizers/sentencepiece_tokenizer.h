// SentencePiece behind the Tokenizer interface. Part of the program tailor-tokenize only: the
// SentencePiece library carries a protobuf of its own and must not meet ours
// or LibTorch's in one process.
//
// Models trained by tailor-tokenize are lossless: BPE with byte fallback over unchanged text,
// decode(encode(x)) == x for every UTF-8 text. Their pieces never cross from a word into the next
// space, so words are encoded once and remembered; the ids are those SentencePiece gives the whole
// text. Other SentencePiece models are used as they are, document by document. Long documents are
// cut where no piece of a BPE model crosses, and nothing is put before the parts but the first;
// those of other types (unigram), or with rules of their own, cannot be cut.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::tokenizers {

class SentencePieceTokenizer : public Tokenizer {
 public:
  /// False for a model that normalises its text (or has no byte fallback):
  /// decoding may differ from the text.
  virtual bool is_lossless() const = 0;
  /// Ids from SentencePiece itself for the whole text: what `encode` is tested against.
  virtual std::vector<std::uint32_t> encode_whole(std::string_view text) const = 0;
};

/// Loads a SentencePiece model. Errors: kNotFound; kDataLoss (cut, altered, not a model);
/// kInvalidArgument (a model without an EOS piece).
Result<std::unique_ptr<SentencePieceTokenizer>> load_sentencepiece(const std::string& path);

}  // namespace tailor::tokenizers
