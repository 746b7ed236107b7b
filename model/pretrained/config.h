// Hugging Face's config.json, old form (rope_theta, rope_scaling, torch_dtype) and new
// (rope_parameters, layer_types, dtype), for Llama 3, OLMo 2, Mistral, Gemma 2 and Gemma 3, and
// Tailor's own form of it for networks that those families do not cover. Torch-free.
//
// A field is either understood, or on the list of fields that do not change the forward pass, or
// null; anything else is an error that names it. Defaults of absent fields are those of the
// published classes.
//
// Tailor's own form: {"model_type": "tailor_hourglass", "architecture": {...}}, the architecture as
// shape::canonical_json writes it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/net/form.h"

namespace tailor::pretrained {

/// The form that `json` describes. `file` is for messages. Errors, which name file and field:
/// kDataLoss (not JSON), kInvalidArgument (missing, of another type, out of range, contradictory),
/// kUnimplemented (a model type, rope type, activation or field that is not known).
Result<net::DecoderForm> parse_config(std::string_view json, std::string_view file);

/// `folder`/config.json. Errors: as above, and kNotFound.
Result<net::DecoderForm> read_config(const std::string& folder);

}  // namespace tailor::pretrained
