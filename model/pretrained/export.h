// config.json for the weights of a trained network.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/shape/architecture.h"

namespace tailor::pretrained {

/// True if Hugging Face's Llama or OLMo 2 classes have this network: conventional FFNs of one width
/// with the family's own norms, no scaling option, and a head count that divides d_model.
bool has_published_class(const shape::Architecture& architecture);

/// Ids that stand for no text.
struct SpecialIds {
  std::uint32_t eos = 0;             ///< between the documents of the training
  std::optional<std::uint32_t> bos;  ///< the tokenizer's, if it has one
};

/// The text of config.json. Networks with a published class get its old form, which every version
/// of transformers reads; others Tailor's own (config.h). `positions`: sequence length of the
/// training.
std::string export_config(const shape::Architecture& architecture, std::int64_t positions,
                          const SpecialIds& ids);

/// The text of generation_config.json: where transformers stops to generate.
std::string export_generation_config(const SpecialIds& ids);

}  // namespace tailor::pretrained
