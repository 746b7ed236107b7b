// How attempts end, why they are told to, and what matching clouds costs: the words that messages,
// rows and decisions share.
// Needs base only, so that storage's rows can speak them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace tailor::protocol {

/// How an attempt ended, in the vocabulary of the retry policy (design.md 5).
enum class EndClass {
  kCompleted,  ///< the whole budget was trained
  kStopped,    ///< told to stop (SIGTERM, lease ran out); a checkpoint was saved if one could be
  kUser,       ///< bad spec, bad flags
  kOom,
  kNan,
  kData,  ///< missing, unreadable, altered or out-of-vocabulary data or checkpoint
  kTimeout,
  kPreempted,
  kNodeLost,
  kLeaseLost,
  kInfrastructure,  ///< anything else: signal, exit code without a report, I/O error
};
std::string_view end_class_name(std::optional<EndClass> end);  ///< "" when there was no end
std::string_view end_class_name(EndClass end);  ///< "completed", "stopped", "user", "oom", ...
/// Errors: kInvalidArgument.
Result<EndClass> parse_end_class(std::string_view name);

/// What geometry::WorkEnergies says of an entry of a work profile: squared distances, means over
/// its subsamples.
struct MatchEnergies {
  double energy = 0;    ///< E of the best match that was found
  double identity = 0;  ///< E of every token in its place
  double norm_bound = 0;
  double second_bound = 0;
  double third_bound = 0;
  std::int64_t certified = 0;  ///< of how many subsamples E is proved to be the least
  friend bool operator==(const MatchEnergies&, const MatchEnergies&) = default;
};

/// Why an attempt is told to stop.
enum class StopReason {
  kNone,
  kPaused,
  kCancelled,
  kPreempted,  ///< others go first; it waits for a slot again
  kDrained,    ///< its node is wanted empty
  kTimeout,    ///< it used up its time
  kFenced,     ///< its token is stale
  kGang,       ///< another member of the gang has ended
  kOther,      ///< a reason that this version does not know
};
std::string_view stop_reason_name(StopReason reason);  ///< "", "paused", "cancelled", ...
/// kOther for a name that this version does not know: a stop is obeyed whatever its reason.
StopReason parse_stop_reason(std::string_view name);

}  // namespace tailor::protocol
