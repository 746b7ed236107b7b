#include "coordinator/analysis/sign_flip.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace tailor::analysis {
namespace {

/// Differences that are equal in exact arithmetic tie whatever the rounding of their sums.
constexpr double kTieTolerance = 1e-12;
/// Additions of one sampled test at most, in units of eight signs.
constexpr std::uint64_t kSampleWorkMax = 4'000'000;

std::size_t groups_of_eight(std::size_t n) { return (n + 7) / 8; }

std::uint64_t draws_max(std::size_t n) {
  return std::clamp<std::uint64_t>(kSampleWorkMax / groups_of_eight(n), 1'000, kSampledPatterns);
}

/// The differences other than 0, divided by a power of two (exactly) so that no sum overflows.
std::vector<double> scaled(std::span<const double> differences) {
  double largest = 0;
  for (const double d : differences) {
    TAILOR_CHECK(std::isfinite(d), "a paired difference is not finite");
    largest = std::max(largest, std::abs(d));
  }
  const int exponent = largest > 0 ? std::ilogb(largest) : 0;
  std::vector<double> values;
  for (const double d : differences) {
    // What vanishes here is below 2^-1000 of the largest.
    if (const double value = std::ldexp(d, -exponent); value != 0) values.push_back(value);
  }
  return values;
}

/// All signed sums of `values`, ascending: 2^n entries. Each is a fresh sum of n terms, so no
/// rounding builds up from one to the next.
std::vector<double> signed_sums(std::span<const double> values) {
  std::vector<double> sums{0.0};
  std::vector<double> next;
  for (const double value : values) {
    const double size = std::abs(value);
    next.resize(2 * sums.size());
    std::size_t lower = 0;  // sums[lower] - size is the next of its list
    std::size_t upper = 0;  // sums[upper] + size, never ahead of `lower`
    for (double& out : next) {
      const bool take_lower = lower < sums.size() && sums[lower] - size <= sums[upper] + size;
      out = take_lower ? sums[lower++] - size : sums[upper++] + size;
    }
    sums.swap(next);
  }
  return sums;
}

/// Share of all patterns with |sum| >= at_least. REQUIRES: at_least > 0.
double exact_share(std::span<const double> values, double at_least) {
  const std::vector<double> left = signed_sums(values.first(values.size() / 2));
  const std::vector<double> right = signed_sums(values.subspan(values.size() / 2));
  std::size_t first = right.size();  // right[first ...] reach `at_least` with left[i]
  std::uint64_t hits = 0;
  for (const double a : left) {
    while (first > 0 && a + right[first - 1] >= at_least) --first;
    hits += right.size() - first;
  }
  // The patterns below -at_least are the mirror images.
  return 2 * static_cast<double>(hits) /
         (static_cast<double>(left.size()) * static_cast<double>(right.size()));
}

/// Sums of eight signed values by their pattern of signs, for each group of eight.
std::vector<std::array<double, 256>> sums_by_pattern(std::span<const double> values) {
  std::vector<std::array<double, 256>> tables(groups_of_eight(values.size()));
  for (std::size_t group = 0; group < tables.size(); ++group) {
    for (std::size_t pattern = 0; pattern < 256; ++pattern) {
      double sum = 0;
      for (std::size_t bit = 0; bit < 8 && group * 8 + bit < values.size(); ++bit) {
        const double value = values[group * 8 + bit];
        sum += ((pattern >> bit) & 1) != 0 ? value : -value;
      }
      tables[group][pattern] = sum;
    }
  }
  return tables;
}

void sample(std::span<const double> values, double at_least, SignFlip& result) {
  const auto tables = sums_by_pattern(values);
  const std::uint64_t limit = draws_max(values.size());
  Rng rng = Rng::split(kSampleSeed, "sign_flip");
  std::uint64_t hits = 0;
  while (result.draws < limit && hits < kSampleHits) {
    double sum = 0;
    std::uint64_t bits = 0;
    for (std::size_t group = 0; group < tables.size(); ++group) {
      if (group % 8 == 0) bits = rng.next_u64();
      sum += tables[group][bits & 0xFF];
      bits >>= 8;
    }
    ++result.draws;
    hits += std::abs(sum) >= at_least ? 1 : 0;
  }
  const auto draws = static_cast<double>(result.draws);
  const auto found = static_cast<double>(hits);
  result.p = hits == kSampleHits ? found / draws : (found + 1) / (draws + 1);
  result.standard_error = std::sqrt(result.p * (1 - result.p) / draws);
}

}  // namespace

SignFlip sign_flip_test(std::span<const double> differences) {
  TAILOR_CHECK(!differences.empty(), "a sign-flip test needs a difference");
  const std::vector<double> values = scaled(differences);
  SignFlip result;
  result.smallest_p = smallest_sign_flip_p(values.size());
  double sum = 0;
  double scale = 0;
  for (const double value : values) {
    sum += value;
    scale += std::abs(value);
  }
  const double at_least = std::abs(sum) - kTieTolerance * scale;
  if (values.size() <= kExactSignFlipMax) {
    if (at_least > 0) result.p = exact_share(values, at_least);  // else every pattern reaches it
  } else {
    sample(values, at_least, result);
  }
  return result;
}

double smallest_sign_flip_p(std::size_t n) {
  if (n <= 1) return 1;
  if (n > kExactSignFlipMax) return 1 / (static_cast<double>(draws_max(n)) + 1);
  return std::ldexp(2.0, -static_cast<int>(n));
}

}  // namespace tailor::analysis
