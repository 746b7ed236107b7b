// A checkpoint folder as published models have it: model.safetensors, or several files and
// model.safetensors.index.json that says which tensor is in which.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "model/pretrained/tensor_source.h"

namespace tailor::pretrained {

/// Opens `folder` and every file that its index names (at most 10,000, within the folder). Errors:
/// kNotFound naming what is missing (folder, weights, a shard), kDataLoss naming the file and the
/// tensor when the index is not readable or does not agree with the shards, or a shard is cut.
Result<std::unique_ptr<TensorSource>> open_pretrained(const std::string& folder);

}  // namespace tailor::pretrained
