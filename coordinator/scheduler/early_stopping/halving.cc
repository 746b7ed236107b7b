// Successive halving (Jamieson and Talwalkar 2016; arXiv 1603.06560): all units of the sweep are
// trained to rung 0; when the last of them has got there, the best 1/eta go on to rung 1, and so
// on. The fewest tokens for a given number of candidates and the fairest comparison, but everybody
// waits for the slowest. A unit that can no longer be among the best 1/eta of all that may come is
// stopped at once.
#include <numeric>

#include "coordinator/scheduler/early_stopping/rungs.h"

namespace tailor::scheduler {
namespace {

class Halving final : public Rule {
 public:
  Halving(const RuleSettings& settings, bool eager) : settings_(settings), eager_(eager) {}

  bool judges(const Field&, std::uint32_t, std::uint32_t) const override { return true; }
  bool waits() const override { return true; }

  std::vector<Decision> decide(const Field& field) const override {
    std::vector<std::uint32_t> all(field.units.size());
    std::iota(all.begin(), all.end(), 0u);
    std::vector<Decision> decisions;
    halve(field, all, 0, settings_, field.to_come, eager_, decisions);
    return decisions;
  }

 private:
  const RuleSettings settings_;
  const bool eager_;
};

}  // namespace

std::unique_ptr<Rule> make_halving_of_all(const RuleSettings& settings, bool eager) {
  return std::make_unique<Halving>(settings, eager);
}

std::unique_ptr<Rule> make_halving(const RuleSettings& settings) {
  return make_halving_of_all(settings, false);
}

}  // namespace tailor::scheduler
