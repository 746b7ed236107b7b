// Racing over seeds: every candidate is compared with the baseline on the seeds both have, and gets
// its next seed only while that may still change the answer. Pure.
//
//   d_s = value of the candidate with seed s - value of the baseline with seed s     (lower better)
//
// Looks are planned: after `first` seeds and after each further one up to `most`. At each look a
// candidate's interval is mean +- c_n s / sqrt n with the c_n of peeking.h for the whole family, so
// intervals of all candidates at all looks hold together with 95 %, however the race goes on; what
// is reported is the part common to all looks so far. A candidate
//   beats the baseline   when its interval lies below 0,
//   is worse             when it lies above 0: it gets no further seed,
//   cannot be the best   when the paired differences to the leader (the lowest mean) exceed
//                        c_n s / sqrt n,
//   is futile            when, were its true difference one standard error better than it looks, it
//                        would come to beat the baseline by the last look with less than
//                        `futility` probability.
// Stopping for the last two never makes a false claim likelier, for nothing is concluded from it;
// it costs power (docs/early-stopping.md says how much).
//
// The t statistics take the differences as normal. The sign-flip p of the pairs there are stands
// beside it: it is not adjusted for the looks, and below 6 pairs it cannot reach 5 %. The verdict
// rests on the t statistics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/analysis/peeking.h"

namespace tailor::analysis {

/// What the race is for.
enum class RaceGoal {
  kBoth,      ///< a candidate stays while it may be the best or may beat the baseline
  kBest,      ///< only while it may be the best
  kBaseline,  ///< only while it is not decided against the baseline
};

struct RaceSettings {
  std::size_t first = 3;  ///< pairs before the first look, at least 2
  std::size_t most = 10;  ///< seeds of the sweep
  double level = 0.05;
  Spending spending = Spending::kObrienFleming;
  RaceGoal goal = RaceGoal::kBoth;
  double futility = 0.05;  ///< 0 = never stopped for futility
};

/// One candidate of a race.
struct Racer {
  /// To the baseline, in the order of the sweep's seeds; all finite.
  std::vector<double> differences;
  /// A seed failed, or was not finite: it is not compared, and gets no further seed.
  bool failed = false;
  /// Its further seeds were taken away at an earlier look: that is final.
  bool out = false;
};

enum class Standing {
  kRacing,     ///< it may get a further seed
  kBeats,      ///< below the baseline
  kWorse,      ///< above the baseline
  kNotBest,    ///< not decided against the baseline; it cannot be the best (goal kBest)
  kFutile,     ///< not decided, and further seeds would hardly decide it
  kUndecided,  ///< all seeds were spent
  kFailed,
};
/// "racing", "beats", "worse", "not_best", "futile", "undecided", "failed".
std::string_view standing_name(Standing standing);

struct RaceRow {
  std::size_t n = 0;
  double mean = 0;            ///< of the differences; 0 for n = 0
  std::optional<double> sd;   ///< unset for n < 2
  std::optional<double> low;  ///< common to the looks so far; unset before one that concludes
  std::optional<double> high;
  double p = 1;        ///< valid under the looks taken and over the family
  double p_alone = 1;  ///< valid under the looks taken, as if it were the only candidate
  std::optional<double> sign_flip_p;  ///< not adjusted for the looks; unset for n = 0
  Standing standing = Standing::kRacing;
  bool may_be_best = true;
  bool next_seed = true;  ///< it gets seed n + 1
  std::string text;       ///< for a person
};

struct RaceTable {
  std::vector<RaceRow> rows;          ///< as the racers
  std::optional<std::size_t> leader;  ///< lowest mean of those at a look or beyond
  std::size_t baseline_seeds = 0;     ///< that the baseline needs now: one more than the longest
                                      ///< race that goes on, at most `most`
  std::uint64_t trials = 0;           ///< used so far, the baseline's among them
  std::uint64_t trials_planned = 0;   ///< without racing: (candidates + 1) x most
  bool over = false;                  ///< nobody gets a further seed
  std::string text;                   ///< "38 of 66 trials were enough: 28 saved"
};

/// The looks of a race and their boundaries, computed once for all its reads. Immutable;
/// thread-safe.
class Race {
 public:
  /// `family`: candidates that are compared with the baseline. Cost: of PeekingPlan and two
  /// `critical`. REQUIRES: 2 <= first <= most, family >= 1.
  Race(const RaceSettings& settings, std::size_t family);

  const RaceSettings& settings() const { return settings_; }
  std::size_t family() const { return plan_.family(); }
  const std::vector<std::size_t>& looks() const { return plan_.looks(); }
  const std::vector<double>& critical() const { return critical_; }

  /// Where the race stands. Racers may have different n. `with_p`: also the p of each row, which
  /// cost most (about 20 `critical` each); without, `p` stay 1 and `sign_flip_p` unset.
  RaceTable read(std::span<const Racer> racers, bool with_p) const;

 private:
  struct Looked;
  Looked look_at(const Racer& racer) const;
  bool clearly_above(std::span<const double> a, std::span<const double> b) const;

  RaceSettings settings_;
  PeekingPlan plan_;
  PeekingPlan alone_;
  std::vector<double> critical_;  ///< by look, of the family
};

}  // namespace tailor::analysis
