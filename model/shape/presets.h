// Named starting points: the scales of the hourglass study (science.md 1.4), and of the study of
// width schedules, for which shapes had to be chosen (presets.cc says how).
//
// The published names count the body only; that they equal 16 d^2 L (d_ff = 4 d) or 12 d^2 L
// (d_ff = 8 d / 3) is an inference, so both readings are here where the second has whole widths.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "model/shape/architecture.h"

namespace tailor::shape {

/// Uniform multi-head shape; vocabulary, norms and embeddings are left at their defaults.
struct Preset {
  std::string_view name;
  std::int32_t d_model = 0;
  std::int32_t layers = 0;
  std::int32_t head_dim = 64;
  FfnKind ffn_kind = FfnKind::kSwiglu;
  std::int32_t k = 1;
  std::int32_t d_h = 0;
  std::int64_t body = 0;  ///< parameters, as the tables say
};

/// Padded GPT-2 vocabulary: used wherever none is given.
inline constexpr std::int32_t kDefaultVocabulary = 50'304;

/// All presets, in a fixed order.
std::span<const Preset> presets();
/// Errors: kNotFound with the nearest name and the list.
Result<Preset> find_preset(std::string_view name);
/// The preset as a LLaMA-style architecture with `vocab_size` tokens and tied embeddings.
Architecture preset_architecture(const Preset& preset,
                                 std::int32_t vocab_size = kDefaultVocabulary);

}  // namespace tailor::shape
