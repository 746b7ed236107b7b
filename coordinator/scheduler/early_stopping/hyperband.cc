// Hyperband: successive halving in several brackets that begin at different rungs, so that no guess
// is needed how early a rung may be believed. Units join brackets in the order in which they were
// drawn (exempt ones join none); each bracket halves on its own, when all of its units are there.
#include "coordinator/scheduler/early_stopping/hyperband.h"

#include <algorithm>

#include "base/check.h"
#include "coordinator/scheduler/early_stopping/rungs.h"

namespace tailor::scheduler {

std::vector<Bracket> hyperband_brackets(std::uint32_t levels, std::uint32_t reduction) {
  TAILOR_CHECK(reduction >= 2, "reduction={}", reduction);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  std::vector<Bracket> brackets;
  for (std::uint32_t s = levels;; --s) {
    std::uint64_t power = 1;  // eta^s
    for (std::uint32_t i = 0; i < s && power < kMost; ++i) power *= reduction;
    power = std::min(power, kMost);
    // In whole numbers: a quotient of doubles may be a hair above one.
    const std::uint64_t size = ((levels + 1ull) * power + s) / (s + 1ull);
    brackets.push_back({levels - s, std::min(size, kMost)});
    if (s == 0) return brackets;
  }
}

namespace {

class Hyperband final : public Rule {
 public:
  explicit Hyperband(const RuleSettings& settings)
      : settings_(settings), brackets_(hyperband_brackets(settings.levels, settings.reduction)) {
    for (const Bracket& bracket : brackets_) round_ += bracket.size;
  }

  bool judges(const Field& field, std::uint32_t unit, std::uint32_t rung) const override {
    std::uint64_t place = 0;
    for (std::uint32_t i = 0; i < unit; ++i) place += field.units[i].exempt ? 0 : 1;
    return rung >= brackets_[bracket_of(place % round_)].begin;
  }
  bool waits() const override { return true; }

  std::vector<Decision> decide(const Field& field) const override {
    std::vector<std::uint32_t> takers;
    for (std::uint32_t i = 0; i < field.units.size(); ++i) {
      if (!field.units[i].exempt) takers.push_back(i);
    }
    std::vector<Decision> decisions;
    std::size_t from = 0;
    for (std::size_t bracket = 0; from < takers.size();
         bracket = (bracket + 1) % brackets_.size()) {
      const std::uint64_t size = brackets_[bracket].size;
      const std::size_t here = std::min<std::uint64_t>(size, takers.size() - from);
      std::optional<std::uint64_t> to_come = size - here;
      if (field.to_come) to_come = std::min(*to_come, *field.to_come);
      halve(field, std::span(takers).subspan(from, here), brackets_[bracket].begin, settings_,
            to_come, false, decisions);
      from += here;
    }
    return decisions;
  }

 private:
  std::size_t bracket_of(std::uint64_t place) const {
    std::size_t bracket = 0;
    while (place >= brackets_[bracket].size) place -= brackets_[bracket++].size;
    return bracket;
  }

  const RuleSettings settings_;
  const std::vector<Bracket> brackets_;
  std::uint64_t round_ = 0;  // units of all brackets together
};

}  // namespace

std::unique_ptr<Rule> make_hyperband(const RuleSettings& settings) {
  return std::make_unique<Hyperband>(settings);
}

}  // namespace tailor::scheduler
