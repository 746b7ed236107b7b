// AgentState: all that a worker daemon knows. Owned by one thread, changed by step() alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "protocol/messages.h"
#include "worker/agent/event.h"
#include "worker/agent/outbox.h"

namespace tailor::agent {

/// Fixed at start. Durations in milliseconds.
struct AgentOptions {
  std::string worker_name;
  std::string instance;  ///< drawn anew at each start of the daemon
  std::string version;
  std::string host;
  std::vector<protocol::Slot> slots;
  std::string folder;  ///< identity of the trials folder (Hello.folder)
  std::uint64_t memory_bytes = 0;
  std::vector<std::string> labels;
  std::string address;  ///< where other members of a gang reach this node; "" = `host`

  /// Less free than this on the trials folder's disk, and the node asks for no work: the smaller of
  /// both, so that neither a small disk nor a very large one is given up early. 0 = does not look.
  std::uint64_t disk_reserve_bytes = 1ull << 30;
  double disk_reserve_share = 0.02;
  std::int64_t health_limit_ms = 0;  ///< without NodeHealth for so long, the disk hangs; 0 = none

  /// A trainer whose worker is gone stops after this long. Shortened to 3/4 of the coordinator's
  /// attempt lease, so that it has stopped before the trial is given to somebody else.
  std::int64_t trainer_lease_ms = 10'000;
  std::int64_t offline_limit_ms = 24ll * 3600 * 1000;  ///< training without a coordinator
  std::int64_t stop_grace_ms = 30'000;                 ///< from SIGTERM to SIGKILL
  /// A drain stops the trainers after this long; 0 = lets them finish.
  std::int64_t drain_limit_ms = 0;
  std::int64_t backoff_first_ms = 200;
  std::int64_t backoff_max_ms = 10'000;
  std::int64_t welcome_limit_ms = 20'000;  ///< from Hello to Welcome, before the stream is given up
  std::int64_t resend_ms = 15'000;  ///< unacknowledged for so long on a live stream: sent again
  std::int64_t flush_limit_ms = 10'000;  ///< how long ends wait for log bytes, and exits for acks
  std::size_t reports_window = 512;      ///< unacknowledged reports in memory, an attempt
  std::size_t reports_batch = 256;       ///< reports a message
  std::size_t log_window_bytes = 256 * 1024;
  std::size_t log_batch_bytes = 64 * 1024;
  std::uint64_t log_free_bytes = 4 << 20;     ///< of each log; what follows is read at this rate:
  std::int64_t log_bytes_per_s = 128 * 1024;  ///< while the trainer runs
  /// A worker that ends waits so long for checkpoints that are on their way to the coordinator.
  std::int64_t upload_limit_ms = 10 * 60 * 1000;
  bool exit_when_idle = false;
  /// With exit_when_idle: nothing held for so long ends the daemon.
  std::int64_t idle_exit_ms = 30'000;
  std::uint64_t seed = 0;  ///< spreads reconnecting workers over time
};

/// What the process of an attempt does.
enum class Phase {
  kWaiting,   ///< accepted; its slot is still being vacated, or rank 0 of its gang is not up yet
  kStarting,  ///< StartTrainer was returned
  kRunning,
  kExited,  ///< the process is gone (or never was); reports may be left to send
};

/// Whether the attempt is still wanted.
enum class StopKind {
  kNone,
  kStop,     ///< end the trainer, forward its reports and its end
  kDiscard,  ///< end the trainer, nobody wants its reports
};

struct AgentAttempt {
  protocol::AttemptRef ref;
  std::vector<std::uint32_t> slots;
  Phase phase = Phase::kStarting;
  std::optional<protocol::Assign> waiting;  ///< kWaiting: what to start
  protocol::Gang gang;                      ///< world = 1: none
  std::string rendezvous;                   ///< of its gang, once known

  AttemptLimits limits;
  MonotonicMs started_at_ms = 0;
  MonotonicMs stepped_at_ms = 0;  ///< last time that it told news, or that nobody could listen
  std::int64_t last_step = -1;    ///< of its metric reports
  std::string timeout;            ///< not empty: the limit that it passed, in words
  std::string files_trouble;      ///< not empty: its files do not answer

  StopKind stop = StopKind::kNone;
  std::string stop_reason;
  std::optional<MonotonicMs> kill_at_ms;  ///< SIGKILL is due
  bool killed = false;

  ExitStatus exit;
  MonotonicMs exited_at_ms = 0;
  std::string failure;   ///< why there is no trainer, or why its reports cannot be read
  bool damaged = false;  ///< ... the latter
  MonotonicMs lease_deadline_ms = 0;

  ReportOutbox reports;
  bool reading_reports = false;       ///< a ReadReports is unanswered
  bool reading_reports_last = false;  ///< ... and was asked after the exit, so its end is the end
  std::uint64_t end_sequence = 0;     ///< of the EndReport; 0 = not known yet
  std::optional<protocol::Report> own_end;  ///< the end this worker wrote, kept in DIR/end.json
  bool persisting_end = false;              ///< a PersistEnd is unanswered
  MonotonicMs end_acked_at_ms = 0;
  MonotonicMs progress_at_ms = 0;  ///< last acknowledgement, or first send after one
  std::uint64_t persisted_ack = 0;
  MonotonicMs persist_at_ms = 0;

  LogOutbox log;
  bool reading_log = false;
  bool reading_log_last = false;
  bool log_complete = false;       ///< read to its end after the exit
  MonotonicMs log_read_at_ms = 0;  ///< while the trainer runs, not read before
  MonotonicMs log_progress_at_ms = 0;
};

enum class SessionPhase { kClosed, kOpening, kGreeting, kWelcomed };

struct AgentState {
  AgentState() : rng(0) {}
  explicit AgentState(AgentOptions agent_options)
      : options(std::move(agent_options)), rng(options.seed) {}

  AgentOptions options;
  std::map<protocol::AttemptRef, AgentAttempt> attempts;
  /// Recently forgotten attempts: a repeated Assign must not start them again.
  std::deque<protocol::AttemptRef> forgotten;
  /// Recent refusals: an Assign that is repeated is refused again, in the same words.
  std::deque<protocol::Refused> refused;

  std::uint64_t session = 0;  ///< number of the current or last stream
  SessionPhase session_phase = SessionPhase::kClosed;
  MonotonicMs session_since_ms = 0;  ///< when session_phase began
  MonotonicMs open_at_ms = 0;        ///< kClosed: when to try again
  std::int64_t failures = 0;         ///< since the last Welcome
  MonotonicMs last_contact_ms = 0;   ///< last message from the coordinator
  bool offline_stopped = false;      ///< offline_limit passed and was acted on

  WorkerId worker;
  std::int64_t heartbeat_ms = 1000;
  std::int64_t lease_ms = 0;  ///< of attempts; 0 = never welcomed
  std::uint64_t heartbeat_serial = 0;
  MonotonicMs heartbeat_at_ms = 0;

  std::uint64_t disk_free_bytes = 0;
  std::uint64_t disk_total_bytes = 0;
  bool disk_low = false;
  std::string device_trouble;
  MonotonicMs health_at_ms = 0;  ///< of the last NodeHealth
  std::string unfit;             ///< as last worked out; "" = the node may be given work

  /// Checkpoints on their way to the coordinator's artifact store.
  std::map<protocol::AttemptRef, std::int64_t> uploads;

  bool draining = false;
  bool drain_forced = false;  ///< trainers were told to stop
  std::string drain_reason;
  MonotonicMs drain_since_ms = 0;
  MonotonicMs idle_since_ms = 0;
  MonotonicMs quiet_since_ms = 0;  ///< last time a trainer lived
  bool exited = false;

  Rng rng;
  std::int64_t wall_offset_ms = 0;  ///< wall time minus `now`, as of the last Start or Tick
};

}  // namespace tailor::agent
