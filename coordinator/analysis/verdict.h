// The verdict on one paired comparison, in words that carry n, the method and the resolution:
// "not distinguishable at n = 3; about 7 more seeds would resolve 0.02". Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/analysis/paired.h"

namespace tailor::analysis {

/// Two-sided; intervals are 1 - kLevel.
inline constexpr double kLevel = 0.05;
/// The smallest difference that matters where the sweep file does not say: 0.02 nats.
inline constexpr double kDefaultSmallestEffect = 0.02;

enum class VerdictCode {
  kNone,                ///< of the baseline itself, or no pair yet
  kLower,               ///< below the baseline
  kHigher,              ///< above it
  kNotDistinguishable,  ///< at this n
  kTooFew,              ///< fewer than two pairs: no test
  kIncomplete,          ///< a seed failed or was stopped: its pairs are the lucky ones
};
/// "", "lower", "higher", "not distinguishable", "too few", "incomplete".
std::string_view verdict_name(VerdictCode code);

struct Verdict {
  VerdictCode code = VerdictCode::kNone;
  std::string text;
  /// The true difference that these n pairs find with 80 % power if their SD is the true one.
  std::optional<double> detectable;
  /// Pairs that would find `smallest_effect` so; unset where no SD is known, and when more than
  /// `kSeedsLookedAt` are needed (`seeds_beyond`).
  std::optional<std::uint32_t> seeds_needed;
  bool seeds_beyond = false;
};

struct VerdictInput {
  const PairedSummary* paired = nullptr;
  bool incomplete = false;
  std::uint32_t failed = 0;
  std::uint32_t stopped = 0;
  std::uint32_t seeds = 0;  ///< of the sweep
  std::optional<double> p;  ///< of the t-test, adjusted as the row's place asks for
  bool primary = false;
  std::uint32_t family_tests = 0;
  double smallest_effect = kDefaultSmallestEffect;
  bool is_loss = true;  ///< lower is better
};
/// REQUIRES: `input.paired` is not null.
Verdict judge(const VerdictInput& input, PowerTable& power);

/// The least n at which Holm's adjusted sign-flip p of `tests` comparisons can reach kLevel.
std::uint32_t holm_seeds(std::uint32_t tests);

/// "about 7 more seeds would resolve 0.02 (80 % power, ...)", also for other numbers with an SD.
/// `n` pairs had `sd`. Sets `verdict`'s numbers.
std::string resolution_text(std::size_t n, double sd, double smallest_effect, std::string_view unit,
                            PowerTable& power, Verdict& verdict);

}  // namespace tailor::analysis
