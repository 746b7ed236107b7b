// The rules of early stopping by name. To add one: a file NAME.cc with its factory in rule.h, and a
// line here; tests/coordinator/scheduler/early_stopping then runs the shared suite over it.
#include <fmt/format.h>

#include <array>

#include "base/text.h"
#include "coordinator/scheduler/early_stopping/rule.h"

namespace tailor::scheduler {
namespace {

struct RuleEntry {
  std::string_view name;
  RuleFactory make;
};

constexpr std::array kRules = {
    RuleEntry{"none", make_none},           RuleEntry{"median", make_median},
    RuleEntry{"halving", make_halving},     RuleEntry{"asha", make_asha},
    RuleEntry{"hyperband", make_hyperband},
};

constexpr std::array<std::string_view, 6> kWhyNames = {"",     "not_finite", "median",
                                                       "rung", "cannot_win", "decided"};

}  // namespace

std::string_view stop_why_name(StopWhy why) { return kWhyNames[static_cast<std::size_t>(why)]; }

Result<StopWhy> parse_stop_why(std::string_view name) {
  for (std::size_t i = 0; i < kWhyNames.size(); ++i) {
    if (kWhyNames[i] == name) return static_cast<StopWhy>(i);
  }
  return error(Code::kInvalidArgument,
               fmt::format("'{}' is no reason to stop a trial early", name.substr(0, 40)));
}

std::vector<std::string_view> rule_names() {
  std::vector<std::string_view> names;
  for (const RuleEntry& entry : kRules) names.push_back(entry.name);
  return names;
}

Result<std::unique_ptr<Rule>> make_rule(const RuleSettings& settings) {
  if (settings.reduction < 2) {
    return error(Code::kInvalidArgument,
                 fmt::format("early stopping with a reduction of {}; allowed: 2 and above",
                             settings.reduction));
  }
  for (const RuleEntry& entry : kRules) {
    if (entry.name == settings.kind) return entry.make(settings);
  }
  const std::vector<std::string_view> names = rule_names();
  const std::string nearest = nearest_name(settings.kind, names);
  return error(
      Code::kInvalidArgument,
      fmt::format("no rule of early stopping is called '{}'{}; there are: {}", settings.kind,
                  nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
                  fmt::join(names, ", ")));
}

}  // namespace tailor::scheduler
