#include "coordinator/analysis/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tailor::analysis {
namespace {

std::string signed_text(double value) { return fmt::format("{:+.4g}", value); }

/// "mean paired difference -0.019 nats (95 % CI [-0.0232, -0.0148], n = 5, 5/5 negative)"
std::string measured_text(const PairedSummary& paired, std::string_view unit) {
  std::string text = fmt::format("mean paired difference {}{} (", signed_text(paired.mean), unit);
  if (paired.ci_low) {
    text += fmt::format("95 % CI [{}, {}], ", signed_text(*paired.ci_low),
                        signed_text(*paired.ci_high));
  }
  const bool more_negative = paired.negative >= paired.positive;
  return text + fmt::format("n = {}, {}/{} {})", paired.n,
                            more_negative ? paired.negative : paired.positive, paired.n,
                            more_negative ? "negative" : "positive");
}

/// Which test decided, and the sign-flip p that does not need the differences to be normal.
std::string method_text(const VerdictInput& input) {
  std::string text = fmt::format("t-test p = {:.3g}", *input.p);
  if (input.primary) {
    text += ", the primary comparison, not adjusted";
  } else if (input.family_tests > 1) {
    text += fmt::format(", adjusted by Holm over {} comparisons", input.family_tests);
  }
  if (const auto& test = input.paired->sign_flip) {
    text += fmt::format("; sign-flip p = {:.3g}{}{}", test->p, test->draws == 0 ? "" : " (sampled)",
                        input.family_tests > 1 && !input.primary ? " before adjustment" : "");
    if (test->smallest_p > kLevel)
      text += fmt::format(", which cannot go below {:.3g}", test->smallest_p);
  }
  return text;
}

std::string failed_text(const VerdictInput& input) {
  if (input.failed > 0 && input.stopped > 0) {
    return fmt::format("{} failed and {} stopped early", input.failed, input.stopped);
  }
  if (input.failed > 0) return fmt::format("{} failed", input.failed);
  if (input.stopped > 0) return fmt::format("{} stopped early", input.stopped);
  return "some are beyond a double's range";
}

}  // namespace

std::string_view verdict_name(VerdictCode code) {
  switch (code) {
    case VerdictCode::kNone:
      return "";
    case VerdictCode::kLower:
      return "lower";
    case VerdictCode::kHigher:
      return "higher";
    case VerdictCode::kNotDistinguishable:
      return "not distinguishable";
    case VerdictCode::kTooFew:
      return "too few";
    case VerdictCode::kIncomplete:
      return "incomplete";
  }
  return "";
}

std::uint32_t holm_seeds(std::uint32_t tests) {
  // tests x 2 / 2^n <= kLevel. Past the exact tests the draws set the limit, so this is the answer
  // only where a sampled p can reach as low; with 100,000 draws that is 5,000 tests.
  std::uint32_t n = 2;
  while (n < 64 && std::ldexp(static_cast<double>(tests), 1 - static_cast<int>(n)) > kLevel) ++n;
  return n;
}

std::string resolution_text(std::size_t n, double sd, double smallest_effect, std::string_view unit,
                            PowerTable& power, Verdict& verdict) {
  TAILOR_CHECK(n >= 2 && smallest_effect > 0, "n={} effect={}", n, smallest_effect);
  const double detectable = power.effect_sd(n) * sd;
  if (std::isfinite(detectable)) verdict.detectable = detectable;
  const double in_sd = smallest_effect / sd;
  const auto needed = sd > 0 ? power.seeds_for(in_sd) : std::optional<std::size_t>(n);
  if (needed) {
    verdict.seeds_needed = static_cast<std::uint32_t>(*needed);
  } else {
    verdict.seeds_beyond = true;
    return fmt::format("more than {} seeds would be needed to resolve {:g}{} at this SD ({:.3g})",
                       kSeedsLookedAt, smallest_effect, unit, sd);
  }
  if (*needed > n) {
    return fmt::format("about {} more seed{} would resolve {:g}{}", *needed - n,
                       *needed - n == 1 ? "" : "s", smallest_effect, unit);
  }
  return fmt::format(
      "a true difference of {:g}{} would have been found with {:.0f} % power or more",
      smallest_effect, unit, 100 * kPower);
}

Verdict judge(const VerdictInput& input, PowerTable& power) {
  TAILOR_CHECK(input.paired != nullptr, "no pairs given");
  const PairedSummary& paired = *input.paired;
  const std::string_view unit = input.is_loss ? " nats" : "";
  Verdict verdict;
  if (input.incomplete) {
    verdict.code = VerdictCode::kIncomplete;
    verdict.text = fmt::format("no verdict: of {} seeds {}", input.seeds, failed_text(input));
    if (paired.n > 0) {
      verdict.text += fmt::format("; of those left the {}", measured_text(paired, unit));
    }
    return verdict;
  }
  if (paired.n == 0) return verdict;
  if (paired.n < 2 || !paired.sd) {
    verdict.code = VerdictCode::kTooFew;
    verdict.text = fmt::format("{}: no test", measured_text(paired, unit));
    return verdict;
  }
  const std::string resolution =
      resolution_text(paired.n, *paired.sd, input.smallest_effect, unit, power, verdict);
  if (!input.p.has_value()) {  // equal differences: no spread, so no t-test
    verdict.code = VerdictCode::kNotDistinguishable;
    verdict.text = fmt::format(
        "{}; all differences are equal, so there is no t-test and no verdict; sign-flip p = {:.3g}",
        measured_text(paired, unit), paired.sign_flip ? paired.sign_flip->p : 1.0);
    return verdict;
  }
  if (*input.p < kLevel) {
    const bool lower = paired.mean < 0;
    verdict.code = lower ? VerdictCode::kLower : VerdictCode::kHigher;
    verdict.text = fmt::format(
        "{}: {}; {}", input.is_loss ? (lower ? "better" : "worse") : (lower ? "lower" : "higher"),
        measured_text(paired, unit), method_text(input));
    return verdict;
  }
  verdict.code = VerdictCode::kNotDistinguishable;
  verdict.text = fmt::format("not distinguishable at n = {}; {}; {}; {}", paired.n, resolution,
                             measured_text(paired, unit), method_text(input));
  return verdict;
}

}  // namespace tailor::analysis
