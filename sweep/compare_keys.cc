#include "sweep/compare_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "sweep/keys.h"
#include "sweep/table_reader.h"

namespace tailor::sweep {
namespace {

/// Names of families and sizes stand in candidates' names (up to 200 characters).
constexpr std::size_t kEntryNameBytesMax = 90;

void check_entry_name(const ConfigValue& value, const std::string& name, std::string_view kind,
                      std::set<std::string>& names) {
  if (trim(name).empty() || name.size() > kEntryNameBytesMax || escape_controls(name) != name) {
    value.fail(fmt::format("a {}'s `name` must have 1 to {} printable characters", kind,
                           kEntryNameBytesMax));
  } else if (!names.insert(name).second) {
    value.fail(fmt::format("two entries of `scaling.{}` are named \"{}\"", kind, name));
  }
}

std::vector<ScalingEntry> read_entries(ConfigTable& scaling, const char* kind) {
  std::vector<ScalingEntry> out;
  std::set<std::string> names;
  for (const ConfigValue& item : scaling.array(kind)) {
    auto table = item.as_table();
    if (!table) return out;
    ScalingEntry entry{"", {}, item};
    const auto name = table->value("name");
    read_point(*table, "", architecture_keys(), &entry.point);
    read_point(*table, "", train_keys(), &entry.point);
    read_point(*table, "", budget_keys(), &entry.point);
    (void)table->finish();  // noted in the document
    if (!name) {
      table->fail(fmt::format("`name` of this [[scaling.{}]] is missing", kind));
      return out;
    }
    entry.name = name->as_string().value_or("");
    check_entry_name(*name, entry.name, kind, names);
    out.push_back(std::move(entry));
  }
  if (out.empty() || out.size() > kScalingEntriesMax) {
    scaling.fail(fmt::format("[scaling] has {} [[scaling.{}]]; allowed: 1 to {}", out.size(), kind,
                             kScalingEntriesMax));
  }
  return out;
}

}  // namespace

std::string scaling_candidate_name(std::string_view family, std::string_view size) {
  return fmt::format("{} @ {}", family, size);
}

Result<CompareSpec> read_compare(ConfigTable& root) {
  CompareSpec out;
  auto table = root.table("compare");
  if (!table) return out;
  out.primary = table->string("primary").value_or("");
  constexpr double kLeast = 1e-9, kMost = 1e9;
  out.smallest_effect =
      table->number_in("smallest_effect", kLeast, kMost).value_or(out.smallest_effect);
  out.expected_sd = table->number_in("expected_sd", kLeast, kMost);
  const Status status = table->finish();
  if (!status.is_ok()) return error(status);
  return out;
}

Result<ScalingFile> read_scaling(ConfigTable& root) {
  ScalingFile out;
  auto table = root.table("scaling");
  if (!table) return out;
  const auto baseline = table->value("baseline");
  out.families = read_entries(*table, "family");
  out.sizes = read_entries(*table, "size");
  const Status status = table->finish();
  if (!status.is_ok()) return error(status);
  out.baseline = out.families.front().name;
  if (!baseline) return out;
  out.baseline = baseline->as_string().value_or("");
  std::vector<std::string_view> known;
  for (const ScalingEntry& family : out.families) known.push_back(family.name);
  if (std::find(known.begin(), known.end(), out.baseline) == known.end()) {
    const std::string near = nearest_name(out.baseline, known);
    baseline->fail(fmt::format("`scaling.baseline` is \"{}\"{}; allowed: {}", out.baseline,
                               near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                               fmt::join(known, ", ")));
  }
  return out;
}

std::string calibration_name(std::int32_t layer, double factor) {
  return fmt::format("layer {} x {}", layer, factor);
}

Result<std::optional<CalibrateFile>> read_calibrate(ConfigTable& root) {
  auto table = root.table("calibrate");
  if (!table) return std::optional<CalibrateFile>();
  const std::string base = table->string("candidate").value_or("");
  const auto layers = table->value("layers");
  const auto factors = table->value("factors");
  const Status status = table->finish();
  if (!status.is_ok()) return error(status);
  if (!factors) {
    table->fail("`calibrate.factors` is missing; such as [0.25, 0.5, 2.0], of a layer's width");
    return std::optional<CalibrateFile>();
  }
  CalibrateFile out{base, {}, {}, *factors};
  if (layers && layers->kind() == ConfigValue::Kind::kArray) {
    for (const ConfigValue& item : layers->as_array()) {
      const auto layer = item.as_integer();
      if (!layer) return std::optional<CalibrateFile>();
      const auto number = static_cast<std::int32_t>(*layer);
      if (number != *layer || number < 0 ||
          std::find(out.layers.begin(), out.layers.end(), number) != out.layers.end()) {
        item.fail(
            fmt::format("`calibrate.layers` has {}; allowed: layers from 0, each once", *layer));
        return std::optional<CalibrateFile>();
      }
      out.layers.push_back(number);
    }
  } else if (layers && layers->as_string().value_or("all") != "all") {
    layers->fail("`calibrate.layers` must be \"all\" or a list of layers from 0");
  }
  for (const ConfigValue& item : factors->as_array()) {
    const auto factor = item.as_float();
    if (!factor) return std::optional<CalibrateFile>();
    const bool again =
        std::find(out.factors.begin(), out.factors.end(), *factor) != out.factors.end();
    if (!(*factor >= 0.01 && *factor <= 100) || *factor == 1 || again) {
      item.fail(fmt::format(
          "`calibrate.factors` has {}{}; allowed: 0.01 to 100, without 1 (the base itself)",
          *factor, again ? " twice" : ""));
      return std::optional<CalibrateFile>();
    }
    out.factors.push_back(*factor);
  }
  if (out.factors.size() < 2) {
    factors->fail(
        "`calibrate.factors` needs two entries at least: an exponent cannot be fitted to less; "
        "three, so four widths with the base's, test the form of the law");
  }
  return std::optional<CalibrateFile>(std::move(out));
}

Result<std::string> calibrated_candidate_of_file(std::string_view toml, const std::string& file) {
  TAILOR_ASSIGN_OR_RETURN(ConfigDocument document, ConfigDocument::parse(toml, file));
  ConfigTable root = document.root();
  TAILOR_ASSIGN_OR_RETURN(const std::optional<CalibrateFile> calibrate, read_calibrate(root));
  return calibrate ? calibrate->base : std::string();
}

Result<CompareSpec> compare_of_file(std::string_view toml, const std::string& file) {
  TAILOR_ASSIGN_OR_RETURN(ConfigDocument document, ConfigDocument::parse(toml, file));
  ConfigTable root = document.root();
  return read_compare(root);
}

}  // namespace tailor::sweep
