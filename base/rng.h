// Seeded random numbers that can be split, saved and addressed by position.
//
// `Rng` is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): 64 bits of state, one multiply-xorshift a
// draw. `split(name)` gives an independent stream that depends on the seed and the name only, not
// on how many numbers were drawn before, so adding a consumer never shifts the others.
// `keyed_u64` is counter-based: the number at (key, i, j) without drawing those before it. The
// trainer initialises element (row, column) of a named tensor with it, so a wider matrix contains
// the narrower.
//
// Not for secrets. The same on every platform: no std:: distribution is used.
#pragma once

#include <cstdint>
#include <string_view>

namespace tailor {

/// 64-bit FNV-1a, then mixed: a stable hash of a name, the same for ever (it is stored in results).
std::uint64_t stable_hash(std::string_view text, std::uint64_t seed = 0);

/// Uniform 64 bits at position (i, j) of the stream `key`.
std::uint64_t keyed_u64(std::uint64_t key, std::uint64_t i, std::uint64_t j);

/// Standard normal at position (i, j) of the stream `key` (Box-Muller on two keyed draws).
double keyed_normal(std::uint64_t key, std::uint64_t i, std::uint64_t j);

/// A stream of random numbers. Copyable: a copy continues on its own. Not thread-safe.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}

  /// An independent stream for `name`, whatever was drawn so far from a stream with this seed.
  static Rng split(std::uint64_t seed, std::string_view name) {
    return Rng(stable_hash(name, seed));
  }

  std::uint64_t next_u64();
  /// Uniform in [0, 1) with 53 bits.
  double uniform();
  /// Uniform in [0, bound), without bias. REQUIRES: bound > 0.
  std::uint64_t below(std::uint64_t bound);
  /// Standard normal (Box-Muller, no cached second value: the state is one word).
  double normal();

  /// The whole state, to be stored and given to the constructor again.
  std::uint64_t state() const { return state_; }

  // UniformRandomBitGenerator, so that std::shuffle and friends accept it in tests.
  using result_type = std::uint64_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~0ull; }
  result_type operator()() { return next_u64(); }

 private:
  std::uint64_t state_;
};

}  // namespace tailor
