// Events: everything that can happen to the coordinator, as values. Made by rpc/ (requests), by the
// worker sessions and by the engine's timer; consumed by core::step, one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "protocol/messages.h"
#include "storage/records.h"
#include "sweep/spec.h"

namespace tailor::core {

/// Names a waiting caller; the engine gives them out and matches Reply effects to them.
using RequestId = std::uint64_t;
/// One open worker stream. Never reused while the process lives; 0 = none.
using SessionId = std::uint64_t;

/// Rows of what is not in memory, read from the store for a request that is about it.
struct Recalled {
  std::uint64_t as_of = 0;  ///< of the RowsWanted that asked for them
  std::uint32_t tries = 1;  ///< so many times rows were read for the request
  std::set<TrialId> asked;  ///< its `trials`: those of them without a row do not exist
  storage::Snapshot rows;
  std::vector<storage::Measured> measured;  ///< what was found of RowsWanted::measurements
  /// Of the sweep that was asked for by its name.
  std::uint64_t candidates = 0;
  std::uint64_t trials = 0;
};

// ---- requests; each is answered by exactly one Reply. The answer may be RowsWanted (effect.h):
// then the request is posted again, with these rows as `recalled`.

/// `spec` is the parsed `toml` (parsed by the caller, off the engine thread; parsing is pure).
struct SubmitSweep {
  RequestId request = 0;
  std::shared_ptr<const sweep::Spec> spec;
  std::string toml;
  std::string base_dir;
  std::string hash;       ///< sweep::spec_hash
  std::string user = {};  ///< who submits it, as the client says; slots are shared between users
  std::shared_ptr<const Recalled> recalled = nullptr;
};

enum class SweepAction { kPause, kResume, kCancel, kSetPriority };
struct ControlSweep {
  RequestId request = 0;
  SweepId sweep;
  SweepAction action = SweepAction::kPause;
  std::int32_t priority = 0;
  std::shared_ptr<const Recalled> recalled = nullptr;
};

enum class TrialAction { kCancel, kRetry, kSetPriority };
/// On the named trials, or with `failed_of` on every failed trial of that sweep.
struct ControlTrials {
  RequestId request = 0;
  std::vector<TrialId> trials;
  SweepId failed_of;
  TrialAction action = TrialAction::kRetry;
  bool dry_run = false;
  std::int32_t priority = 0;  ///< kSetPriority: added to the sweep's
  std::shared_ptr<const Recalled> recalled = nullptr;
  /// Only those that are in one of these states now; none = any. The rows by which they were chosen
  /// may be old.
  std::set<storage::TrialState> states = {};
};

/// How far ahead a drain may be planned.
inline constexpr std::int64_t kDrainInMsMax = 365ll * 86'400'000;

/// The worker finishes what runs and takes nothing new, from now on or in `in_ms`.
struct DrainWorker {
  RequestId request = 0;
  WorkerId worker;
  std::int64_t in_ms = 0;  ///< 0 to kDrainInMsMax
};

/// The worker is given no work until it is released. What runs there goes on.
struct QuarantineWorker {
  RequestId request = 0;
  WorkerId worker;
  std::string reason;
};
/// Ends a quarantine, whatever it was for, and forgets the worker's troubles.
struct ReleaseWorker {
  RequestId request = 0;
  WorkerId worker;
};

/// The artifact store now holds these checkpoints of the trial, newest first. Said for every trial
/// with artifacts after a start, and after each change; nothing of it is a row, the store's folder
/// is the truth.
struct ArtifactsChanged {
  RequestId request = 0;
  TrialId trial;
  std::vector<protocol::StoredCheckpoint> stored;
};

// ---- worker streams

/// First message of a stream arrived.
struct SessionOpened {
  SessionId session = 0;
  protocol::Hello hello;
};
/// Any later message.
struct SessionMessage {
  SessionId session = 0;
  protocol::WorkerMessage message;
};
struct SessionClosed {
  SessionId session = 0;
};

// ---- time

/// Nothing happened but time: leases may have run out, back-offs may be over.
struct Tick {};
/// The coordinator did not listen for `gap_ms` (full disk, suspended machine): every lease is
/// extended by so much, because nobody could renew it.
struct Stalled {
  std::int64_t gap_ms = 0;
};

using Event = std::variant<SubmitSweep, ControlSweep, ControlTrials, DrainWorker, QuarantineWorker,
                           ReleaseWorker, ArtifactsChanged, SessionOpened, SessionMessage,
                           SessionClosed, Tick, Stalled>;

/// The two times of an event, read once by the engine.
struct Now {
  MonotonicMs mono_ms = 0;  ///< for deadlines
  WallMs wall_ms = 0;       ///< for rows
};

}  // namespace tailor::core
