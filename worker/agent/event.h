// Everything that can happen to a worker, as values: the input of step().
//
// Events about a stream carry the number of the session that OpenSession asked for, so that news
// from a stream that was given up is recognised. ReportsRead and LogRead answer ReadReports and
// ReadLog, one answer a request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "protocol/messages.h"

namespace tailor::agent {

/// The generation of the coordinator's database that gave a token out: attempts and trials of the
/// same number in another one may be something else.
constexpr std::uint64_t generation_of(FencingToken token) { return token >> 40; }

/// What an attempt may take. 0 = no limit.
struct AttemptLimits {
  std::int64_t progress_ms = 0;  ///< from one new step to the next
  std::int64_t time_ms = 0;      ///< from the trainer's start to its end
  friend bool operator==(const AttemptLimits&, const AttemptLimits&) = default;
};

/// An attempt of this worker that was found in the trials folder at start.
struct RestoredAttempt {
  protocol::AttemptRef ref;
  std::vector<std::uint32_t> slots;
  bool running = false;  ///< its process (same pid, same start time) lives and is adopted
  std::uint64_t acked_sequence = 0;  ///< as last persisted; the coordinator's verdict corrects it
  std::optional<protocol::Report> end;  ///< DIR/end.json: the end that this worker wrote for it
  protocol::Gang gang = {};             ///< which ranks of the trial run here
  AttemptLimits limits = {};
  MonotonicMs started_ms = 0;  ///< boot clock; 0 = not known, or of another boot
};

/// The first event, once.
struct Start {
  WallMs wall_ms = 0;
  std::vector<RestoredAttempt> restored;
};

/// The stream can be written to.
struct SessionOpened {
  std::uint64_t session = 0;
};

/// The stream is gone, or could not be opened.
struct SessionClosed {
  std::uint64_t session = 0;
  Status reason;
};

struct Received {
  std::uint64_t session = 0;
  protocol::CoordinatorMessage message;
};

/// Reports with sequence numbers after `after_sequence`, without gaps,
/// at most as many as asked for.
struct ReportsRead {
  protocol::AttemptRef ref;
  std::uint64_t after_sequence = 0;  ///< of the request
  std::vector<protocol::Report> reports;
  bool at_end = false;             ///< every complete line of the file was seen
  std::uint64_t end_sequence = 0;  ///< sequence of the EndReport in the file; 0 = none seen so far
  std::string damage;              ///< not empty: the file cannot be read further, and why
};

/// Bytes of DIR/log. `bytes` begin `left_out` bytes behind `offset`, the one that was asked for.
struct LogRead {
  protocol::AttemptRef ref;
  std::uint64_t offset = 0;
  std::string bytes;
  bool at_end = false;
  std::uint64_t left_out = 0;
};

/// The trainer of StartTrainer runs.
struct TrainerStarted {
  protocol::AttemptRef ref;
};

/// How a process ended. Both unset: it was adopted and its status is not known.
struct ExitStatus {
  std::optional<int> code;
  std::optional<int> signal;
};

/// The trainer and its whole process group are gone; its slots are free.
struct TrainerExited {
  protocol::AttemptRef ref;
  ExitStatus status;
};

/// StartTrainer could not be done: the folder or the process could not be made, and nothing runs.
struct SpawnFailed {
  protocol::AttemptRef ref;
  std::string message;
};

/// PersistEnd is done, or cannot be (the disk is full): the end may be sent.
struct EndPersisted {
  protocol::AttemptRef ref;
  std::uint64_t sequence = 0;  ///< of the request
};

/// The files of an attempt do not answer (a hung file system), or do so again.
struct FilesAnswer {
  protocol::AttemptRef ref;
  std::string trouble;  ///< "" = they answer
};

/// Rank 0 of a gang, whose trainer runs here, listens at `address` (host:port).
struct RendezvousFound {
  protocol::AttemptRef ref;
  std::string address;
};

/// An UploadCheckpoint is over: it is stored, is not wanted, or cannot be brought.
struct CheckpointUploaded {
  protocol::AttemptRef ref;
  std::int64_t step = 0;
};

/// How the node is. Sent every few seconds, from a thread that may hang with its file system.
struct NodeHealth {
  std::string trouble;                 ///< of the disk or a device; "" = none
  std::uint64_t disk_free_bytes = 0;   ///< of the trials folder's file system
  std::uint64_t disk_total_bytes = 0;  ///< 0 = not known
};

/// Time passes. Sent regularly (every 100 ms or so): deadlines and reading happen on ticks.
struct Tick {
  WallMs wall_ms = 0;
};

/// SIGTERM. The second one ends the trainers.
struct DrainRequested {
  std::string reason;
};

using AgentEvent =
    std::variant<Start, SessionOpened, SessionClosed, Received, ReportsRead, LogRead,
                 TrainerStarted, TrainerExited, SpawnFailed, EndPersisted, FilesAnswer,
                 RendezvousFound, CheckpointUploaded, NodeHealth, Tick, DrainRequested>;

}  // namespace tailor::agent
