// The files of a tokenizer, gathered so that it can travel: with a data set, with an exported
// network.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::tokenizers {

/// A file that a tokenizer needs where it is opened again.
struct TokenizerPart {
  std::string file;  ///< its name there: "tokenizer.json", "tokenizer_config.json", ...
  std::string content;
};

/// What open_tokenizer(path) reads, `tokenizer` being what it gave (or what SentencePiece's own
/// library made of the same file). First the file to open: tokenizer.json or tokenizer.model as
/// they are, or tokenizer.gguf with the metadata of the tokenizer and no tensors. Beside the first
/// two a tokenizer_config.json: the one that lies there, else one that names the same special
/// tokens, as transformers wants it. Nothing for "bytes", which needs no file. Opened in a folder
/// of their own they give the same ids and the same sha256(). Errors: those of open_tokenizer.
Result<std::vector<TokenizerPart>> read_tokenizer_parts(const std::string& path,
                                                        const Tokenizer& tokenizer);

/// The byte tokenizer as files: a tokenizer.json (byte-level BPE without a merge) that gives the
/// ids of make_byte_tokenizer(), and its tokenizer_config.json. For programs that know no "bytes".
std::vector<TokenizerPart> byte_tokenizer_parts();

}  // namespace tailor::tokenizers
