// Early stopping: which candidates go on at a rung, which wait, and which end there.
//
// A rung is a training budget in tokens. What is judged is a *unit*: a candidate with all seeds
// that train together, its value at a rung their mean, so that a decision never breaks pairs by
// seed. Values are losses: lower is better. Whoever maximises turns the sign.
//
// A rule is a pure function of the field: all units with their values by rung, in their order. The
// same rows give the same decisions, restarts or not, and nothing else is kept.
//
//   auto rule = make_rule({.kind = "asha", .reduction = 3, .levels = 3}).value();
//   units[4].values.push_back(3.41);             // its seeds have reached rung 0
//   units[4].phase = Phase::kWaiting;            // where rule->waits(); else it trains on
//   for (const Decision& d : rule->decide({units, 20, 4})) ...  // "4 goes on", "2 is stopped"
//
// Policies that all rules share:
//   - NaN and infinities are worse than every number: such a unit is stopped at once and is never
//     the best, never counted as a place that another could not get.
//   - Exempt units (the baseline, what is measured for others, the primary comparison) are never
//     stopped and never wait; they take no place from others.
//   - Equal values: the earlier unit is the better one.
//   - Units that failed or were lost at or before a rung are not of it.
//   - A rung that nobody can reach any more lets at least one unit go on, so that something is
//     trained to the full budget.
//   - A unit is stopped as soon as no future value of others could let it go on, not when the sweep
//     ends.
//
// Values at a rung are comparable only between units with the same plan for the learning rate: see
// docs/search.md ("Early stopping and the learning rate").
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::scheduler {

/// Why a trial was stopped before its budget. Stored with the trial: never renumber.
enum class StopWhy {
  kNone = 0,
  kNotFinite = 1,  ///< its value at a rung was NaN or infinite
  kMedian = 2,     ///< worse than the median of the others
  kRung = 3,       ///< not among those of its rung that go on
  kCannotWin = 4,  ///< its race is over: it can neither be the best nor beat the baseline
  kDecided = 5,    ///< its race is over: further seeds would not change the answer
};
/// "", "not_finite", "median", "rung", "cannot_win", "decided".
std::string_view stop_why_name(StopWhy why);
/// Errors: kInvalidArgument for another name.
Result<StopWhy> parse_stop_why(std::string_view name);

enum class Phase {
  kTraining,  ///< queued or running, on its way to its next rung or its end
  kWaiting,   ///< at its last rung, not decided
  kStopped,   ///< by a rule
  kEnded,     ///< completed, failed, lost or cancelled
};

/// One candidate as the rungs see it.
struct Unit {
  Phase phase = Phase::kTraining;
  bool exempt = false;
  std::uint32_t rungs = 0;     ///< that lie below its full budget
  std::vector<double> values;  ///< at the rungs that it has reached, the lowest first
};

/// All that a rule looks at.
struct Field {
  std::span<const Unit> units;  ///< by candidate index
  /// Candidates that the search may still draw, at most; nullopt = without bound.
  std::optional<std::uint64_t> to_come = 0;
  /// The unit that has just reached a rung; nullopt = something else changed.
  std::optional<std::uint32_t> arrived;
};

struct Decision {
  std::uint32_t unit = 0;
  StopWhy stop = StopWhy::kNone;  ///< kNone = it goes on
  std::string text;               ///< for a person: "rank 5 of 9 at rung 1 (250M tokens) ..."
};

struct RuleSettings {
  std::string kind = "none";
  std::uint32_t reduction = 3;  ///< eta: of so many units at a rung one goes on
  /// Rungs below the full budget of the largest unit.
  std::uint32_t levels = 0;
  std::uint32_t startup = 5;  ///< median: others that must have reached the rung first
};

class Rule {
 public:
  virtual ~Rule() = default;
  /// Whether a unit is judged at rung `rung`. `unit` is its place in the field.
  virtual bool judges(const Field& field, std::uint32_t unit, std::uint32_t rung) const = 0;
  /// True when a unit that has reached a rung trains on only after a decision.
  virtual bool waits() const = 0;
  /// Decisions for units that wait, and for units that train and should not. At most one a unit, by
  /// unit. Taking them and asking again at once gives no further ones. Never about exempt units.
  /// Cost: units x levels x log(units).
  virtual std::vector<Decision> decide(const Field& field) const = 0;
};

/// Factory by name, from table.cc ("none", "median", "halving", "asha", "hyperband").
/// Errors: kInvalidArgument for another name (with the nearest), a reduction below 2.
Result<std::unique_ptr<Rule>> make_rule(const RuleSettings& settings);
/// The names in table order.
std::vector<std::string_view> rule_names();

/// What the files of this folder give to table.cc. Not for use outside.
using RuleFactory = std::unique_ptr<Rule> (*)(const RuleSettings& settings);
std::unique_ptr<Rule> make_none(const RuleSettings& settings);
std::unique_ptr<Rule> make_median(const RuleSettings& settings);
std::unique_ptr<Rule> make_halving(const RuleSettings& settings);
std::unique_ptr<Rule> make_asha(const RuleSettings& settings);
std::unique_ptr<Rule> make_hyperband(const RuleSettings& settings);

}  // namespace tailor::scheduler
