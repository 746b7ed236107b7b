// suggest(): the next points of a search, from what is known. One call is the whole of it:
//
//   auto space = Space::of(spec);
//   History history(space);
//   auto next = suggest(history, *space, settings, 1, 2);   // two points, for two free slots
//   history.add({next->points[0].point, next->points[0].hash});   // running now
//   history.set(0, {{1, Fate::kCompleted, {3.1}}});               // its outcome
//
// Pure: the same history, settings and seed give the same points, whatever process asks; proposal
// n draws from a stream of (seed, n). Asking for two is asking for one twice, the first being
// there as a running one. Points are feasible, and none repeats an architecture of the history
// unless Duplicates says so.
// Cost: grid, random, Sobol a few looks; TPE linear in the history (10,000: milliseconds); GP
// cubic in it, up to a bound.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/search/history.h"
#include "coordinator/search/space.h"

namespace tailor::search {

struct Objective {
  std::string name = "validation_loss";
  bool maximise = false;
};

/// A limit on something that a trial reports: "memory <= 20 GiB".
struct Limit {
  std::string name;
  double bound = 0;
  bool at_least = false;
};

/// What happens with a point that is the same architecture as an earlier one.
enum class Duplicates {
  kSkip,       ///< it is passed over
  kReuse,      ///< it is given with `same_as`: the outcome is known, nothing is trained
  kReplicate,  ///< it is given and trained again
};

struct Settings {
  std::string algorithm = "grid";
  std::uint64_t trials = 0;  ///< proposals that count, at most; 0 = no bound
  std::vector<Objective> objectives = {Objective{}};
  std::vector<Limit> limits = {};
  std::vector<sweep::Point> enqueued = {};  ///< these first, in order
  Duplicates duplicates = Duplicates::kSkip;
  /// Random (Sobol) points before a model is believed; 0 = the algorithm's own.
  std::size_t startup = 0;
};

struct Suggestion {
  sweep::Point point;
  std::string hash;
  std::optional<std::size_t> same_as = std::nullopt;  ///< of the history
};

struct Suggestions {
  std::vector<Suggestion> points;                ///< fewer than asked for only when `done`
  bool done = false;                             ///< nothing more will come of this history
  std::string why;                               ///< why done
  std::uint64_t infeasible = 0;                  ///< points that were looked at and are none
  std::map<std::string, std::uint64_t> reasons;  ///< of those
  std::uint64_t duplicates = 0;                  ///< points passed over as repetitions
};

/// Errors: kInvalidArgument for an unknown algorithm (with the nearest name) and for a space that
/// does not fit it (a grid over a continuous axis, no axes). REQUIRES: history.space() is `space`.
Result<Suggestions> suggest(const History& history, const Space& space, const Settings& settings,
                            std::uint64_t seed, std::size_t count);

/// Ok, or what is wrong with the settings for this space; as `suggest` would answer.
Status check(const Space& space, const Settings& settings);

/// What is said of a name that is none of them, with the nearest one.
Status unknown_algorithm(std::string_view name);

/// The names of algorithms/table.cc, in its order.
std::vector<std::string_view> suggest_names();

/// The best record so far: completed, finite, within all limits, lowest cost of the first
/// objective; of equals the earliest. nullopt = there is none.
std::optional<std::size_t> best_of(const History& history, const Settings& settings);
/// With several objectives: the records that no other dominates, in order of index.
std::vector<std::size_t> pareto_of(const History& history, const Settings& settings);

}  // namespace tailor::search
