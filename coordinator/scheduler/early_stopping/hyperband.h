// Hyperband's brackets (arXiv 1603.06560, algorithm 1). Pure.
//
// With K rungs below the full budget (K = s_max), bracket s = K, K-1, ..., 0 begins at rung K - s
// with
//   n_s = ceil((K + 1) / (s + 1) x eta^s)
// units and halves them s times; bracket 0 trains K + 1 units straight to the full budget. After
// bracket 0 comes bracket K again, for as long as the search draws.
#pragma once

#include <cstdint>
#include <vector>

namespace tailor::scheduler {

struct Bracket {
  std::uint32_t begin = 0;  ///< first rung that is judged; K = none
  std::uint64_t size = 0;   ///< units
  friend bool operator==(const Bracket&, const Bracket&) = default;
};

/// s = K first. REQUIRES: reduction >= 2. Sizes end at 2^40.
std::vector<Bracket> hyperband_brackets(std::uint32_t levels, std::uint32_t reduction);

}  // namespace tailor::scheduler
