#include "coordinator/scheduler/early_stopping/rungs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tailor::scheduler {

std::vector<std::int64_t> rungs_of(std::string_view kind, std::int64_t first,
                                   std::uint32_t reduction, std::int64_t tokens) {
  TAILOR_CHECK(first > 0 && reduction >= 2, "first={} reduction={}", first, reduction);
  std::vector<std::int64_t> rungs;
  if (kind == "none") return rungs;
  const bool steps = kind == "median";
  for (std::int64_t at = first; at < tokens && rungs.size() < kRungsMax;) {
    rungs.push_back(at);
    if (steps ? at > tokens - first : at > tokens / reduction) break;  // the next is past the end
    at = steps ? at + first : at * reduction;
  }
  return rungs;
}

bool is_comparable(double value) { return std::isfinite(value); }

std::uint64_t RungList::places(std::uint64_t size, std::uint32_t reduction) {
  return std::max<std::uint64_t>(1, size / reduction);
}

std::optional<std::uint64_t> RungList::places_max(std::uint32_t reduction) const {
  if (!may_come) return std::nullopt;
  return places(order.size() + *may_come, reduction);
}

RungList rung_list(const Field& field, std::span<const std::uint32_t> members, std::uint32_t rung,
                   std::optional<std::uint64_t> to_come) {
  RungList list;
  list.may_come = to_come;
  for (const std::uint32_t index : members) {
    const Unit& unit = field.units[index];
    if (unit.exempt || unit.rungs <= rung) continue;
    if (unit.values.size() > rung) {
      list.order.push_back(index);
    } else if (list.may_come && (unit.phase == Phase::kTraining || unit.phase == Phase::kWaiting)) {
      ++*list.may_come;
    }
  }
  const auto value = [&](std::uint32_t index) { return field.units[index].values[rung]; };
  std::sort(list.order.begin(), list.order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const double x = value(a), y = value(b);
    if (is_comparable(x) != is_comparable(y)) return is_comparable(x);
    if (is_comparable(x) && x != y) return x < y;
    return a < b;
  });
  while (list.finite < list.order.size() && is_comparable(value(list.order[list.finite]))) {
    ++list.finite;
  }
  return list;
}

void halve(const Field& field, std::span<const std::uint32_t> members, std::uint32_t begin,
           const RuleSettings& settings, std::optional<std::uint64_t> to_come, bool eager,
           std::vector<Decision>& out) {
  // Stopped or gone on by a decision of this call: both change who may reach higher rungs.
  std::vector<Unit> units(field.units.begin(), field.units.end());
  const Field now{units, field.to_come, field.arrived};
  const auto take = [&](std::uint32_t unit, StopWhy why, std::string text) {
    units[unit].phase = why == StopWhy::kNone ? Phase::kTraining : Phase::kStopped;
    out.push_back({unit, why, std::move(text)});
  };
  // From the lowest rung up: who is stopped there cannot come to the higher ones.
  for (std::uint32_t rung = begin; rung < settings.levels; ++rung) {
    const RungList list = rung_list(now, members, rung, to_come);
    if (list.order.empty()) continue;
    const std::uint64_t open = RungList::places(list.order.size(), settings.reduction);
    const auto most = list.places_max(settings.reduction);
    for (std::size_t rank = 0; rank < list.order.size(); ++rank) {
      const std::uint32_t unit = list.order[rank];
      const bool here =
          units[unit].phase == Phase::kWaiting && units[unit].values.size() == rung + 1u;
      if (!here) continue;
      if (rank >= list.finite) {
        take(unit, StopWhy::kNotFinite, fmt::format("its value at rung {} is not finite", rung));
        continue;
      }
      // While others may come, the one place that few units have is not given away. What ASHA gave
      // early it does not take back: a unit among the best goes on, however many did before it.
      const bool among =
          list.closed() ? rank < open : eager && rank < list.order.size() / settings.reduction;
      if (among) {
        take(
            unit, StopWhy::kNone,
            fmt::format("rank {} of {} at rung {}: it goes on", rank + 1, list.order.size(), rung));
      } else if (most && rank >= *most) {
        take(unit, StopWhy::kRung,
             list.closed() ? fmt::format("rank {} of {} at rung {}, where {} went on", rank + 1,
                                         list.order.size(), rung, open)
                           : fmt::format("rank {} of {} at rung {}, where {} at most will go on",
                                         rank + 1, list.order.size(), rung, *most));
      }
    }
  }
  std::sort(out.begin(), out.end(),
            [](const Decision& a, const Decision& b) { return a.unit < b.unit; });
}

}  // namespace tailor::scheduler
