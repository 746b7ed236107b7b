#include "geometry/work_profile_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/json.h"
#include "geometry/jackknife.h"

namespace tailor::geometry {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kFormat = "tailor-work-profile";
constexpr int kVersion = 3;
// The first whose errors are those of disjoint subsamples of whole sequences.
constexpr int kTrueErrors = 3;

// Reads members of one object; the first that is not as it must be is the error.
class Members {
 public:
  Members(const ordered_json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("is no object");
  }

  template <typename Int>
  void whole(const char* key, Int& out, bool required = true) {
    const ordered_json* value = find(key, required);
    if (value == nullptr) return;
    if (value->is_number_unsigned()) {
      const auto number = value->get<std::uint64_t>();
      out = static_cast<Int>(number);
      if (std::in_range<Int>(number)) return;
    } else if (value->is_number_integer()) {
      const auto number = value->get<std::int64_t>();
      out = static_cast<Int>(number);
      if (std::in_range<Int>(number)) return;
    }
    fail(fmt::format("\"{}\" is {}, not a whole number in range", key, value->dump()));
  }
  void number(const char* key, double& out) {
    const ordered_json* value = find(key, true);
    if (value == nullptr) return;
    if (value->is_number()) {
      out = value->get<double>();
    } else {
      fail(fmt::format("\"{}\" is {}, not a number", key, value->dump()));
    }
  }
  void text(const char* key, std::string& out) {
    const ordered_json* value = find(key, true);
    if (value == nullptr) return;
    if (value->is_string()) {
      out = value->get<std::string>();
    } else {
      fail(fmt::format("\"{}\" is {}, not a text", key, value->dump()));
    }
  }
  void flag(const char* key, bool& out) {
    const ordered_json* value = find(key, true);
    if (value == nullptr) return;
    if (value->is_boolean()) {
      out = value->get<bool>();
    } else {
      fail(fmt::format("\"{}\" is {}, not true or false", key, value->dump()));
    }
  }
  /// null is none.
  void number(const char* key, std::optional<double>& out) {
    const ordered_json* value = find(key, true);
    if (value == nullptr || value->is_null()) return;
    number(key, out.emplace());
  }
  void numbers(const char* key, std::vector<double>& out) {
    const ordered_json* values = list(key);
    if (values == nullptr) return;
    for (const ordered_json& value : *values) {
      if (!value.is_number()) return fail(fmt::format("\"{}\" holds {}", key, value.dump()));
      out.push_back(value.get<double>());
    }
  }
  const ordered_json* list(const char* key) {
    const ordered_json* value = find(key, true);
    if (value != nullptr && !value->is_array()) fail(fmt::format("\"{}\" is no list", key));
    return status_.is_ok() ? value : nullptr;
  }
  void fail(const std::string& what) {
    if (status_.is_ok()) status_ = Status(Code::kInvalidArgument, where_ + ": " + what);
  }
  const Status& status() const { return status_; }

 private:
  const ordered_json* find(const char* key, bool required) {
    if (!status_.is_ok()) return nullptr;
    const auto at = object_.find(key);
    if (at != object_.end()) return &*at;
    if (required) fail(fmt::format("\"{}\" is missing", key));
    return nullptr;
  }

  const ordered_json& object_;
  std::string where_;
  Status status_;
};

void read_errors(Members& members, const WorkProfile& profile, WorkEntry& entry) {
  members.number("standard_error", entry.standard_error);
  members.numbers("subsample_values", entry.subsample_values);
  if (!entry.standard_error) members.text("no_error", entry.no_error);
  if (!members.status().is_ok()) return;
  if (entry.subsample_values.size() != profile.subsamples) {
    members.fail(fmt::format("there are {} values for {} subsamples", entry.subsample_values.size(),
                             profile.subsamples));
  }
  if (entry.standard_error && !(*entry.standard_error >= 0)) {
    members.fail("a standard error is negative");
  }
}

// Passed over where it is not whole: nothing is computed from it.
std::optional<WorkEnergies> energies_from(const ordered_json& entry) {
  const auto at = entry.find("energies");
  if (at == entry.end() || !at->is_object()) return std::nullopt;
  WorkEnergies energies;
  bool whole = true;
  const auto number = [&whole](const ordered_json& object, const char* key, double& out) {
    const auto value = object.find(key);
    if (value == object.end() || !value->is_number()) {
      whole = false;
    } else {
      out = value->get<double>();
    }
  };
  number(*at, "energy", energies.energy);
  number(*at, "identity", energies.identity);
  const auto bounds = at->find("lower_bounds"), certified = at->find("certified");
  if (bounds == at->end() || !bounds->is_object() || certified == at->end() ||
      !certified->is_number_unsigned()) {
    return std::nullopt;
  }
  number(*bounds, "norm", energies.norm_bound);
  number(*bounds, "second", energies.second_bound);
  number(*bounds, "third", energies.third_bound);
  energies.certified = certified->get<std::size_t>();
  return whole ? std::optional(energies) : std::nullopt;
}

void put_energies(const WorkEntry& entry, ordered_json& json) {
  if (!entry.energies) return;
  const WorkEnergies& of = *entry.energies;
  const std::optional<double> ratio = of.identity_ratio();
  json["energies"] = {
      {"energy", of.energy},
      {"identity", of.identity},
      {"identity_ratio", ratio ? ordered_json(*ratio) : ordered_json()},
      {"lower_bounds",
       {{"norm", of.norm_bound}, {"second", of.second_bound}, {"third", of.third_bound}}},
      {"certified", of.certified}};
}

Status read_entries(const ordered_json& list, int version, WorkProfile& profile) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    Members members(list[i], fmt::format("work profile: entry {}", i));
    WorkEntry entry;
    std::string geometry;
    members.whole("layer", entry.layer);
    members.whole("sub_block", entry.sub_block);
    members.text("geometry", geometry);
    members.text("statistic", entry.statistic);
    members.number("value", entry.value);
    if (version >= kTrueErrors) {
      read_errors(members, profile, entry);
    } else {
      double earlier = 0;
      members.number("standard_error", earlier);
      entry.no_error = kEarlierErrors;
    }
    if (members.status().is_ok()) {
      const auto parsed = parse_geometry(geometry);
      if (parsed) {
        entry.geometry = *parsed;
      } else {
        members.fail(parsed.error().message());
      }
      if (entry.layer < 0 || entry.sub_block < -1) members.fail("a layer or sub-block is negative");
      if (!std::isfinite(entry.value)) members.fail("a value is not finite");
    }
    TAILOR_RETURN_IF_ERROR(members.status());
    entry.energies = energies_from(list[i]);
    profile.entries.push_back(std::move(entry));
  }
  return Status::ok();
}

Status read_positions(const ordered_json& list, WorkProfile& profile) {
  for (const ordered_json& subsample : list) {
    std::vector<std::uint32_t> positions;
    const auto is_position = [](const ordered_json& value) {
      return value.is_number_unsigned() && std::in_range<std::uint32_t>(value.get<std::uint64_t>());
    };
    if (!subsample.is_array() || !std::all_of(subsample.begin(), subsample.end(), is_position)) {
      return Status(Code::kInvalidArgument,
                    fmt::format("work profile: \"subsample_positions\", list {} does not hold row "
                                "numbers",
                                profile.positions.size()));
    }
    for (const ordered_json& value : subsample) positions.push_back(value.get<std::uint32_t>());
    profile.positions.push_back(std::move(positions));
  }
  return Status::ok();
}

// The error, or null and the reason.
void put_error(const WorkEntry& entry, ordered_json& json) {
  json["standard_error"] =
      entry.standard_error ? ordered_json(*entry.standard_error) : ordered_json();
  if (!entry.standard_error) json["no_error"] = entry.no_error;
}

void put_sampling(const WorkProfile& profile, ordered_json& json) {
  json["tokens"] = profile.tokens;
  json["linear_tokens"] = profile.linear_tokens;
  json["subsamples"] = profile.subsamples;
  json["subsamples_asked"] = profile.subsamples_asked;
  json["usable"] = profile.usable;
  json["sequences"] = profile.sequences;
  json["sequences_given"] = profile.sequences_given;
  json["subsample_tokens"] = profile.subsample_tokens;
  json["no_error"] = profile.no_error;
  json["rho"] = profile.rho;
  json["seed"] = profile.seed;
  json["dropped"] = profile.dropped;
}

void read_sampling(Members& members, WorkProfile& profile) {
  members.whole("subsamples_asked", profile.subsamples_asked);
  members.whole("usable", profile.usable);
  members.whole("sequences", profile.sequences);
  members.flag("sequences_given", profile.sequences_given);
  members.text("no_error", profile.no_error);
  const ordered_json* tokens = members.list("subsample_tokens");
  if (tokens == nullptr) return;
  for (const ordered_json& value : *tokens) {
    if (!value.is_number_unsigned()) {
      return members.fail("\"subsample_tokens\" does not hold numbers of tokens");
    }
    profile.subsample_tokens.push_back(value.get<std::size_t>());
  }
  if (profile.usable == 0 && profile.subsamples > 0) members.fail("\"usable\" is 0");
  if (profile.subsample_tokens.size() != profile.subsamples) {
    members.fail("\"subsample_tokens\" is not one number a subsample");
  }
}

}  // namespace

std::string work_profile_json(const WorkProfile& profile) {
  ordered_json entries = ordered_json::array();
  for (const WorkEntry& entry : profile.entries) {
    ordered_json one = {{"layer", entry.layer},
                        {"sub_block", entry.sub_block},
                        {"geometry", geometry_name(entry.geometry)},
                        {"statistic", entry.statistic},
                        {"value", entry.value}};
    put_error(entry, one);
    one["subsample_values"] = entry.subsample_values;
    put_energies(entry, one);
    entries.push_back(std::move(one));
  }
  ordered_json out = {{"format", kFormat}, {"version", kVersion}};
  put_sampling(profile, out);
  out["entries"] = std::move(entries);
  out["subsample_positions"] = profile.positions;
  return out.dump();
}

Result<WorkProfile> work_profile_from_json(std::string_view json) {
  auto parsed = parse_ordered_json(json);
  if (!parsed) {
    return error(parsed.error().with_context("work profile: this is no JSON, or it was cut short"));
  }
  const ordered_json object = *std::move(parsed);
  Members members(object, "work profile");
  std::string format;
  int version = 0;
  members.text("format", format);
  members.whole("version", version);
  TAILOR_RETURN_IF_ERROR(members.status());
  if (format != kFormat) {
    return error(Code::kInvalidArgument,
                 fmt::format("work profile: \"format\" is \"{}\", not \"{}\"", format, kFormat));
  }
  if (version < 1 || version > kVersion) {
    return error(Code::kUnimplemented,
                 fmt::format("work profile: version {} is not known, only 1 to {}; use a newer "
                             "Tailor",
                             version, kVersion));
  }
  WorkProfile profile;
  members.whole("tokens", profile.tokens);
  members.whole("linear_tokens", profile.linear_tokens, version > 1);
  members.whole("subsamples", profile.subsamples);
  members.number("rho", profile.rho);
  members.whole("seed", profile.seed);
  members.whole("dropped", profile.dropped);
  if (version >= kTrueErrors) {
    read_sampling(members, profile);
  } else {
    profile.no_error = kEarlierErrors;
  }
  const ordered_json* entries = members.list("entries");
  const ordered_json* positions = members.list("subsample_positions");
  if (!(profile.rho > 0 && profile.rho < 1)) members.fail("\"rho\" is not between 0 and 1");
  TAILOR_RETURN_IF_ERROR(members.status());
  TAILOR_RETURN_IF_ERROR(read_entries(*entries, version, profile));
  TAILOR_RETURN_IF_ERROR(read_positions(*positions, profile));
  return profile;
}

ordered_json work_measurement_json(const WorkProfile& profile) {
  const auto shown = [](double value) -> ordered_json {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return value;
  };
  const auto value_json = [&](double value, const std::optional<double>& se,
                              const std::string& no_error) {
    ordered_json out = {{"value", shown(value)}};
    out["standard_error"] = se ? shown(*se) : ordered_json();
    if (!se) out["no_error"] = no_error;
    return out;
  };
  ordered_json json = ordered_json::object();
  const bool one_layer = std::all_of(
      profile.entries.begin(), profile.entries.end(),
      [&](const WorkEntry& entry) { return entry.layer == profile.entries.front().layer; });
  ordered_json entries = ordered_json::array();
  for (const WorkEntry& entry : profile.entries) {
    const ordered_json value = value_json(entry.value, entry.standard_error, entry.no_error);
    if (one_layer) json[std::string(geometry_name(entry.geometry))][entry.statistic] = value;
    ordered_json one = {{"layer", entry.layer},
                        {"sub_block", entry.sub_block},
                        {"geometry", geometry_name(entry.geometry)},
                        {"statistic", entry.statistic}};
    one.update(value);
    one["subsample_values"] = ordered_json::array();
    for (const double of : entry.subsample_values) one["subsample_values"].push_back(shown(of));
    put_energies(entry, one);
    entries.push_back(std::move(one));
  }
  for (const FrontLoad& of : front_loads(profile)) {
    json["front_load"][std::string(geometry_name(of.geometry))][of.statistic] =
        value_json(of.value, of.standard_error, of.no_error);
  }
  json["entries"] = std::move(entries);
  put_sampling(profile, json);
  json["duplicates"] = profile.duplicates;
  return json;
}

}  // namespace tailor::geometry
