// The sequences that a model is diagnosed on: out of text files, token shards or ids.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/diagnose/run.h"
#include "worker/trainer/open_model.h"

namespace tailor::trainer {

/// Cuts every file into windows of settings.length tokens and chooses of all of them, by the seed,
/// first those to be probed and then those for clouds (their rows are different sequences), as many
/// as the settings want or there are.
///
///   NAME.npy        integers, (T) or (B, T); windows do not cross rows
///   NAME.tokens     token shards, one or a pattern
///   anything else   UTF-8 text, encoded by the model's tokenizer or `tokenizer`; each window
///                   begins with BOS where the tokenizer puts one
///
/// Of a text at most 32 MiB are read. `about` gets what the data was. Errors: kInvalidArgument
/// for ids that the model does not know, another tokenizer's ids, text that is no UTF-8;
/// kFailedPrecondition for fewer than two windows; those of the readers.
Result<diagnose::Sequences> choose_sequences(const std::vector<std::string>& files,
                                             const ModelFiles& model, const std::string& tokenizer,
                                             const diagnose::Settings& settings,
                                             nlohmann::ordered_json& about);

}  // namespace tailor::trainer
