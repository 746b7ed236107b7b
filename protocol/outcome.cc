// Names of end classes and of reasons to stop.
#include "protocol/outcome.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "base/check.h"

namespace tailor::protocol {
namespace {

constexpr std::array<std::pair<EndClass, std::string_view>, 11> kEndClasses = {
    {{EndClass::kCompleted, "completed"},
     {EndClass::kStopped, "stopped"},
     {EndClass::kUser, "user"},
     {EndClass::kOom, "oom"},
     {EndClass::kNan, "nan"},
     {EndClass::kData, "data"},
     {EndClass::kTimeout, "timeout"},
     {EndClass::kPreempted, "preempted"},
     {EndClass::kNodeLost, "node_lost"},
     {EndClass::kLeaseLost, "lease_lost"},
     {EndClass::kInfrastructure, "infrastructure"}}};

constexpr std::array<std::pair<StopReason, std::string_view>, 9> kStopReasons = {
    {{StopReason::kNone, ""},
     {StopReason::kPaused, "paused"},
     {StopReason::kCancelled, "cancelled"},
     {StopReason::kPreempted, "preempted"},
     {StopReason::kDrained, "drained"},
     {StopReason::kTimeout, "timeout"},
     {StopReason::kFenced, "fenced"},
     {StopReason::kGang, "gang"},
     {StopReason::kOther, "other"}}};

}  // namespace

std::string_view end_class_name(EndClass end) {
  for (const auto& [item, name] : kEndClasses) {
    if (item == end) return name;
  }
  TAILOR_CHECK(false, "end={}", static_cast<int>(end));
  return {};
}

std::string_view end_class_name(std::optional<EndClass> end) {
  return end ? end_class_name(*end) : std::string_view();
}

Result<EndClass> parse_end_class(std::string_view name) {
  std::string allowed;
  for (const auto& [item, known] : kEndClasses) {
    if (known == name) return item;
    allowed += (allowed.empty() ? "" : ", ") + std::string(known);
  }
  return error(Code::kInvalidArgument,
               fmt::format("there is no end class \"{}\"; allowed: {}", name, allowed));
}

std::string_view stop_reason_name(StopReason reason) {
  for (const auto& [item, name] : kStopReasons) {
    if (item == reason) return name;
  }
  TAILOR_CHECK(false, "reason={}", static_cast<int>(reason));
  return {};
}

StopReason parse_stop_reason(std::string_view name) {
  for (const auto& [item, known] : kStopReasons) {
    if (known == name) return item;
  }
  return StopReason::kOther;
}

}  // namespace tailor::protocol
