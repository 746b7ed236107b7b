#include "geometry/work_profile_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace tailor::geometry {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kFormat = "tailor-work-profile";
constexpr int kVersion = 2;

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

Status read_entries(const ordered_json& list, WorkProfile& profile) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    Members members(list[i], fmt::format("work profile: entry {}", i));
    WorkEntry entry;
    std::string geometry;
    members.whole("layer", entry.layer);
    members.whole("sub_block", entry.sub_block);
    members.text("geometry", geometry);
    members.text("statistic", entry.statistic);
    members.number("value", entry.value);
    members.number("standard_error", entry.standard_error);
    if (members.status().is_ok()) {
      const auto parsed = parse_geometry(geometry);
      if (parsed) {
        entry.geometry = *parsed;
      } else {
        members.fail(parsed.error().message());
      }
      if (entry.layer < 0 || entry.sub_block < -1) members.fail("a layer or sub-block is negative");
      if (!std::isfinite(entry.value) || !(entry.standard_error >= 0)) {
        members.fail("a value is not finite, or a standard error negative");
      }
    }
    TAILOR_RETURN_IF_ERROR(members.status());
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

}  // namespace

std::string work_profile_json(const WorkProfile& profile) {
  ordered_json entries = ordered_json::array();
  for (const WorkEntry& entry : profile.entries) {
    entries.push_back({{"layer", entry.layer},
                       {"sub_block", entry.sub_block},
                       {"geometry", geometry_name(entry.geometry)},
                       {"statistic", entry.statistic},
                       {"value", entry.value},
                       {"standard_error", entry.standard_error}});
  }
  const ordered_json out = {{"format", kFormat},
                            {"version", kVersion},
                            {"tokens", profile.tokens},
                            {"linear_tokens", profile.linear_tokens},
                            {"subsamples", profile.subsamples},
                            {"rho", profile.rho},
                            {"seed", profile.seed},
                            {"dropped", profile.dropped},
                            {"entries", std::move(entries)},
                            {"subsample_positions", profile.positions}};
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
  const ordered_json* entries = members.list("entries");
  const ordered_json* positions = members.list("subsample_positions");
  if (!(profile.rho > 0 && profile.rho < 1)) members.fail("\"rho\" is not between 0 and 1");
  TAILOR_RETURN_IF_ERROR(members.status());
  TAILOR_RETURN_IF_ERROR(read_entries(*entries, profile));
  TAILOR_RETURN_IF_ERROR(read_positions(*positions, profile));
  return profile;
}

ordered_json work_measurement_json(const WorkProfile& profile) {
  const auto shown = [](double value) -> ordered_json {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return value;
  };
  // With one subsample there is no error to speak of; 0 would claim too much.
  const auto error_json = [&](const WorkEntry& entry) {
    return profile.subsamples > 1 ? shown(entry.standard_error) : ordered_json();
  };
  ordered_json json = ordered_json::object();
  const bool one_layer = std::all_of(
      profile.entries.begin(), profile.entries.end(),
      [&](const WorkEntry& entry) { return entry.layer == profile.entries.front().layer; });
  ordered_json entries = ordered_json::array();
  for (const WorkEntry& entry : profile.entries) {
    if (one_layer) {
      json[std::string(geometry_name(entry.geometry))][entry.statistic] = {
          {"value", shown(entry.value)}, {"standard_error", error_json(entry)}};
    }
    entries.push_back({{"layer", entry.layer},
                       {"sub_block", entry.sub_block},
                       {"geometry", geometry_name(entry.geometry)},
                       {"statistic", entry.statistic},
                       {"value", shown(entry.value)},
                       {"standard_error", error_json(entry)}});
  }
  json["entries"] = std::move(entries);
  json["tokens"] = profile.tokens;
  json["linear_tokens"] = profile.linear_tokens;
  json["subsamples"] = profile.subsamples;
  json["rho"] = profile.rho;
  json["seed"] = profile.seed;
  json["dropped"] = profile.dropped;
  json["duplicates"] = profile.duplicates;
  return json;
}

}  // namespace tailor::geometry
