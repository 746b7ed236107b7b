// Names of the reasons to stop.
#include "protocol/messages.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace tailor::protocol {
namespace {

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
