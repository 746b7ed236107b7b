// A GGUF model as a TensorSource: Hugging Face names, row orders and configuration.
//
// Converters to GGUF rename the tensors and change three things, which are undone here: rows of q
// and k of the llama architecture are permuted within each head (GGUF's rope turns neighbouring
// pairs, Hugging Face's the two halves of a head), norm weights of the Gemma architectures are
// stored as 1 + w, and Llama 3's rope scaling is kept as the factors of each frequency
// (rope_freqs.weight). Torch-free.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "model/pretrained/gguf.h"
#include "model/pretrained/tensor_source.h"

namespace tailor::pretrained {

class GgufSource : public TensorSource {
 public:
  /// The text of a Hugging Face config.json that says what the metadata says: architecture,
  /// sizes, rope, windows, soft caps, tied or own output matrix.
  virtual const std::string& config_json() const = 0;
  virtual const GgufFile& file() const = 0;
};

/// Opens a model of the architectures llama (with Mistral's), gemma2, gemma3 or olmo2. Errors:
/// those of GgufFile::open; kUnimplemented naming an architecture, rope scaling, metadata entry or
/// tensor that is not known, since it may change the mathematics; kInvalidArgument naming metadata
/// that is missing or impossible.
Result<std::unique_ptr<GgufSource>> open_gguf_source(const std::string& path);

}  // namespace tailor::pretrained
