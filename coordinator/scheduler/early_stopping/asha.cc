// ASHA, asynchronous successive halving (arXiv 1810.05934): a unit goes on from a rung as soon as
// it is among the best floor(n / eta) of the n that have reached it so far. No worker ever waits
// for a slow one; the price is that an early unit may go on that later ones push out of the best
// 1/eta. What waits is asked again whenever the rung grows, and goes on from its checkpoint:
// nothing is trained twice. A unit with `places_max` better ones at its rung is stopped at once.
#include "coordinator/scheduler/early_stopping/rungs.h"

namespace tailor::scheduler {

std::unique_ptr<Rule> make_asha(const RuleSettings& settings) {
  return make_halving_of_all(settings, true);
}

}  // namespace tailor::scheduler
