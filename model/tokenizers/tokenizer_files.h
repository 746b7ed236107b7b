// Readers of the files that published tokenizers come in; each gives a TokenizerSpec.
// Internal to open_tokenizer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tokenizers/text_tokenizer.h"

namespace tailor::pretrained {
class GgufFile;
}

namespace tailor::tokenizers {

/// What the files beside a tokenizer.json say.
struct TokenizerHints {
  std::optional<std::string> bos_token, eos_token;
  std::optional<bool> adds_bos;
};

/// tokenizer.json of Hugging Face's tokenizers, model type BPE. Errors, naming `path`: kDataLoss
/// (not JSON, cut, members missing or of another type); kUnimplemented naming a step or option that
/// is not known and would change ids; kInvalidArgument when no token ends a text.
Result<TokenizerSpec> read_tokenizer_json(std::string_view text, const TokenizerHints& hints,
                                          const std::string& path);

/// tokenizer.ggml.* of a GGUF file, models gpt2 and llama. Errors: kUnimplemented naming another
/// model or an unknown tokenizer.ggml.pre; kInvalidArgument naming metadata that
/// is missing or impossible.
Result<TokenizerSpec> read_gguf_tokenizer(const pretrained::GgufFile& file);

/// A SentencePiece model (the protobuf that its trainer writes) of type BPE that does not
/// normalise. Errors: kDataLoss (cut, altered, another kind of file);
/// kUnimplemented naming what is not read.
Result<TokenizerSpec> read_sentencepiece_model(std::string_view bytes, const std::string& path);

/// Fills `spec->merges` and `extra_symbols` for SentencePiece's BPE: two neighbours merge when
/// their text is a piece, the piece of the highest score first, from left to right. Only pieces of
/// kind kNormal take part. REQUIRES: scores has an entry a piece.
void add_merges_by_score(const std::vector<float>& scores, TokenizerSpec* spec);

/// What SentencePiece does to spaces: each is U+2581, with one before the text if `adds_prefix`.
void mark_spaces(bool adds_prefix, TokenizerSpec* spec);

/// The cuts of pre-tokenizers that several models share.
extern const std::string_view kGpt2Regex;

}  // namespace tailor::tokenizers
