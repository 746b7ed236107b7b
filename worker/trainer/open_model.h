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
#include "model/pretrained/tensor_source.h"
#include "model/tokenizers/tokenizer.h"

namespace tailor::trainer {

/// What is known of a model whose weights are still in their files.
struct ModelFiles {
  net::DecoderForm form;
  std::unique_ptr<pretrained::TensorSource> source;
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
  /// Shards that a trial was validated on, as its spec names them; "" for models from elsewhere.
  std::string validation_shards;
};

/// A model in memory; its files are closed (`source` is null).
struct OpenModel : ModelFiles {
  std::unique_ptr<net::Decoder> decoder;
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
Result<ModelFiles> open_model_files(const std::string& path);

/// The same with the weights read. Errors: besides, those of pretrained::load_decoder.
Result<OpenModel> open_model(const std::string& path, at::Device device, bool bf16);

/// The tokenizer `asked` for `model`; "" = the model's own, which open_model looks for in this
/// order: beside exported or published weights; "bytes", if the shards of the trial's data name it;
/// kept in the folder of those shards (dataset.json); another file there, or the one that
/// dataset.json names, if it is the shards'. Errors: kInvalidArgument when nothing says which, or
/// when the model was trained on the ids of another; those of tokenizers::open_tokenizer.
Result<ModelTokenizer> tokenizer_of(const ModelFiles& model, const std::string& asked);

}  // namespace tailor::trainer
