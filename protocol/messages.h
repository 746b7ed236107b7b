// What the coordinator and a worker say to each other over the worker's stream, as plain values.
//
// core/step and worker/agent/step speak in these; protocol/convert.h maps them to
// tailor.v1.WorkerMessage and tailor.v1.CoordinatorMessage.
// The simulation hands them over directly.
//
// Every message about an attempt carries its fencing token. Whoever sees a token that is not the
// current one ignores the content (coordinator) or stops the trainer (worker).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "protocol/report.h"
#include "protocol/trial_spec.h"

namespace tailor::protocol {

/// Names one attempt on the wire.
struct AttemptRef {
  AttemptId attempt;
  FencingToken token = 0;
  friend auto operator<=>(const AttemptRef&, const AttemptRef&) = default;
};

enum class DeviceKind { kCpu, kGpu };

/// One slot of a worker: a GPU, or a share of its CPU. Holds at most one live attempt.
struct Slot {
  std::uint32_t index = 0;
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;  ///< "cpu", or the GPU's name
  std::uint64_t memory_bytes = 0;
  std::int32_t threads = 1;  ///< CPU threads for the trainer in this slot
  friend bool operator==(const Slot&, const Slot&) = default;
};

/// An attempt that a (re)connecting worker still has:
/// running, or ended with reports not yet acknowledged.
struct HeldAttempt {
  AttemptRef ref;
  std::vector<std::uint32_t> slots;
  bool running = false;  ///< its process lives
  /// Last sequence the coordinator acknowledged, as the worker knows.
  std::uint64_t acked_sequence = 0;
  friend bool operator==(const HeldAttempt&, const HeldAttempt&) = default;
};

// ---- worker -> coordinator

/// First message of every stream.
struct Hello {
  std::string worker_name;  ///< unique in the cluster; the same name is the same worker
  std::string instance;     ///< drawn anew at each start of the daemon
  std::string version;
  std::string host;
  std::vector<Slot> slots;
  std::vector<HeldAttempt> held;
  WallMs wall_ms = 0;  ///< the sender's clock, to measure how far clocks are apart; 0 = not said
  /// Identity of the trials folder: workers with the same one share it; "" = not known.
  std::string folder = {};
  std::uint64_t memory_bytes = 0;        ///< of the node; 0 = not known
  std::vector<std::string> labels = {};  ///< what trials may ask for, "name" or "name=value"
  std::string address;  ///< where other members of a gang reach this node; "" = `host`
};

/// Renews the leases of the attempts it names. Costs no database write.
struct Heartbeat {
  std::uint64_t serial = 0;
  std::vector<AttemptRef> running;
  WallMs wall_ms = 0;      ///< the sender's clock; 0 = not said
  std::string unfit = {};  ///< not empty: why the node should be given no work at the moment
  std::uint64_t disk_free_bytes = 0;   ///< of the trials folder's file system
  std::uint64_t disk_total_bytes = 0;  ///< 0 = not known
};

/// Reports of one attempt in sequence order. Resent until acknowledged.
struct Reports {
  AttemptRef ref;
  std::vector<Report> reports;
};

/// A piece of DIR/log. Resent until acknowledged; stored once by offset.
struct LogChunk {
  AttemptRef ref;
  std::uint64_t offset = 0;
  std::string bytes;
  std::uint64_t left_out = 0;  ///< bytes before `offset` that are not sent: there was too much
};

/// The worker takes no new work (SIGTERM, or told to drain).
struct Draining {
  std::string reason;
};

/// The worker cannot carry out an Assign: no process was started.
struct Refused {
  AttemptRef ref;
  /// Whose fault it is; kInfrastructure is the node's and costs the trial nothing.
  EndClass end = EndClass::kInfrastructure;
  std::string reason;
};

/// A process of a gang that does not speak for the attempt (rank 0 is another member's) has ended,
/// and its process group is empty.
struct MemberEnded {
  AttemptRef ref;
  EndClass end = EndClass::kInfrastructure;
  std::string message;
};

/// Where rank 0 of a gang listens. From its worker to the coordinator, and from there to the other
/// members, who start when they have it.
struct Rendezvous {
  AttemptRef ref;
  std::string address;  ///< host:port
};

using WorkerMessage =
    std::variant<Hello, Heartbeat, Reports, LogChunk, Draining, Refused, MemberEnded, Rendezvous>;

// ---- coordinator -> worker

/// What to do with a held attempt.
struct HeldVerdict {
  AttemptRef ref;
  bool keep = false;                 ///< false: stop its trainer, drop its reports
  std::uint64_t acked_sequence = 0;  ///< continue with the next
  std::uint64_t log_offset = 0;      ///< stored log bytes
  friend bool operator==(const HeldVerdict&, const HeldVerdict&) = default;
};

/// Answer to Hello.
struct Welcome {
  WorkerId worker;
  std::int64_t heartbeat_ms = 0;
  std::int64_t lease_ms = 0;  ///< of attempts; the worker's own trainer leases are shorter
  std::vector<HeldVerdict> held;
};

/// A worker's share of an attempt that several workers run together: ranks
/// `first_rank` .. `first_rank + ranks - 1` of `world`. The member with rank 0 speaks for the
/// attempt: it alone sends reports and the log.
struct Gang {
  std::uint32_t first_rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t world = 1;  ///< 1 = no gang
  friend bool operator==(const Gang&, const Gang&) = default;
};

/// A checkpoint in the coordinator's artifact store.
struct StoredCheckpoint {
  std::uint32_t attempt = 0;
  std::int64_t step = 0;
  std::string sha256;  ///< of its manifest
  std::int64_t bytes = 0;
  friend bool operator==(const StoredCheckpoint&, const StoredCheckpoint&) = default;
};

/// Start this trial. Repeated safely: a worker that has the attempt already ignores it.
struct Assign {
  TrialSpec spec;  ///< trial, attempt and token inside
  std::vector<std::uint32_t> slots;
  /// A trainer that reports no new step for so long is ended with class timeout; 0 = no limit.
  std::int64_t progress_limit_ms = 0;
  std::int64_t time_limit_ms = 0;  ///< of this attempt, from its start; 0 = no limit
  Gang gang = {};
  std::vector<StoredCheckpoint> stored = {};  ///< what can be fetched, newest first
};

struct HeartbeatAck {
  std::uint64_t serial = 0;
};

/// Everything up to and including `through_sequence` is committed.
struct ReportsAck {
  AttemptRef ref;
  std::uint64_t through_sequence = 0;
};

/// Log bytes before `through_offset` are committed.
struct LogAck {
  AttemptRef ref;
  std::uint64_t through_offset = 0;
};

/// End this attempt's trainer (SIGTERM, then SIGKILL).
struct Stop {
  AttemptRef ref;
  StopReason reason = StopReason::kOther;
  bool discard = false;  ///< true: nobody wants its remaining reports (stale token)
};

/// Finish what runs, take nothing new.
struct Drain {};

using CoordinatorMessage =
    std::variant<Welcome, Assign, HeartbeatAck, ReportsAck, LogAck, Stop, Drain, Rendezvous>;

}  // namespace tailor::protocol
