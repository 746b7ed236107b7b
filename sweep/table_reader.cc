#include "sweep/table_reader.h"

#include <fmt/format.h>

#include "model/shape/presets.h"
#include "sweep/widths.h"

namespace tailor::sweep {

void read_keys(ConfigTable& table, const std::string& prefix, std::span<const Key> keys,
               const KeySink& sink) {
  std::vector<std::string> groups;
  for (const Key& key : keys) {
    if (!key.path.starts_with(prefix)) continue;
    const std::string_view rest = key.path.substr(prefix.size());
    if (const auto value = table.value(rest)) sink(key, *value);
    const std::size_t dot = rest.find('.');
    if (dot == std::string_view::npos) continue;
    const std::string group(rest.substr(0, dot));
    if (groups.empty() || groups.back() != group) groups.push_back(group);
  }
  for (const std::string& group : groups) {
    auto nested = table.table(group);
    if (!nested) continue;
    read_keys(*nested, prefix + group + ".", keys, sink);
    (void)nested->finish();  // noted in the document
  }
}

std::optional<AxisValue> read_value(const Key& key, const ConfigValue& value) {
  std::optional<AxisValue> out;
  switch (key.kind) {
    case KeyKind::kInteger:
      if (const auto v = value.as_integer()) out = *v;
      break;
    case KeyKind::kNumber:
      if (value.kind() == ConfigValue::Kind::kInteger) {
        out = *value.as_integer();
      } else if (const auto v = value.as_float()) {
        out = *v;
      }
      break;
    case KeyKind::kBoolean:
      if (const auto v = value.as_boolean()) out = *v;
      break;
    case KeyKind::kChoice:
      if (const auto v = value.as_string()) out = *v;
      break;
    case KeyKind::kWidths:
      if (const auto widths = read_widths(value); !widths.empty()) out = widths_to_text(widths);
      break;
    case KeyKind::kBetas:
      break;  // read_values takes it apart
    case KeyKind::kText:
      if (value.kind() == ConfigValue::Kind::kInteger) {
        out = *value.as_integer();
      } else if (const auto v = value.as_string()) {
        out = *v;
      }
      break;
  }
  if (!out) return std::nullopt;
  if (const Status status = check_value(key, *out); !status.is_ok()) {
    value.fail(status.message());
    return std::nullopt;
  }
  return out;
}

std::vector<std::pair<std::string_view, AxisValue>> read_values(const Key& key,
                                                                const ConfigValue& value) {
  if (key.kind != KeyKind::kBetas) {
    const auto read = read_value(key, value);
    if (!read) return {};
    return {{key.path, *read}};
  }
  const auto items = value.as_array();
  if (items.size() != 2) {
    value.fail(fmt::format("`{}` must have two numbers, such as [0.9, 0.95]", key.path));
    return {};
  }
  const Key* first = find_key("train.optimizer.beta1");
  const Key* second = find_key("train.optimizer.beta2");
  const auto beta1 = read_value(*first, items[0]), beta2 = read_value(*second, items[1]);
  if (!beta1 || !beta2) return {};
  return {{first->path, *beta1}, {second->path, *beta2}};
}

void read_point(ConfigTable& table, const std::string& prefix, std::span<const Key> keys,
                Point* point) {
  read_keys(table, prefix, keys, [point](const Key& key, const ConfigValue& value) {
    for (auto& [path, read] : read_values(key, value)) {
      if (!point->emplace(std::string(path), std::move(read)).second) {
        value.fail(fmt::format("`{}` is set twice", path));
      }
    }
  });
}

void read_architecture(ConfigTable& table, Point* point) {
  const auto preset_name = table.value("preset");
  read_point(table, "", architecture_keys(), point);
  const bool ratio = point->contains("d_h_ratio");
  if (ratio && point->contains("ffn.d_h")) {
    table.value("d_h_ratio")
        ->fail("`d_h_ratio` and `ffn.d_h` say the same thing twice; allowed: one of them");
  }
  if (!preset_name) return;
  const auto name = preset_name->as_string();
  if (!name) return;
  const auto preset = shape::find_preset(*name);
  if (!preset) return preset_name->fail(preset.error().message());
  const auto underneath = [point](const char* key, AxisValue value) {
    point->emplace(key, std::move(value));
  };
  underneath("d_model", std::int64_t{preset->d_model});
  underneath("layers", std::int64_t{preset->layers});
  underneath("head_dim", std::int64_t{preset->head_dim});
  underneath("ffn.kind", std::string(shape::ffn_kind_name(preset->ffn_kind)));
  underneath("ffn.k", std::int64_t{preset->k});
  if (!ratio) underneath("ffn.d_h", std::int64_t{preset->d_h});
}

}  // namespace tailor::sweep
