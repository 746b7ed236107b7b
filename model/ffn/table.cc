// The list of FFN variants. A new one is a line here and a value of shape::FfnKind.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "model/ffn/ffn.h"

namespace tailor::ffn {
namespace {

constexpr std::array kVariants{
    FfnVariant{shape::FfnKind::kSwiglu, "swiglu", &make_swiglu},
    FfnVariant{shape::FfnKind::kHourglass, "hourglass", &make_hourglass},
};

}  // namespace

std::span<const FfnVariant> variants() { return kVariants; }

const FfnVariant& variant(shape::FfnKind kind) {
  const auto* found = std::find_if(kVariants.begin(), kVariants.end(),
                                   [&](const FfnVariant& line) { return line.kind == kind; });
  TAILOR_CHECK(found != kVariants.end());
  return *found;
}

FfnShape ffn_shape(const net::DecoderForm& form, std::size_t layer) {
  FfnShape shape;
  shape.d_model = form.d_model;
  shape.widths = form.layers[layer].widths;
  shape.norm = form.ffn_norm;
  shape.norm_behind = form.ffn_norm_behind;
  shape.outer_residual = form.ffn_outer_residual;
  shape.activation = form.activation;
  shape.eps = form.norm_eps;
  shape.gain_plus_one = form.gain_plus_one;
  shape.norm_scale = form.norm_scale(layer);
  const std::vector<double> scales = form.write_scales(layer);
  shape.write_scales.assign(scales.begin() + 1, scales.end());  // the first is attention's
  shape.attention_norm_behind = form.attention_norm_behind;
  shape.layer_prefix = fmt::format("model.layers.{}.", layer);
  shape.key_prefix = fmt::format("layers.{}.", layer);
  return shape;
}

}  // namespace tailor::ffn
