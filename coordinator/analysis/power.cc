#include "coordinator/analysis/power.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/analysis/verdict.h"

namespace tailor::analysis {

Prospect prospect_of(std::size_t n, std::uint64_t tested, std::string primary,
                     double smallest_effect, std::optional<double> expected_sd) {
  Prospect out;
  out.n = n;
  out.comparisons = primary.empty() || tested == 0 ? tested : tested - 1;
  out.primary = std::move(primary);
  out.smallest_effect = smallest_effect;
  out.expected_sd = expected_sd;
  out.resolution = resolution_of(n);
  const auto tests = static_cast<double>(std::max<std::uint64_t>(out.comparisons, 1));
  out.holm_smallest_p = std::min(1.0, tests * out.resolution.smallest_p);
  out.westfall_young_smallest_p = out.resolution.smallest_p;
  out.holm_seeds = holm_seeds(
      static_cast<std::uint32_t>(std::min<std::uint64_t>(out.comparisons, 1'000'000'000)));
  if (n >= 2) out.sd_that_resolves = smallest_effect / out.resolution.effect_sd;
  if (!expected_sd) return out;
  if (n >= 2) out.detectable = out.resolution.effect_sd * *expected_sd;
  PowerTable power;
  if (const auto needed = power.seeds_for(smallest_effect / *expected_sd)) {
    out.seeds_needed = static_cast<std::uint32_t>(*needed);
  }
  return out;
}

std::vector<std::string> prospect_text(const Prospect& p) {
  std::vector<std::string> out;
  if (p.n < 2) {
    out.push_back(
        "1 seed: no interval and no test is possible; differences will be shown without one");
  } else {
    out.push_back(fmt::format(
        "{} paired seeds find a mean difference of {:.2f} x its SD over seeds with {:.0f} % power "
        "(two-sided 5 % t-test); the 95 % interval is +-{:.2f} x that SD; the {} sign-flip test "
        "cannot go below p = {:.4g}",
        p.n, p.resolution.effect_sd, 100 * kPower, p.resolution.half_width_sd,
        p.resolution.p_exact ? "exact" : "sampled", p.resolution.smallest_p));
    out.push_back(fmt::format(
        "so a difference of {:g} ([compare] smallest_effect) is found if the SD of the paired "
        "differences is at most {:.3g}",
        p.smallest_effect, p.sd_that_resolves));
  }
  if (p.expected_sd) {
    std::string text = fmt::format("at the SD of {:g} that is expected ", *p.expected_sd);
    if (p.detectable) text += fmt::format("they find {:.3g}; ", *p.detectable);
    text += p.seeds_needed
                ? fmt::format("{:g} needs {} seeds", p.smallest_effect, *p.seeds_needed)
                : fmt::format("{:g} needs more than {} seeds", p.smallest_effect, kSeedsLookedAt);
    out.push_back(std::move(text));
  }
  if (!p.primary.empty()) {
    out.push_back(
        fmt::format("\"{}\" is the primary comparison: its p will not be adjusted", p.primary));
  }
  if (p.n >= 2 && p.comparisons > 1 && p.holm_smallest_p > kLevel) {
    out.push_back(fmt::format(
        "with {} comparisons Holm's adjusted sign-flip p cannot go below {:.3g}, so it can never "
        "reach {}; it could from {} seeds on. Westfall and Young's can go down to {:.3g}{}",
        p.comparisons, p.holm_smallest_p, kLevel, p.holm_seeds, p.westfall_young_smallest_p,
        p.primary.empty() ? ". Mark the comparison that matters: [compare] primary" : ""));
  }
  return out;
}

}  // namespace tailor::analysis
