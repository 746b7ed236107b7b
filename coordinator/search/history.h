// History: all that a search knows. It is read from rows (candidates in their order, the ends of
// their seeds, intermediate values) and nothing else is kept: a search that is restarted reads the
// same history and goes on as if nothing had happened.
//
// What the ends mean for every algorithm ("cost" = the objective, its sign changed when it is
// maximised; smaller is better):
//   completed    its values count. One that is NaN or infinite counts as failed
//   stopped      its last value counts, but behind every completed one for those that rank, and no
//                better than the median of the completed for those that fit a model
//   failed       the worst there is; models learn where the space fails
//   over a limit ranked behind all that keep it, by how much they miss it
//   running      a liar: it counts as bad, so that two workers are not sent to the same place
//   infeasible, lost   say nothing; a lost or infeasible point is not suggested again
// None of the last five is ever the best.
//
// Values; not thread-safe for writing. A copy is a snapshot.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/search/space.h"
#include "sweep/spec.h"

namespace tailor::search {

/// How a proposal, or one seed of it, ended, or that it has not.
enum class Fate {
  kRunning,     ///< waiting or running
  kCompleted,   ///
  kStopped,     ///< early, by a rule
  kFailed,      ///< of its own fault
  kInfeasible,  ///< found to be no candidate after it was proposed
  kLost,        ///< cancelled or lost: nothing is known
};

/// An intermediate value of the first objective.
struct Rung {
  std::int64_t tokens = 0;
  double value = 0;  ///< may be NaN
  friend bool operator==(const Rung&, const Rung&) = default;
};

/// One seed of a proposal.
struct SeedRun {
  std::uint64_t seed = 0;
  Fate fate = Fate::kRunning;
  /// As `Settings::objectives`, then as `Settings::limits`; NaN or missing at the end = not known.
  std::vector<double> values = {};
  std::vector<Rung> rungs = {};  ///< ascending tokens
  friend bool operator==(const SeedRun&, const SeedRun&) = default;
};

/// One proposal, with whatever is known of it now.
struct Record {
  sweep::Point point;
  std::string hash = {};            ///< of `Look`; "" = not known
  std::vector<SeedRun> seeds = {};  ///< those begun; none = all wait
  /// Not from the search: a named candidate, a point of another sweep, one told by hand. It is
  /// learned from and not repeated, but does not count towards `Settings::trials`.
  bool given = false;
  /// It repeats the architecture of this earlier record, whose outcome is its own.
  std::optional<std::size_t> same_as = std::nullopt;
};

/// A proposal with its seeds judged together.
struct Judged {
  Fate fate = Fate::kRunning;
  /// Means over completed seeds; over the last rungs of a stopped one, first objective only. NaN =
  /// not known.
  std::vector<double> values = {};
  std::int64_t tokens = 0;  ///< of the last rung of a stopped one
};
/// All seeds final: failed as soon as one failed or is not finite, else stopped as soon as one was,
/// else completed by the mean of those that completed; lost when none is left. Running before, also
/// without seeds.
Judged judge(const Record& record);

class History {
 public:
  explicit History(std::shared_ptr<const Space> space) : space_(std::move(space)) {}

  /// Returns its index. A point that is not of the space (warm start, a named candidate with other
  /// keys) is kept, and has no coordinates.
  std::size_t add(Record record);
  /// Replaces seeds of record `index`, and judges it anew. REQUIRES: index < size().
  void set(std::size_t index, std::vector<SeedRun> seeds);

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const Space& space() const { return *space_; }
  const std::shared_ptr<const Space>& shared_space() const { return space_; }
  const Record& record(std::size_t index) const { return entries_[index].record; }
  const Judged& judged(std::size_t index) const { return entries_[index].judged; }
  /// Empty for a point that is not of the space.
  const Coordinates& coordinates(std::size_t index) const { return entries_[index].x; }
  /// Proposals of the search itself that count towards its budget: not given, not infeasible, not a
  /// repetition.
  std::uint64_t counted() const { return counted_; }
  /// Records that are not given: the next one is proposal `proposals()`.
  std::uint64_t proposals() const { return proposals_; }
  /// The first record of this hash; nullopt when there is none.
  std::optional<std::size_t> find(const std::string& hash) const;
  /// Raised by every change: names the state that an answer was computed from.
  std::uint64_t version() const { return version_; }

 private:
  struct Entry {
    Record record;
    Judged judged;
    Coordinates x;
  };
  bool counts(const Entry& entry) const;

  std::shared_ptr<const Space> space_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> by_hash_;
  std::uint64_t counted_ = 0;
  std::uint64_t proposals_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace tailor::search
