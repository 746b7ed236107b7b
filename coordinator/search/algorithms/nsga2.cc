// NSGA-II (Deb et al. 2002) without generations: parents come from the kSurvivors best of all
// outcomes, by front and then by crowding, so that any number of workers may ask at any time.
//
// Two parents by binary tournaments, each axis from either (probability 0.9, else the first parent
// alone), then each axis changes with probability 1/d. With one objective it is a plain genetic
// algorithm. Cost: O(m n^2).
#include <algorithm>
#include <cmath>

#include "coordinator/search/neighbours.h"
#include "coordinator/search/proposer.h"
#include "coordinator/search/ranking.h"

namespace tailor::search {
namespace {

constexpr std::size_t kNsgaStartup = 20;
constexpr std::size_t kSurvivors = 50;
constexpr std::size_t kOffspring = 8;
constexpr std::uint32_t kNsgaAttempts = 16;

class NsgaProposer final : public Proposer {
 public:
  explicit NsgaProposer(const Context& context)
      : context_(context), startup_(make_sobol_proposer(context)) {
    const std::vector<RankedRecord> order = ranked(context_.history, context_.settings);
    const std::size_t wanted =
        context_.settings.startup > 0 ? context_.settings.startup : kNsgaStartup;
    if (order.size() < wanted || order.front().standing == Standing::kFailed) return;
    for (std::size_t i = 0; i < std::min(kSurvivors, order.size()); ++i) {
      parents_.push_back(order[i].index);
    }
  }

  std::vector<sweep::Point> propose(std::uint64_t ordinal, std::uint32_t attempt) override {
    if (parents_.empty()) return startup_->propose(ordinal, attempt);
    if (attempt >= kNsgaAttempts) return {};
    Rng rng = stream(context_, "nsga2", ordinal, attempt);
    std::vector<sweep::Point> out;
    for (std::size_t i = 0; i < kOffspring; ++i) {
      const Coordinates& first = parent(rng);
      Coordinates child =
          rng.uniform() < 0.9 ? cross(context_.space, first, parent(rng), rng) : first;
      const auto axes = static_cast<double>(context_.space.size());
      std::uint32_t changes = 0;
      for (std::size_t axis = 0; axis < context_.space.size(); ++axis) {
        changes += rng.uniform() * axes < 1;
      }
      changes += attempt / 2;
      for (std::uint32_t k = 0; k < changes; ++k) {
        child = mutate_one(context_.space, child, 0.1, rng);
      }
      out.push_back(context_.space.decode(child));
    }
    return out;
  }

  void accept(const sweep::Point&) override {}

 private:
  const Coordinates& parent(Rng& rng) const {
    const std::size_t a = rng.below(parents_.size()), b = rng.below(parents_.size());
    return context_.history.coordinates(parents_[std::min(a, b)]);
  }

  const Context context_;
  const std::unique_ptr<Proposer> startup_;
  std::vector<std::size_t> parents_;  // the best first
};

}  // namespace

std::unique_ptr<Proposer> make_nsga2_proposer(const Context& context) {
  return std::make_unique<NsgaProposer>(context);
}

}  // namespace tailor::search
