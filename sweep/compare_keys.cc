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

Result<CompareSpec> compare_of_file(std::string_view toml, const std::string& file) {
  TAILOR_ASSIGN_OR_RETURN(ConfigDocument document, ConfigDocument::parse(toml, file));
  ConfigTable root = document.root();
  return read_compare(root);
}

}  // namespace tailor::sweep
