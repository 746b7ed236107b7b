// Order among outcomes, for one objective and for several, by the policy of history.h. Smaller
// costs
// are better everywhere. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "coordinator/search/suggest.h"

namespace tailor::search {

/// Objective `index` of an outcome as a cost; NaN when it is not known.
double cost(const Judged& judged, const Settings& settings, std::size_t index);
/// All of them.
std::vector<double> costs_of(const Judged& judged, const Settings& settings);
/// By how much an outcome misses its limits: the sum over them of max(0, excess) / max(|bound|,
/// 1e-12); infinite when one is not known. 0 = it keeps all.
double excess(const Judged& judged, const Settings& settings);

/// True when `a` is no worse in any cost and better in one. NaN counts as infinitely bad.
bool dominates(std::span<const double> a, std::span<const double> b);
/// Non-dominated sorting (Deb et al. 2002): fronts of indexes, the best first, each ascending.
/// Cost: O(m n^2).
std::vector<std::vector<std::size_t>> sorted_fronts(const std::vector<std::vector<double>>& costs);
/// Crowding distance of each member of one front; infinite at the ends.
std::vector<double> crowding(const std::vector<std::vector<double>>& costs,
                             std::span<const std::size_t> front);

/// The volume that `costs` dominate below `reference`. Exact, for 1 to 4 costs and more, by slicing
/// along the last one (O(n^(m-1)) and better). Points with NaN, or not below the reference,
/// contribute nothing. REQUIRES: all have reference.size() >= 1 costs.
double hypervolume(std::vector<std::vector<double>> costs, std::span<const double> reference);

/// What a record means to an algorithm that ranks.
enum class Standing {
  kGood,     ///< completed, within its limits
  kStopped,  ///< behind; the further it came, the better, then by value
  kOver,     ///< misses a limit; by how much
  kFailed,
};
struct RankedRecord {
  std::size_t index = 0;  ///< of the history
  Standing standing = Standing::kGood;
};
/// All records with coordinates that have an end and say something, the best first. One objective:
/// by cost; several: by front, then by crowding. Ties by index. Records that repeat another are
/// left
/// out. Cost: O(n log n); O(n^2) with several objectives.
std::vector<RankedRecord> ranked(const History& history, const Settings& settings);
/// Records with coordinates that have no end yet.
std::vector<std::size_t> running(const History& history);

}  // namespace tailor::search
