// Regularised evolution (Real et al., "Regularized Evolution for Image Classifier Architecture
// Search", arXiv 1802.01548): the population is the last kPopulation outcomes, the oldest leaves
// whatever its worth; the best of a sample of it is the parent of the next point.
//
// Mutations know architectures: one axis by one cell (half of them), one axis up and another down,
// which trades width for depth at one budget (a quarter), or a child of two parents with one
// mutation (a quarter). The size that the budget solves for follows by itself.
//
// Failed outcomes take part and lose every tournament. Cost: O(n log n).
#include <algorithm>
#include <cmath>

#include "coordinator/search/neighbours.h"
#include "coordinator/search/proposer.h"
#include "coordinator/search/ranking.h"

namespace tailor::search {
namespace {

constexpr std::size_t kEvolutionStartup = 20;
constexpr std::size_t kPopulation = 50;
constexpr std::size_t kSample = 10;
constexpr std::size_t kChildren = 8;
/// Children that were all refused before the point is drawn instead.
constexpr std::uint32_t kEvolutionAttempts = 16;
constexpr double kMutationScale = 0.1;

class EvolutionProposer final : public Proposer {
 public:
  explicit EvolutionProposer(const Context& context)
      : context_(context), startup_(make_sobol_proposer(context)) {
    // Ranks over all, then the youngest of them.
    const std::vector<RankedRecord> order = ranked(context_.history, context_.settings);
    const std::size_t wanted =
        context_.settings.startup > 0 ? context_.settings.startup : kEvolutionStartup;
    if (order.size() < wanted || order.front().standing == Standing::kFailed) return;
    std::vector<std::size_t> young;
    for (const RankedRecord& record : order) young.push_back(record.index);
    const std::size_t keep = std::min(kPopulation, young.size());
    std::nth_element(young.begin(), young.begin() + static_cast<std::ptrdiff_t>(keep - 1),
                     young.end(), std::greater<>());
    const std::size_t oldest = young[keep - 1];
    for (const RankedRecord& record : order) {  // stays in order of rank
      if (record.index >= oldest) population_.push_back(record.index);
    }
  }

  std::vector<sweep::Point> propose(std::uint64_t ordinal, std::uint32_t attempt) override {
    if (population_.empty()) return startup_->propose(ordinal, attempt);
    if (attempt >= kEvolutionAttempts) return {};
    Rng rng = stream(context_, "evolution", ordinal, attempt);
    std::vector<sweep::Point> out;
    for (std::size_t i = 0; i < kChildren; ++i) {
      const Coordinates parent = tournament(rng);
      Coordinates child;
      switch (rng.below(4)) {
        case 0:
          child = trade(context_.space, parent, kMutationScale, rng);
          break;
        case 1:
          child = mutate_one(context_.space, cross(context_.space, parent, tournament(rng), rng),
                             kMutationScale, rng);
          break;
        default:
          child = mutate_one(context_.space, parent, kMutationScale, rng);
      }
      // Refused again and again: look further away.
      for (std::uint32_t more = 0; more < attempt / 2; ++more) {
        child = mutate_one(context_.space, child, kMutationScale, rng);
      }
      out.push_back(context_.space.decode(child));
    }
    return out;
  }

  void accept(const sweep::Point&) override {}

 private:
  /// The best of a sample with repetition.
  const Coordinates& tournament(Rng& rng) const {
    std::size_t best = population_.size() - 1;
    for (std::size_t i = 0; i < kSample; ++i) {
      best = std::min<std::size_t>(best, rng.below(population_.size()));
    }
    return context_.history.coordinates(population_[best]);
  }

  const Context context_;
  const std::unique_ptr<Proposer> startup_;
  std::vector<std::size_t> population_;  // the best first
};

}  // namespace

std::unique_ptr<Proposer> make_evolution_proposer(const Context& context) {
  return std::make_unique<EvolutionProposer>(context);
}

}  // namespace tailor::search
