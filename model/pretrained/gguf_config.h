// What the metadata of a GGUF model says, as a Hugging Face config.json. Internal to gguf_source.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "model/pretrained/gguf.h"

namespace tailor::pretrained {

enum class GgufFamily { kLlama, kGemma2, kGemma3, kOlmo2 };

struct GgufConfig {
  GgufFamily family = GgufFamily::kLlama;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::string json;
};

/// Errors: as open_gguf_source.
Result<GgufConfig> read_gguf_config(const GgufFile& file);

}  // namespace tailor::pretrained
