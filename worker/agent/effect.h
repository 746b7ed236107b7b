// Everything that a worker does to the world, as values: the output of step().
// Carried out in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "protocol/messages.h"

namespace tailor::agent {

/// Open stream number `session` to the coordinator. Answered by SessionOpened and, at any time
/// after, by SessionClosed.
struct OpenSession {
  std::uint64_t session = 0;
};

/// Give the stream up. No answer is needed; later events of it are ignored.
struct CloseSession {
  std::uint64_t session = 0;
};

/// Send on stream `session`; dropped without a word when that stream is gone.
struct Send {
  std::uint64_t session = 0;
  protocol::WorkerMessage message;
};

/// Make the attempt's folder (spec.json, lease, worker.json), then start its trainer in its own
/// process group. `assign.spec` has device and threads filled in; resume_from is for the executor,
/// who sees the disk. Answered by TrainerStarted or SpawnFailed, later by TrainerExited.
struct StartTrainer {
  protocol::Assign assign;
  MonotonicMs lease_deadline_ms = 0;
  /// Where rank 0 of the gang listens; "" when this is rank 0's worker, or there is no gang.
  std::string rendezvous = {};
};

/// Let go of a StartTrainer that may still be fetching a checkpoint. It is answered as ever: with
/// SpawnFailed, or, when it came too late, with TrainerStarted.
struct CancelStart {
  protocol::AttemptRef ref;
};

/// Bring this checkpoint, whose report is stored, to the coordinator's artifact store: in the
/// background, and instead of an older one of the trial that has not been begun. Answered by
/// CheckpointUploaded.
struct UploadCheckpoint {
  protocol::AttemptRef ref;
  protocol::CheckpointReport checkpoint;
};

enum class TrainerSignal { kTerm, kKill };

/// Signal the whole process group.
struct SignalTrainer {
  protocol::AttemptRef ref;
  TrainerSignal signal = TrainerSignal::kTerm;
};

/// Replace DIR/lease: the trainer may run until then (this node's boot clock).
struct WriteLease {
  protocol::AttemptRef ref;
  MonotonicMs deadline_ms = 0;
};

/// Answer with ReportsRead: what DIR/reports.jsonl has after `after_sequence`.
struct ReadReports {
  protocol::AttemptRef ref;
  std::uint64_t after_sequence = 0;
  std::size_t count_max = 0;
};

/// Answer with LogRead: what DIR/log has from `offset`, or from later when that is far behind.
struct ReadLog {
  protocol::AttemptRef ref;
  std::uint64_t offset = 0;
  std::size_t bytes_max = 0;
  bool after_exit = false;  ///< the log is whole: its end is wanted
};

/// Note in DIR/worker.json how far the coordinator has acknowledged. Saves resending after a
/// restart of the daemon; losing it loses nothing.
struct PersistAck {
  protocol::AttemptRef ref;
  std::uint64_t sequence = 0;
};

/// Store DIR/end.json durably: a restarted daemon reports the same end. Answered by EndPersisted,
/// before which the end is not sent.
struct PersistEnd {
  protocol::AttemptRef ref;
  protocol::Report report;
};

/// Everything is acknowledged, or nobody wants it: a restart must not find this attempt any more.
/// Its checkpoints and artifacts stay.
struct ForgetAttempt {
  protocol::AttemptRef ref;
  /// What the coordinator has of its reports; a later attempt carries the rest over.
  std::uint64_t acked_sequence = 0;
};

/// End the daemon.
struct Exit {
  int code = 0;
};

enum class LogLevel { kDebug, kInfo, kWarn, kError };

/// A line for stderr. `attempt` and `detail` may be empty.
struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string message;
  std::string attempt;
  std::string detail;
};

using AgentEffect = std::variant<OpenSession, CloseSession, Send, StartTrainer, CancelStart,
                                 UploadCheckpoint, SignalTrainer, WriteLease, ReadReports, ReadLog,
                                 PersistAck, PersistEnd, ForgetAttempt, Exit, LogLine>;
using Effects = std::vector<AgentEffect>;

}  // namespace tailor::agent
