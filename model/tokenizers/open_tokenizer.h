// Opens the tokenizer of a published model, whatever file holds it.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::tokenizers {

/// Opens by name: "bytes" (make_byte_tokenizer); a .gguf file; a .model of SentencePiece, or
/// another file as tokenizer.json, each with what a tokenizer_config.json beside it says; a folder
/// by the tokenizer.json, tokenizer.model or only .gguf in it. Its `encode` takes any bytes
/// (tokenizer.h). Errors, naming the file: kNotFound; kDataLoss (cut, altered, another kind of
/// file); kUnimplemented naming a step, model or pre-tokenizer that is not known; kInvalidArgument
/// for what is missing.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path);

/// The file that open_tokenizer reads for `path`: `path` itself, or that of a folder. Errors:
/// kNotFound.
Result<std::string> tokenizer_file(const std::string& path);

}  // namespace tailor::tokenizers
