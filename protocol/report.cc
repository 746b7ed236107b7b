// Names of end classes and the meaning of a trainer's exit codes.
#include "protocol/report.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/check.h"

namespace tailor::protocol {
namespace {

constexpr std::array<std::pair<EndClass, std::string_view>, 11> kNames = {
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

}  // namespace

std::string_view end_class_name(EndClass end) {
  for (const auto& [item, name] : kNames) {
    if (item == end) return name;
  }
  TAILOR_CHECK(false, "end={}", static_cast<int>(end));
  return {};
}

Result<EndClass> parse_end_class(std::string_view name) {
  std::string allowed;
  for (const auto& [item, known] : kNames) {
    if (known == name) return item;
    allowed += (allowed.empty() ? "" : ", ") + std::string(known);
  }
  return error(Code::kInvalidArgument,
               fmt::format("there is no end class \"{}\"; allowed: {}", name, allowed));
}

EndClass end_class_of_exit(int exit_code) {
  switch (static_cast<TrainerExit>(exit_code)) {
    case TrainerExit::kCompleted:
      return EndClass::kCompleted;
    case TrainerExit::kUsage:
      return EndClass::kUser;
    case TrainerExit::kData:
      return EndClass::kData;
    case TrainerExit::kOom:
      return EndClass::kOom;
    case TrainerExit::kNan:
      return EndClass::kNan;
    case TrainerExit::kStopped:
      return EndClass::kStopped;
    case TrainerExit::kInternal:
    case TrainerExit::kInfrastructure:
    case TrainerExit::kLostRank:
      return EndClass::kInfrastructure;
  }
  return EndClass::kInfrastructure;
}

}  // namespace tailor::protocol
