// Sobol search: scrambled Sobol points in order. Proposal n is point n of the sequence, so that the
// first 2^k proposals are even in the space whatever happened in between; a point that is
// infeasible
// or a repetition is replaced by one of another scramble.
#include "coordinator/search/algorithms/sobol.h"

#include <array>
#include <vector>

#include "base/check.h"
#include "coordinator/search/proposer.h"

namespace tailor::search {
namespace {

/// Degree s, coefficients a and first direction numbers m of one axis.
struct SobolPolynomial {
  int degree;
  std::uint32_t coefficients;
  std::array<std::uint32_t, 7> first;
};
constexpr std::array<SobolPolynomial, kSobolAxes - 1> kSobolPolynomials = {{
    {1, 0, {1}},
    {2, 1, {1, 3}},
    {3, 1, {1, 3, 1}},
    {3, 2, {1, 1, 1}},
    {4, 1, {1, 1, 3, 3}},
    {4, 4, {1, 3, 5, 13}},
    {5, 2, {1, 1, 5, 5, 17}},
    {5, 4, {1, 1, 5, 5, 5}},
    {5, 7, {1, 1, 7, 11, 19}},
    {5, 11, {1, 1, 5, 1, 1}},
    {5, 13, {1, 1, 1, 3, 11}},
    {5, 14, {1, 3, 5, 5, 31}},
    {6, 1, {1, 3, 3, 9, 7, 49}},
    {6, 13, {1, 1, 1, 15, 21, 21}},
    {6, 16, {1, 3, 1, 13, 27, 49}},
    {6, 19, {1, 1, 1, 15, 7, 5}},
    {6, 22, {1, 3, 1, 15, 13, 25}},
    {6, 25, {1, 1, 5, 5, 19, 61}},
    {7, 1, {1, 3, 7, 11, 23, 15, 103}},
    {7, 4, {1, 3, 7, 13, 13, 15, 69}},
}};

using SobolTable = std::array<std::array<std::uint32_t, 32>, kSobolAxes>;

SobolTable make_sobol_table() {
  SobolTable v{};
  for (std::size_t bit = 0; bit < 32; ++bit) v[0][bit] = 1u << (31 - bit);
  for (std::size_t axis = 1; axis < kSobolAxes; ++axis) {
    const SobolPolynomial& p = kSobolPolynomials[axis - 1];
    const auto s = static_cast<std::size_t>(p.degree);
    for (std::size_t bit = 0; bit < 32; ++bit) {
      if (bit < s) {
        v[axis][bit] = p.first[bit] << (31 - bit);
        continue;
      }
      std::uint32_t value = v[axis][bit - s] ^ (v[axis][bit - s] >> s);
      for (std::size_t k = 1; k < s; ++k) {
        if ((p.coefficients >> (s - 1 - k)) & 1) value ^= v[axis][bit - k];
      }
      v[axis][bit] = value;
    }
  }
  return v;
}

std::uint32_t reversed(std::uint32_t x) {
  x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
  x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
  x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
  x = ((x >> 8) & 0x00ff00ffu) | ((x & 0x00ff00ffu) << 8);
  return (x >> 16) | (x << 16);
}

/// Each bit is flipped or not as a function of the bits above it.
std::uint32_t nested_scramble(std::uint32_t bits, std::uint32_t seed) {
  std::uint32_t x = reversed(bits);
  x ^= x * 0x3d20adeau;
  x += seed;
  x *= (seed >> 16) | 1u;
  x ^= x * 0x05526c56u;
  x ^= x * 0x53a22864u;
  return reversed(x);
}

class SobolProposer final : public Proposer {
 public:
  explicit SobolProposer(const Context& context) : context_(context) {}

  std::vector<sweep::Point> propose(std::uint64_t ordinal, std::uint32_t attempt) override {
    Coordinates x(context_.space.size());
    const std::uint64_t seed = keyed_u64(stable_hash("sobol", context_.seed), attempt, 0);
    for (std::size_t axis = 0; axis < x.size(); ++axis) {
      x[axis] = scrambled_sobol(static_cast<std::uint32_t>(ordinal), axis, seed);
    }
    return {context_.space.decode(x)};
  }

  void accept(const sweep::Point&) override {}

 private:
  const Context context_;
};

}  // namespace

std::uint32_t sobol_bits(std::uint32_t index, std::size_t axis) {
  static const SobolTable table = make_sobol_table();
  TAILOR_CHECK(axis < kSobolAxes, "axis={}", axis);
  std::uint32_t bits = 0;
  for (std::size_t bit = 0; index != 0; ++bit, index >>= 1) {
    if (index & 1) bits ^= table[axis][bit];
  }
  return bits;
}

double scrambled_sobol(std::uint32_t index, std::size_t axis, std::uint64_t seed) {
  const std::uint64_t key = keyed_u64(seed, axis, axis / kSobolAxes);
  const std::uint32_t bits =
      nested_scramble(sobol_bits(index, axis % kSobolAxes), static_cast<std::uint32_t>(key >> 32));
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-32;
}

std::unique_ptr<Proposer> make_sobol_proposer(const Context& context) {
  return std::make_unique<SobolProposer>(context);
}

}  // namespace tailor::search
