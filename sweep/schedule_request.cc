#include "sweep/schedule_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sweep/blueprint.h"

namespace tailor::sweep {
namespace {

constexpr std::pair<std::string_view, geometry::ExponentRule> kExponentRules[] = {
    {"2/d", geometry::ExponentRule::kTwoOverD},
    {"s/d", geometry::ExponentRule::kSmoothnessOverD},
    {"2s/d", geometry::ExponentRule::kTwiceSmoothnessOverD},
    {"constant", geometry::ExponentRule::kConstant},
};

/// Keys that only some kinds of schedules understand.
constexpr std::pair<std::string_view, std::string_view> kKindOfKey[] = {
    {"schedule.steepness", "sigmoid"}, {"schedule.turn", "bowtie"}, {"schedule.waist", "bowtie"}};

constexpr std::array<std::string_view, 18> kGeometryKeys = {
    "schedule.from",      "schedule.seed",    "schedule.iterate",  "schedule.geometry",
    "schedule.statistic", "schedule.control", "schedule.sigma",    "schedule.control_seed",
    "schedule.smoothing", "schedule.window",  "schedule.exponent", "schedule.smoothness",
    "schedule.dimension", "schedule.floor",   "schedule.cap",      "schedule.width_unit",
    "schedule.quantum",   "schedule.sub_mlps"};

std::optional<std::string> text_at(const Point& keys, const std::string& path) {
  const auto found = keys.find(path);
  if (found == keys.end()) return std::nullopt;
  return to_text(found->second);
}

std::optional<std::int64_t> whole_at(const Point& keys, const std::string& path) {
  const auto found = keys.find(path);
  if (found == keys.end()) return std::nullopt;
  return std::get<std::int64_t>(found->second);
}

/// The one kind of schedule that understands a key; "" = several do.
std::string_view owner_of(std::string_view key) {
  for (const auto& [name, owner] : kKindOfKey) {
    if (name == key) return owner;
  }
  const bool geometry =
      std::find(kGeometryKeys.begin(), kGeometryKeys.end(), key) != kGeometryKeys.end();
  return geometry ? "geometry" : "";
}

Result<std::string> required_text(const Point& keys, const std::string& path) {
  auto value = text_at(keys, path);
  if (value) return *std::move(value);
  return error(Code::kInvalidArgument,
               fmt::format("`{}` is missing: schedule.kind = \"geometry\" needs it", path));
}

}  // namespace

bool asks_for_geometry(const Point& keys) {
  const auto kind = keys.find("schedule.kind");
  return kind != keys.end() && kind->second == AxisValue(std::string("geometry"));
}

Status check_schedule_keys(const Point& keys) {
  const std::string kind = text_at(keys, "schedule.kind").value_or("uniform");
  for (const auto& [key, value] : keys) {
    const std::string_view owner = owner_of(key);
    if (owner.empty() || owner == kind) continue;
    return {Code::kInvalidArgument,
            fmt::format("`{}` is for schedule.kind = \"{}\", and this one is \"{}\"; leave it out",
                        key, owner, kind)};
  }
  return Status::ok();
}

void drop_foreign_schedule_keys(Point& keys, const Point& own) {
  const std::string kind = text_at(keys, "schedule.kind").value_or("uniform");
  std::erase_if(keys, [&](const auto& entry) {
    const std::string_view owner = owner_of(entry.first);
    return !owner.empty() && owner != kind && !own.contains(entry.first);
  });
}

Result<ScheduleRequest> request_of(const Point& keys) {
  ScheduleRequest out;
  out.from = text_at(keys, "schedule.from").value_or("");
  if (const auto seed = whole_at(keys, "schedule.seed"))
    out.seed = static_cast<std::uint64_t>(*seed);
  out.iterate = static_cast<std::int32_t>(whole_at(keys, "schedule.iterate").value_or(0));
  TAILOR_ASSIGN_OR_RETURN(out.geometry, required_text(keys, "schedule.geometry"));
  TAILOR_ASSIGN_OR_RETURN(out.statistic, required_text(keys, "schedule.statistic"));
  if (const auto control = text_at(keys, "schedule.control")) {
    TAILOR_ASSIGN_OR_RETURN(out.shaping.control, geometry::parse_control(*control));
  }
  if (const auto smoothing = text_at(keys, "schedule.smoothing")) {
    TAILOR_ASSIGN_OR_RETURN(out.shaping.smoothing, geometry::parse_smoothing(*smoothing));
  }
  out.shaping.sigma = number_of(keys, "schedule.sigma").value_or(out.shaping.sigma);
  out.shaping.window = integer_of(keys, "schedule.window").value_or(out.shaping.window);
  if (out.shaping.window % 2 == 0) {
    return error(Code::kInvalidArgument,
                 fmt::format("`schedule.window` is {}; allowed: odd numbers", out.shaping.window));
  }
  out.shaping.seed =
      static_cast<std::uint64_t>(whole_at(keys, "schedule.control_seed").value_or(1));
  const std::string rule = text_at(keys, "schedule.exponent").value_or("2/d");
  for (const auto& [name, value] : kExponentRules) {
    if (name == rule) out.rule = value;
  }
  out.smoothness = number_of(keys, "schedule.smoothness").value_or(1);
  out.dimension = text_at(keys, "schedule.dimension").value_or(out.dimension);
  out.floor = number_of(keys, "schedule.floor").value_or(out.floor);
  out.cap = number_of(keys, "schedule.cap");
  if (text_at(keys, "schedule.width_unit") == "relative") out.unit = geometry::WidthUnit::kRelative;
  out.quantum = integer_of(keys, "schedule.quantum").value_or(0);
  out.own_sub_mlps = text_at(keys, "schedule.sub_mlps") == "own";
  return out;
}

std::uint64_t reference_seed(const Spec& spec, const ScheduleRequest& request) {
  return request.seed.value_or(spec.seeds.front());
}

std::string request_text(const ScheduleRequest& request) {
  std::string out = fmt::format("{}, {}", request.statistic, request.geometry);
  if (request.shaping.control != geometry::Control::kNone) {
    out += fmt::format(", {}", geometry::control_name(request.shaping.control));
  }
  return out;
}

}  // namespace tailor::sweep
