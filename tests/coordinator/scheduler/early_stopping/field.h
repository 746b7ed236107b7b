// Fields for tests of early stopping, and a sweep in which units reach rungs in a drawn order.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "coordinator/scheduler/early_stopping/rule.h"

namespace tailor::scheduler {

/// A unit that waits (or trains on) at the rung of its last value.
inline Unit unit_at(std::vector<double> values, Phase phase = Phase::kWaiting) {
  Unit unit;
  unit.phase = phase;
  unit.rungs = 9;
  unit.values = std::move(values);
  return unit;
}

inline std::unique_ptr<Rule> rule_of(const std::string& kind, std::uint32_t levels,
                                     std::uint32_t reduction = 3, std::uint32_t startup = 5) {
  RuleSettings settings;
  settings.kind = kind;
  settings.levels = levels;
  settings.reduction = reduction;
  settings.startup = startup;
  return make_rule(settings).value();
}

/// What became of the units of a drawn sweep.
struct Played {
  std::vector<Unit> units;
  std::vector<StopWhy> why;     ///< by unit
  std::vector<bool> completed;  ///< by unit
  std::uint64_t steps = 0;      ///< rungs and ends that were trained to
  bool decided_about_exempt = false;
  bool had_more_to_say = false;  ///< asking again at once gave a decision
};

/// `count` units, the first one exempt, on `workers` workers; `value(unit, rung)`; one unit in
/// `failing` fails on its way (0 = none). The order of arrivals is drawn from `seed`.
inline Played play(const Rule& rule, std::uint32_t count, std::uint32_t levels,
                   std::uint32_t workers, std::uint64_t seed,
                   const std::function<double(std::uint32_t, std::uint32_t)>& value,
                   std::uint64_t failing = 0) {
  Played out;
  Rng rng(seed);
  std::vector<std::uint32_t> training;
  const auto decide = [&](std::optional<std::uint32_t> arrived) {
    for (int again = 0; again < 2; ++again) {
      const Field field{out.units, count - out.units.size(), arrived};
      const std::vector<Decision> decisions = rule.decide(field);
      out.had_more_to_say |= again == 1 && !decisions.empty();
      for (const Decision& d : decisions) {
        out.decided_about_exempt |= out.units[d.unit].exempt;
        out.why[d.unit] = d.stop;
        std::erase(training, d.unit);
        out.units[d.unit].phase = d.stop == StopWhy::kNone ? Phase::kTraining : Phase::kStopped;
        if (d.stop == StopWhy::kNone) training.push_back(d.unit);
      }
    }
  };
  for (;;) {
    while (training.size() < workers && out.units.size() < count) {
      training.push_back(static_cast<std::uint32_t>(out.units.size()));
      Unit unit;
      unit.rungs = levels;
      unit.exempt = out.units.empty();
      out.units.push_back(unit);
      out.why.push_back(StopWhy::kNone);
      out.completed.push_back(false);
    }
    if (training.empty()) return out;
    const std::size_t pick = rng.below(training.size());
    const std::uint32_t at = training[pick];
    Unit& unit = out.units[at];
    const auto rung = static_cast<std::uint32_t>(unit.values.size());
    ++out.steps;
    if (failing > 0 && rng.below(failing) == 0) {
      unit.phase = Phase::kEnded;
      std::erase(training, at);
      decide(std::nullopt);
    } else if (rung == levels) {
      unit.phase = Phase::kEnded;
      out.completed[at] = true;
      std::erase(training, at);
      decide(std::nullopt);
    } else {
      unit.values.push_back(value(at, rung));
      const Field field{out.units, count - out.units.size(), at};
      if (!unit.exempt && rule.waits() && rule.judges(field, at, rung)) {
        unit.phase = Phase::kWaiting;
        std::erase(training, at);
      }
      decide(at);
    }
  }
}

}  // namespace tailor::scheduler
