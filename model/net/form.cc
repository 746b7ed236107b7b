#include "model/net/form.h"

#include <cmath>
#include <numbers>

namespace tailor::net {

double DecoderForm::score_scale() const {
  return attention_scale > 0 ? attention_scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

double DecoderForm::norm_scale(std::size_t layer) const {
  return norm_scaling ? 1.0 / std::sqrt(static_cast<double>(layer + 1)) : 1.0;
}

std::vector<double> DecoderForm::write_scales(std::size_t layer) const {
  std::vector<double> scales(1 + layers[layer].widths.size(), 1.0);
  if (!residual_scaling) return scales;
  std::size_t index = 1;
  for (std::size_t l = 0; l < layer; ++l) index += 1 + layers[l].widths.size();
  for (double& scale : scales) scale = 1.0 / std::sqrt(static_cast<double>(index++));
  return scales;
}

DecoderForm form_of(const shape::Architecture& a) {
  const bool olmo2 = a.family == shape::Family::kOlmo2;
  DecoderForm form;
  form.d_model = a.d_model;
  form.heads = a.heads;
  form.kv_heads = a.kv_heads;
  form.head_dim = a.head_dim;
  form.vocab_size = a.vocab_size;
  form.tied_head = a.tie_embeddings;
  form.norm_eps = a.norm_eps;
  form.attention_norm_before = !olmo2;
  form.attention_norm_behind = olmo2;
  form.qk_norm = olmo2 ? QkNorm::kWhole : QkNorm::kNone;
  form.ropes = {rope_frequencies(a.head_dim, a.rope_theta)};
  form.ffn_kind = a.ffn_kind;
  form.ffn_norm = a.ffn_norm;
  form.ffn_outer_residual = a.ffn_outer_residual;
  form.norm_scaling = a.norm_scaling;
  form.residual_scaling = a.residual_scaling;
  for (const shape::LayerWidths& widths : a.widths) form.layers.push_back({widths});
  return form;
}

std::vector<double> rope_frequencies(std::int64_t head_dim, double theta) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    frequencies.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  return frequencies;
}

void scale_llama3(const Llama3Scaling& scaling, std::vector<double>& frequencies) {
  for (double& f : frequencies) {
    const double turns = scaling.original_positions * f / (2 * std::numbers::pi);  // T0 / l
    if (turns > scaling.high_freq_factor) continue;
    const double slow = f / scaling.factor;
    if (turns < scaling.low_freq_factor) {
      f = slow;
      continue;
    }
    const double blend =
        (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
    f = (1 - blend) * slow + blend * f;
  }
}

}  // namespace tailor::net
