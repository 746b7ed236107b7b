// Opening a model to look at it, wherever it comes from:
//
//   a trial directory          its exported weights, or its newest good checkpoint
//   one checkpoint of it       DIR/checkpoints/000000120
//   a folder with config.json  exported by Tailor, or published for Hugging Face's transformers
//   a GGUF file
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "model/net/decoder.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::trainer {

struct OpenModel {
  std::unique_ptr<net::Decoder> decoder;
  std::string weights;           ///< file or folder that they were read from
  std::int64_t positions = 0;    ///< the longest input it was made for; 0 = not said
  std::string tokenizer;         ///< for tokenizers::open_tokenizer; "" = nothing says which
  std::string tokenizer_sha256;  ///< of the shards it was trained on; "" = not known
};

/// Errors, naming the file: kNotFound when nothing of the above is there; those of the reader.
Result<OpenModel> open_model(const std::string& path, at::Device device, bool bf16);

/// The tokenizer `asked` ("" = the model's own) for `model`. Errors: kInvalidArgument when nothing
/// says which, or when the model was trained on the ids of another;
/// those of tokenizers::open_tokenizer.
Result<std::unique_ptr<tokenizers::Tokenizer>> tokenizer_of(const OpenModel& model,
                                                            const std::string& asked);

/// Ok if `path` gives the ids of shards that name `sha256`: a hash of the tokenizer or of its file.
Status check_tokenizer(const tokenizers::Tokenizer& tokenizer, const std::string& path,
                       const std::string& sha256);

}  // namespace tailor::trainer
