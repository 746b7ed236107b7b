// "Why is my trial waiting?": for every state of a trial one reason with a code for programs, a
// sentence for people, and few details. Pure; asked by people, so it may look at all workers.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "coordinator/core/state.h"

namespace tailor::core {

enum class WhyCode {
  kUnknown,        ///< there is no such trial, or it has ended
  kUnreadable,     ///< its sweep cannot be read by this version
  kPaused,         ///< its sweep is paused
  kSchedule,       ///< its widths are to be cut from a measurement that is not there yet
  kBackOff,        ///< it waits before its next attempt
  kParallel,       ///< as many trials of its sweep run as may
  kNoWorker,       ///< no worker is connected
  kNeverFits,      ///< no connected worker could hold it
  kWorkersOut,     ///< those that could are draining, unfit, silent, paused or in quarantine
  kBusy,           ///< every slot that it could have is taken
  kKept,           ///< what is free is kept for another trial
  kKeeping,        ///< slots are kept for it as they become free
  kMakingRoom,     ///< others were told to stop for it
  kHolder,         ///< it waits for a worker that can read its checkpoint
  kBehind,         ///< others are ahead of it
  kAssigned,       ///< its trainer has not reported yet
  kRunning,        ///< it trains
  kStopping,       ///< it was told to stop
  kWorkerAway,     ///< its worker is not connected
  kMembersEnding,  ///< a member of its gang has ended, the others are about to
  kCompleted,
  kStoppedEarly,
  kFailed,
  kCancelled,
};
std::string_view why_code_name(WhyCode code);  ///< "paused", "back_off", ...

struct Why {
  storage::TrialState state = storage::TrialState::kQueued;
  WhyCode code = WhyCode::kUnknown;
  std::string sentence;  ///< complete by itself, names the trial
  WallMs since_ms = 0;   ///< since when the state holds; 0 = not known
  /// Facts by name, each bounded, at most kWhyDetailsMax: {"worker node7": "is draining"}.
  std::map<std::string, std::string> details;
};
inline constexpr std::size_t kWhyDetailsMax = 8;

/// Cost: linear in the workers and open sweeps at most.
Why why(const State& state, TrialId trial, Now now);
/// Of a trial that is final and may be in no memory any more. REQUIRES: it is final.
Why why_ended(const storage::TrialRow& trial);
/// The sentence and the details in one line.
std::string text_of(const Why& answer);

}  // namespace tailor::core
