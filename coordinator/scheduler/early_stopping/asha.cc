// ASHA, asynchronous successive halving (arXiv 1810.05934): a unit goes on from a rung as soon as
// it is among the best floor(n / eta) of the n that have reached it so far. No worker ever waits
// for a slow one; the price is that an early unit may go on that later ones push out of the best
// 1/eta. What waits is asked again whenever the rung grows, and goes on from its checkpoint:
// nothing is trained twice. A unit with `places_max` better ones at its rung is stopped at once.
#include <numeric>

#include "coordinator/scheduler/early_stopping/rungs.h"

namespace tailor::scheduler {
namespace {

class Asha final : public Rule {
 public:
  explicit Asha(const RuleSettings& settings) : settings_(settings) {}

  bool judges(const Field&, std::uint32_t, std::uint32_t) const override { return true; }
  bool waits() const override { return true; }

  std::vector<Decision> decide(const Field& field) const override {
    std::vector<std::uint32_t> all(field.units.size());
    std::iota(all.begin(), all.end(), 0u);
    std::vector<Decision> decisions;
    halve(field, all, 0, settings_, field.to_come, true, decisions);
    return decisions;
  }

 private:
  const RuleSettings settings_;
};

}  // namespace

std::unique_ptr<Rule> make_asha(const RuleSettings& settings) {
  return std::make_unique<Asha>(settings);
}

}  // namespace tailor::scheduler
