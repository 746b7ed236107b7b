#include "coordinator/analysis/racing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/stats.h"
#include "coordinator/analysis/paired.h"
#include "coordinator/analysis/sign_flip.h"

namespace tailor::analysis {
namespace {

std::vector<std::size_t> planned_looks(const RaceSettings& settings) {
  TAILOR_CHECK(settings.first >= 2 && settings.first <= settings.most, "first={} most={}",
               settings.first, settings.most);
  std::vector<std::size_t> looks(settings.most - settings.first + 1);
  std::iota(looks.begin(), looks.end(), settings.first);
  return looks;
}

struct MeanAndSd {
  double mean = 0;
  double sd = 0;
};

/// REQUIRES: at least two values.
MeanAndSd moments(std::span<const double> values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (static_cast<double>(values.size()) - 1))};
}

}  // namespace

std::string_view standing_name(Standing standing) {
  constexpr std::array<std::string_view, 7> kNames = {"racing", "beats",     "worse", "not_best",
                                                      "futile", "undecided", "failed"};
  return kNames[static_cast<std::size_t>(standing)];
}

/// A racer at its looks so far.
struct Race::Looked {
  std::vector<double> t;  // signed, of the looks so far
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool beats = false;  // at some look; what comes later takes nothing back
  bool worse = false;
  bool futile = false;
};

Race::Race(const RaceSettings& settings, std::size_t family)
    : settings_(settings),
      plan_(planned_looks(settings), settings.spending, family),
      alone_(planned_looks(settings), settings.spending, 1),
      critical_(plan_.critical(settings.level)) {}

Race::Looked Race::look_at(const Racer& racer) const {
  Looked out;
  const std::span<const double> all = racer.differences;
  for (std::size_t look = 0; look < looks().size() && looks()[look] <= all.size(); ++look) {
    const std::size_t n = looks()[look];
    const MeanAndSd m = moments(all.first(n));
    const double error = m.sd / std::sqrt(static_cast<double>(n));
    // Differences that are all equal have no spread: taken as a t without bound, of their sign.
    out.t.push_back(error > 0    ? m.mean / error
                    : m.mean > 0 ? std::numeric_limits<double>::infinity()
                    : m.mean < 0 ? -std::numeric_limits<double>::infinity()
                                 : 0);
    if (!std::isfinite(critical_[look])) continue;
    out.low = std::max(out.low, m.mean - critical_[look] * error);
    out.high = std::min(out.high, m.mean + critical_[look] * error);
    out.beats |= m.mean + critical_[look] * error < 0;
    out.worse |= m.mean - critical_[look] * error > 0;
  }
  if (out.t.empty() || all.size() >= settings_.most || !(settings_.futility > 0)) return out;
  const auto n = static_cast<double>(all.size()), last = static_cast<double>(settings_.most);
  const MeanAndSd m = moments(all);
  const double hoped = m.mean - m.sd / std::sqrt(n);
  // The sum of all `last` differences must come below -c s sqrt(last).
  const double room = -critical_.back() * m.sd * std::sqrt(last) - n * m.mean - (last - n) * hoped;
  const double spread = m.sd * std::sqrt(last - n);
  out.futile = spread > 0 ? normal_cdf(room / spread) < settings_.futility : m.mean >= 0;
  return out;
}

bool Race::clearly_above(std::span<const double> a, std::span<const double> b) const {
  const std::size_t n = std::min({a.size(), b.size(), looks().back()});
  if (n < looks().front()) return false;
  std::vector<double> difference(n);
  for (std::size_t i = 0; i < n; ++i) difference[i] = a[i] - b[i];
  const MeanAndSd m = moments(difference);
  const double c = critical_[n - looks().front()];
  return std::isfinite(c) ? m.mean > c * m.sd / std::sqrt(static_cast<double>(n)) : false;
}

RaceTable Race::read(std::span<const Racer> racers, bool with_p) const {
  RaceTable table;
  std::vector<Looked> looked;
  const std::size_t first = looks().front();
  for (const Racer& racer : racers) {
    looked.push_back(look_at(racer));
    RaceRow row;
    row.n = racer.differences.size();
    if (row.n > 0) row.mean = mean_of(racer.differences);
    if (row.n > 0 && with_p) row.sign_flip_p = sign_flip_test(racer.differences).p;
    if (row.n > 1) row.sd = moments(racer.differences).sd;
    const Looked& seen = looked.back();
    if (std::isfinite(seen.low)) {
      row.low = seen.low;
      row.high = seen.high;
    }
    if (with_p && !seen.t.empty()) {
      row.p = plan_.repeated_p(seen.t);
      row.p_alone = plan_.family() == 1 ? row.p : alone_.repeated_p(seen.t);
    }
    table.rows.push_back(std::move(row));
  }
  for (std::size_t i = 0; i < racers.size(); ++i) {
    if (racers[i].failed || table.rows[i].n < first) continue;
    if (!table.leader || table.rows[i].mean < table.rows[*table.leader].mean) table.leader = i;
  }
  std::size_t contenders = 0;
  for (std::size_t i = 0; i < racers.size(); ++i) {
    RaceRow& row = table.rows[i];
    row.may_be_best = !racers[i].failed && !looked[i].worse;
    if (table.leader && i != *table.leader && row.may_be_best) {
      row.may_be_best = !clearly_above(racers[i].differences, racers[*table.leader].differences);
    }
    contenders += row.may_be_best && !racers[i].out ? 1 : 0;
  }
  std::size_t longest = 0;
  for (std::size_t i = 0; i < racers.size(); ++i) {
    RaceRow& row = table.rows[i];
    const Looked& seen = looked[i];
    const bool spent = row.n >= settings_.most;
    const bool for_best =
        row.may_be_best && contenders > 1 && settings_.goal != RaceGoal::kBaseline;
    if (racers[i].failed) {
      row.standing = Standing::kFailed;
    } else if (seen.beats) {
      row.standing = Standing::kBeats;
    } else if (seen.worse) {
      row.standing = Standing::kWorse;
    } else if (spent) {
      row.standing = Standing::kUndecided;
    } else if (row.n >= first && seen.futile) {
      row.standing = Standing::kFutile;
    } else if (row.n >= first && settings_.goal == RaceGoal::kBest && !row.may_be_best) {
      row.standing = Standing::kNotBest;
    }
    row.next_seed =
        !spent && !racers[i].out && !racers[i].failed &&
        (row.standing == Standing::kRacing || (row.standing == Standing::kBeats && for_best));
    if (row.next_seed) longest = std::max(longest, row.n + 1);
    table.baseline_seeds = std::max(table.baseline_seeds, std::min(row.n, settings_.most));
    table.trials += row.n;
    row.text =
        fmt::format("{} after {} of {} seeds{}", standing_name(row.standing), row.n, settings_.most,
                    row.next_seed                       ? ""
                    : row.standing == Standing::kRacing ? ": it gets no further one"
                                                        : "");
  }
  table.over = longest == 0;
  table.trials += table.baseline_seeds;
  table.baseline_seeds = std::max(table.baseline_seeds, longest);
  table.trials_planned = (racers.size() + 1) * settings_.most;
  const std::uint64_t saved =
      table.trials_planned - std::min<std::uint64_t>(table.trials, table.trials_planned);
  table.text = table.over
                   ? fmt::format("{} of {} trials were enough: {} saved", table.trials,
                                 table.trials_planned, saved)
                   : fmt::format("{} of {} trials so far", table.trials, table.trials_planned);
  return table;
}

}  // namespace tailor::analysis
