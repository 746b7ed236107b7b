// The median rule (Golovin et al., "Google Vizier", 2017, in the form that takes the best value so
// far): a unit is stopped at rung k when
//   min(value at rungs 0..k)  >  median of the values at rung k of all others that reached it
// once `startup` others have. Others count whatever became of them since, so that the median does
// not drift towards the survivors; a value that is not finite counts as +infinity. Units are judged
// when they arrive, once a rung, and nobody waits: a rung costs no idle time.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "coordinator/scheduler/early_stopping/rungs.h"

namespace tailor::scheduler {
namespace {

/// The middle value, or the mean of the two. REQUIRES: not empty.
double median_of(std::vector<double> values) {
  const std::size_t half = values.size() / 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(half);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  const double below = *std::max_element(values.begin(), middle);
  return below == *middle ? below : below + (*middle - below) / 2;
}

class Median final : public Rule {
 public:
  explicit Median(const RuleSettings& settings) : settings_(settings) {}

  bool judges(const Field&, std::uint32_t, std::uint32_t) const override { return true; }
  bool waits() const override { return false; }

  std::vector<Decision> decide(const Field& field) const override {
    if (!field.arrived) return {};
    const std::uint32_t at = *field.arrived;
    const Unit& unit = field.units[at];
    if (unit.exempt || unit.values.empty() || unit.phase == Phase::kStopped ||
        unit.phase == Phase::kEnded) {
      return {};
    }
    const std::size_t rung = unit.values.size() - 1;
    if (!is_comparable(unit.values.back())) {
      return {{at, StopWhy::kNotFinite, fmt::format("its value at rung {} is not finite", rung)}};
    }
    constexpr double kWorst = std::numeric_limits<double>::infinity();
    std::vector<double> others;
    for (std::uint32_t i = 0; i < field.units.size(); ++i) {
      if (i == at || field.units[i].values.size() <= rung) continue;
      const double value = field.units[i].values[rung];
      others.push_back(is_comparable(value) ? value : kWorst);
    }
    if (others.empty() || others.size() < settings_.startup) return {};
    double best = kWorst;
    for (const double value : unit.values) {
      if (is_comparable(value)) best = std::min(best, value);
    }
    const std::size_t count = others.size();
    const double median = median_of(std::move(others));
    if (!(best > median)) return {};
    return {
        {at, StopWhy::kMedian,
         fmt::format("its best value up to rung {} is {:.6g}, and the median of {} others there "
                     "{:.6g}",
                     rung, best, count, median)}};
  }

 private:
  const RuleSettings settings_;
};

}  // namespace

std::unique_ptr<Rule> make_median(const RuleSettings& settings) {
  return std::make_unique<Median>(settings);
}

}  // namespace tailor::scheduler
