// Radix sort of a monotone key, then exact order within equal keys.
#include "geometry/sorted_edges.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace tailor::geometry {

std::vector<Edge> sorted_edges(const DistanceMatrix& distances, double threshold) {
  const std::size_t n = distances.count();
  TAILOR_CHECK(n <= kEdgePointsMax, "{} points", n);
  double shortest = std::numeric_limits<double>::infinity();
  std::size_t count = 0;
  for (std::size_t i = 1; i < n; ++i) {
    const auto row = distances.row(i);
    for (std::size_t j = 0; j < i; ++j) {
      if (row[j] <= threshold) {
        ++count;
        shortest = std::min(shortest, row[j]);
      }
    }
  }
  std::vector<Edge> edges(count), other(count);
  // Digits of 11 bits, all counted in the pass that makes the keys: two where they leave few equal
  // keys, else three (the third is of 10).
  constexpr int kDigitBits = 11;
  constexpr std::uint32_t kDigits = 1u << kDigitBits;
  const int digits = count < (std::size_t{1} << 19) ? 2 : 3;
  const double key_max = digits == 2 ? 4194303.0 : 4294967295.0;
  std::vector<std::uint32_t> starts(3 * kDigits, 0);
  const double range = threshold - shortest;
  // Keys grow with lengths, that is all that is asked of them: every step is monotone. One factor
  // is fastest; where it leaves the range of float64, dividing first keeps in range.
  const double factor = key_max / range;
  const bool by_factor = range > 0 && factor < std::numeric_limits<double>::infinity();
  std::size_t at = 0;
  for (std::size_t i = 1; i < n; ++i) {
    const auto row = distances.row(i);
    for (std::size_t j = 0; j < i; ++j) {
      if (row[j] > threshold) continue;
      const double above = row[j] - shortest;
      const double position = by_factor ? above * factor : range > 0 ? above / range * key_max : 0;
      const std::uint32_t key = static_cast<std::uint32_t>(static_cast<std::int64_t>(position));
      edges[at++] = {key, static_cast<std::uint16_t>(i), static_cast<std::uint16_t>(j)};
      ++starts[key & (kDigits - 1)];
      ++starts[kDigits + ((key >> kDigitBits) & (kDigits - 1))];
      ++starts[2 * kDigits + (key >> (2 * kDigitBits))];
    }
  }
  for (int digit = 0; digit < digits; ++digit) {
    std::uint32_t* start = starts.data() + digit * static_cast<int>(kDigits);
    std::exclusive_scan(start, start + kDigits, start, 0u);
    const int shift = digit * kDigitBits;
    for (const Edge& edge : edges) other[start[(edge.key >> shift) & (kDigits - 1)]++] = edge;
    edges.swap(other);
  }
  for (std::size_t from = 0; from < edges.size();) {
    std::size_t to = from + 1;
    while (to < edges.size() && edges[to].key == edges[from].key) ++to;
    // The radix sort is stable, so equal lengths are in the order (i, j) already.
    const auto shorter = [&distances](const Edge& a, const Edge& b) {
      return distances(a.i, a.j) < distances(b.i, b.j);
    };
    if (to - from > 16) {
      std::stable_sort(edges.begin() + static_cast<std::ptrdiff_t>(from),
                       edges.begin() + static_cast<std::ptrdiff_t>(to), shorter);
    } else {
      for (std::size_t k = from + 1; k < to; ++k) {
        const Edge edge = edges[k];
        std::size_t place = k;
        for (; place > from && shorter(edge, edges[place - 1]); --place) {
          edges[place] = edges[place - 1];
        }
        edges[place] = edge;
      }
    }
    from = to;
  }
  return edges;
}

}  // namespace tailor::geometry
