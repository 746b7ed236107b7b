// What a sweep can tell, before it starts: from its number of seeds, of comparisons, and the spread
// that its user expects. The same arithmetic as the verdict's. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/analysis/paired.h"

namespace tailor::analysis {

struct Prospect {
  std::size_t n = 0;              ///< seeds
  std::uint64_t comparisons = 0;  ///< adjusted together; the primary one left out
  std::string primary;            ///< "" = none is marked
  double smallest_effect = 0;     ///< that matters
  Resolution resolution;          ///< in units of the SD of the differences
  /// The SD of the differences up to which n seeds find `smallest_effect` with 80 % power.
  double sd_that_resolves = 0;
  std::optional<double> expected_sd;
  std::optional<double> detectable;           ///< at the expected SD; unset for one seed
  std::optional<std::uint32_t> seeds_needed;  ///< at the expected SD; unset beyond kSeedsLookedAt
  double holm_smallest_p = 1;                 ///< of the adjusted sign-flip p
  double westfall_young_smallest_p = 1;
  std::uint32_t holm_seeds = 2;  ///< from which on Holm's can reach 5 %
};

/// `tested`: candidates that are compared with the baseline, the primary one among them.
Prospect prospect_of(std::size_t n, std::uint64_t tested, std::string primary,
                     double smallest_effect, std::optional<double> expected_sd);

/// In sentences, for people.
std::vector<std::string> prospect_text(const Prospect& prospect);

}  // namespace tailor::analysis
