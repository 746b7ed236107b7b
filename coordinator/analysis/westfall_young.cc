#include "coordinator/analysis/westfall_young.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace tailor::analysis {
namespace {

constexpr double kReachTolerance = 1e-12;

/// Differences of all tests, seed by seed, each test divided by the root of its sum of squares.
struct JointTable {
  std::vector<std::size_t> order;  // tests by u, largest first
  std::vector<double> observed;    // u in that order
  std::vector<double> by_seed;     // [seed][place in order]
  std::size_t seeds = 0;
};

/// `test` in units of the root of its sum of squares; all 0 when every difference is 0.
std::vector<double> normalised(std::span<const double> differences) {
  double largest = 0;
  for (const double d : differences) largest = std::max(largest, std::abs(d));
  std::vector<double> out(differences.size(), 0.0);
  if (!(largest > 0)) return out;
  double squares = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = differences[i] / largest;
    squares += out[i] * out[i];
  }
  for (double& value : out) value /= std::sqrt(squares);
  return out;
}

JointTable make_table(std::span<const SeededDifferences> tests) {
  JointTable table;
  std::vector<std::uint64_t> seeds;
  std::vector<double> observed(tests.size(), 0.0);
  std::vector<std::vector<double>> values(tests.size());
  for (std::size_t i = 0; i < tests.size(); ++i) {
    if (tests[i].differences.empty()) continue;
    values[i] = normalised(tests[i].differences);
    observed[i] = std::abs(std::accumulate(values[i].begin(), values[i].end(), 0.0));
    table.order.push_back(i);
    seeds.insert(seeds.end(), tests[i].seeds.begin(), tests[i].seeds.end());
  }
  std::sort(seeds.begin(), seeds.end());
  seeds.erase(std::unique(seeds.begin(), seeds.end()), seeds.end());
  table.seeds = seeds.size();
  std::stable_sort(table.order.begin(), table.order.end(),
                   [&](std::size_t a, std::size_t b) { return observed[a] > observed[b]; });
  const std::size_t m = table.order.size();
  table.by_seed.assign(table.seeds * m, 0.0);
  for (std::size_t place = 0; place < m; ++place) {
    const std::size_t test = table.order[place];
    table.observed.push_back(observed[test]);
    for (std::size_t k = 0; k < values[test].size(); ++k) {
      const auto seed = static_cast<std::size_t>(
          std::lower_bound(seeds.begin(), seeds.end(), tests[test].seeds[k]) - seeds.begin());
      table.by_seed[seed * m + place] = values[test][k];
    }
  }
  return table;
}

class Counter {
 public:
  explicit Counter(const JointTable& table)
      : table_(table), sums_(table.order.size()), hits_(table.order.size(), 0) {}

  /// `negative(seed)` says which signs are turned round.
  template <typename Negative>
  void count(const Negative& negative) {
    const std::size_t m = sums_.size();
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for (std::size_t seed = 0; seed < table_.seeds; ++seed) {
      const double sign = negative(seed) ? -1 : 1;
      const double* row = table_.by_seed.data() + seed * m;
      for (std::size_t i = 0; i < m; ++i) sums_[i] += sign * row[i];
    }
    double largest = 0;
    for (std::size_t i = m; i-- > 0;) {
      largest = std::max(largest, std::abs(sums_[i]));
      hits_[i] += largest >= table_.observed[i] * (1 - kReachTolerance) ? 1 : 0;
    }
  }

  const std::vector<std::uint64_t>& hits() const { return hits_; }

 private:
  const JointTable& table_;
  std::vector<double> sums_;
  std::vector<std::uint64_t> hits_;
};

}  // namespace

WestfallYoung westfall_young(std::span<const SeededDifferences> tests) {
  WestfallYoung out;
  out.p.resize(tests.size());
  const JointTable table = make_table(tests);
  out.tests = table.order.size();
  out.seeds = table.seeds;
  if (out.tests == 0) return out;
  Counter counter(table);
  std::uint64_t patterns = 0;
  if (table.seeds <= kExactJointSeeds) {
    patterns = std::uint64_t{1} << (table.seeds - 1);
    for (std::uint64_t pattern = 0; pattern < patterns; ++pattern) {
      counter.count([&](std::size_t seed) { return ((pattern >> seed) & 1) != 0; });
    }
    out.smallest_p = 1 / static_cast<double>(patterns);
  } else {
    const std::uint64_t work = std::uint64_t{table.seeds} * table.order.size();
    out.draws = std::clamp(kJointWork / work, kJointDrawsMin, kJointDrawsMax);
    Rng rng = Rng::split(kJointSeed, "westfall_young");
    std::uint64_t bits = 0;
    for (std::uint64_t draw = 0; draw < out.draws; ++draw) {
      counter.count([&](std::size_t seed) {
        bits = seed % 64 == 0 ? rng.next_u64() : bits >> 1;
        return (bits & 1) != 0;
      });
    }
    out.smallest_p = 1 / (static_cast<double>(out.draws) + 1);
  }
  // What was seen is a pattern too: counted when all are, added when they are drawn.
  const double added = out.draws > 0 ? 1 : 0;
  const double of =
      out.draws > 0 ? static_cast<double>(out.draws) + 1 : static_cast<double>(patterns);
  double running = 0;
  for (std::size_t i = 0; i < out.tests; ++i) {
    running = std::max(running, (static_cast<double>(counter.hits()[i]) + added) / of);
    out.p[table.order[i]] = running;
  }
  return out;
}

}  // namespace tailor::analysis
