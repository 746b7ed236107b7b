// What a trial leaves behind for people and other programs: DIR/artifacts.
#pragma once

#include <string>

#include "base/status.h"
#include "model/data/exported_tokenizer.h"
#include "model/net/decoder.h"
#include "model/train/evaluate.h"

namespace tailor::train {

/// model.safetensors, config.json and generation_config.json (pretrained/export.h) of a decoder of
/// `architecture`, and the files of the tokenizer. Each file is there whole or not at all. Errors:
/// those of writing files.
Status export_weights(const net::Decoder& decoder, const shape::Architecture& architecture,
                      std::int64_t sequence_length, const data::ExportedTokenizer& tokenizer,
                      const std::string& folder);

/// validation_blocks.npy: float64 (sequences, 2), summed nats and scored tokens of each sequence of
/// the validation data in its order: what paired tests between trials need. Errors: as write_npy.
Status write_blocks(const Evaluation& evaluation, const std::string& folder);

}  // namespace tailor::train
