#include "sweep/retry_rules.h"

#include <fmt/format.h>

#include <array>

namespace tailor::sweep {
namespace {

using protocol::EndClass;

constexpr std::array<RetryRule, 9> kRules = {{
    // class, own fault, limit, delayed
    {EndClass::kInfrastructure, false, 5, true},
    {EndClass::kNodeLost, false, 5, false},
    {EndClass::kLeaseLost, false, 5, false},
    {EndClass::kPreempted, false, 20, false},
    {EndClass::kOom, true, 1, true},
    {EndClass::kTimeout, true, 1, true},
    {EndClass::kNan, true, 0, true},
    {EndClass::kData, true, 0, true},
    {EndClass::kUser, true, 0, true},
}};

}  // namespace

std::span<const RetryRule> retry_rules() { return kRules; }

const RetryRule* find_retry_rule(EndClass end) {
  for (const RetryRule& rule : kRules) {
    if (rule.end == end) return &rule;
  }
  return nullptr;
}

std::string retry_text(const std::map<EndClass, std::int32_t>& limits) {
  std::string text;
  for (const RetryRule& rule : kRules) {
    const auto found = limits.find(rule.end);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", protocol::end_class_name(rule.end),
                        found == limits.end() ? rule.limit : found->second);
  }
  return text;
}

}  // namespace tailor::sweep
