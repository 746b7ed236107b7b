// Proposer: one search algorithm, made anew for each call of suggest() from the history alone. One
// algorithm a file in algorithms/, one line in algorithms/table.cc. Not for use outside this
// folder.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "coordinator/search/suggest.h"

namespace tailor::search {

/// What an algorithm may know. All outlive the proposer.
struct Context {
  const History& history;
  const Space& space;
  const Settings& settings;
  std::uint64_t seed = 0;
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  /// Points for proposal `ordinal`, the best first; they may be infeasible or repetitions.
  /// `attempt`
  /// counts 0, 1, ... while none was accepted. None at all: nothing is left to propose; an
  /// algorithm
  /// that is only at a loss leaves it to suggest(), which then draws.
  virtual std::vector<sweep::Point> propose(std::uint64_t ordinal, std::uint32_t attempt) = 0;
  /// One was taken: from here on it is running.
  virtual void accept(const sweep::Point& point) = 0;
  /// True for an algorithm that gives every point in its order: without one to propose the search
  /// is done, and it is asked without end.
  virtual bool exhausts_space() const { return false; }
};

using ProposerFactory = std::unique_ptr<Proposer> (*)(const Context& context);

/// One line of the table.
struct AlgorithmEntry {
  std::string_view name;
  ProposerFactory make;
  /// Ok, or why the space does not fit.
  Status (*check)(const Space& space, const Settings& settings);
};
std::span<const AlgorithmEntry> algorithm_table();

// The files of algorithms/.
std::unique_ptr<Proposer> make_grid_proposer(const Context& context);
Status check_grid(const Space& space, const Settings& settings);
std::unique_ptr<Proposer> make_random_proposer(const Context& context);
std::unique_ptr<Proposer> make_sobol_proposer(const Context& context);
std::unique_ptr<Proposer> make_tpe_proposer(const Context& context);
std::unique_ptr<Proposer> make_gp_proposer(const Context& context);
std::unique_ptr<Proposer> make_evolution_proposer(const Context& context);
std::unique_ptr<Proposer> make_nsga2_proposer(const Context& context);
/// Axes there are, and an end (`trials`) unless the space has one.
Status check_drawn(const Space& space, const Settings& settings);

/// The stream of one proposal of one algorithm.
inline Rng stream(const Context& context, std::string_view algorithm, std::uint64_t ordinal,
                  std::uint32_t attempt) {
  return Rng(keyed_u64(stable_hash(algorithm, context.seed), ordinal, attempt));
}

}  // namespace tailor::search
