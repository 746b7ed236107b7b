#include "base/rng.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace tailor {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ull;

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

double to_unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

double box_muller(double u, double v) {
  // 1 - u lies in (0, 1]: the logarithm is finite.
  return std::sqrt(-2.0 * std::log(1.0 - u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace

std::uint64_t stable_hash(std::string_view text, std::uint64_t seed) {
  std::uint64_t h = 0xCBF29CE484222325ull ^ mix(seed + kGolden);
  for (const char c : text) {
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  }
  return mix(h);
}

std::uint64_t keyed_u64(std::uint64_t key, std::uint64_t i, std::uint64_t j) {
  return mix(mix(mix(key + kGolden) + (i + 1) * kGolden) + (j + 1) * 0xD1B54A32D192ED03ull);
}

double keyed_normal(std::uint64_t key, std::uint64_t i, std::uint64_t j) {
  const std::uint64_t a = keyed_u64(key, i, j);
  return box_muller(to_unit(a), to_unit(mix(a + kGolden)));
}

std::uint64_t Rng::next_u64() {
  state_ += kGolden;
  return mix(state_);
}

double Rng::uniform() { return to_unit(next_u64()); }

std::uint64_t Rng::below(std::uint64_t bound) {
  TAILOR_CHECK(bound > 0);
  // Reject the incomplete last block, so that every value is equally likely.
  const std::uint64_t limit = max() - max() % bound;
  std::uint64_t x = next_u64();
  while (x >= limit) x = next_u64();
  return x % bound;
}

double Rng::normal() {
  const double u = uniform();
  return box_muller(u, uniform());
}

}  // namespace tailor
