#include "coordinator/search/judge.h"

#include <cmath>

namespace tailor::search {

std::optional<double> judged_objective(std::span<const SeedOutcome> seeds) {
  double mean = 0;
  int count = 0;
  for (const SeedOutcome& seed : seeds) {
    if (!seed.objective) {
      if (seed.own_fault) return std::nullopt;
      continue;
    }
    if (!std::isfinite(*seed.objective)) return std::nullopt;
    ++count;
    mean += (*seed.objective - mean) / count;
  }
  if (count == 0 || !std::isfinite(mean)) return std::nullopt;
  return mean;
}

}  // namespace tailor::search
