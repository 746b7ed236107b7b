#include "sweep/widths.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"

namespace tailor::sweep {
namespace {

constexpr std::int64_t kWidthMax = 1'048'576;
constexpr std::size_t kWidthsMax = 65'536;

/// A width, or nullopt with the mistake noted.
std::optional<std::int32_t> read_width(const ConfigValue& item) {
  const auto width = item.as_integer();
  if (!width) return std::nullopt;
  if (*width >= 1 && *width <= kWidthMax) return static_cast<std::int32_t>(*width);
  item.fail(fmt::format("`{}` is {}; allowed: 1 to {}", item.path(), *width, kWidthMax));
  return std::nullopt;
}

}  // namespace

std::string widths_to_text(const std::vector<shape::LayerWidths>& widths) {
  std::string out = "[";
  for (const shape::LayerWidths& layer : widths) {
    out += fmt::format("{}[{}]", out.size() > 1 ? "," : "", fmt::join(layer, ","));
  }
  return out + "]";
}

Result<std::vector<shape::LayerWidths>> widths_from_text(std::string_view text) {
  const auto bad = [] {
    return error(Code::kInvalidArgument,
                 "no widths; allowed: one list a layer, such as [[24, 16], [16, 8]], of whole "
                 "numbers from 1 to 1048576");
  };
  const auto json = parse_json(text, {.values = 2 * kWidthsMax});
  if (!json || !json->is_array() || json->empty()) return bad();
  std::vector<shape::LayerWidths> out;
  for (const auto& layer : *json) {
    if (!layer.is_array() || layer.empty()) return bad();
    shape::LayerWidths& widths = out.emplace_back();
    for (const auto& width : layer) {
      if (!width.is_number_integer() || width < 1 || width > kWidthMax) return bad();
      widths.push_back(width.get<std::int32_t>());
    }
  }
  return out;
}

std::vector<shape::LayerWidths> read_widths(const ConfigValue& value) {
  std::vector<shape::LayerWidths> out;
  for (const ConfigValue& layer : value.as_array()) {
    shape::LayerWidths& widths = out.emplace_back();
    if (layer.kind() == ConfigValue::Kind::kInteger) {
      const auto width = read_width(layer);
      if (!width) return {};
      widths.push_back(*width);
      continue;
    }
    for (const ConfigValue& item : layer.as_array()) {
      const auto width = read_width(item);
      if (!width) return {};
      widths.push_back(*width);
    }
    if (widths.empty()) {
      layer.fail(fmt::format("`{}` is empty; allowed: one width a sub-MLP", layer.path()));
      return {};
    }
  }
  if (out.empty()) {
    value.fail(fmt::format("`{}` is empty; allowed: one list a layer", value.path()));
  }
  return out;
}

}  // namespace tailor::sweep
