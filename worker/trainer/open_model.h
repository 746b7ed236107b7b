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
  std::string weights;          ///< file or folder that they were read from
  std::int64_t positions = 0;   ///< the longest input it was made for; 0 = not said
  std::string tokenizer;        ///< for tokenizers::open_tokenizer; "" = nothing says which
  std::string tokenizer_found;  ///< why that one, for people: "kept with the data set"
  std::string
      tokenizer_sha256;  ///< Tokenizer::sha256, as the shards name it that the model was trained
                         ///< on; "" = not known
  /// SHA-256 of the file that is that tokenizer, from who kept it; "" = not known.
  std::string tokenizer_file_sha256;
  /// The ids were imported without their tokenizer: which one made them cannot be checked.
  bool tokenizer_is_unknown = false;
};

/// A tokenizer for a model.
struct ModelTokenizer {
  std::unique_ptr<tokenizers::Tokenizer> tokenizer;
  std::string path;      ///< for tokenizers::open_tokenizer
  std::string found;     ///< why that one, for people
  std::string sha256;    ///< what token shards of it name
  bool checked = false;  ///< it is the one of the shards that the model was trained on
};

/// Errors, naming the file: kNotFound when nothing of the above is there; those of the reader.
Result<OpenModel> open_model(const std::string& path, at::Device device, bool bf16);

/// The tokenizer `asked` for `model`; "" = the model's own, which open_model looks for in this
/// order: beside exported or published weights; "bytes", if the shards of the trial's data name it;
/// kept in the folder of those shards (dataset.json); another file there, or the one that
/// dataset.json names, if it is the shards'. Errors: kInvalidArgument when nothing says which, or
/// when the model was trained on the ids of another; those of tokenizers::open_tokenizer.
Result<ModelTokenizer> tokenizer_of(const OpenModel& model, const std::string& asked);

}  // namespace tailor::trainer
