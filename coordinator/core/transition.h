// Transition: one step under way. The handlers (submit.cc, control.cc, session.cc, reports.cc,
// timers.cc) change the State and note in Changes which rows they touched and what should leave.
// Internal to core/.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/core/changes.h"
#include "coordinator/core/effect.h"
#include "coordinator/core/event.h"
#include "coordinator/core/state.h"

namespace tailor::core {

class Transition {
 public:
  Transition(State& s, Now n, Changes& c) : state(s), now(n), changes(c) {}

  State& state;
  const Now now;
  Changes& changes;
  bool placement_changed = false;  ///< a trial or a slot became available: schedule() has work

  // ---- outward, in order
  void reply(RequestId request, Status status, ReplyBody body = {}) {
    changes.reply(request, std::move(status), std::move(body));
  }
  void send(SessionId session, protocol::CoordinatorMessage message) {
    changes.send(session, std::move(message));
  }
  void close(SessionId session, Status status) { changes.close(session, std::move(status)); }

  // ---- rows; a keyed row is written once, as it is at the end of the transaction
  void touch(const Sweep& sweep) { changes.touch(sweep); }
  void touch(const Trial& trial) { changes.touch(trial); }
  void touch(const Worker& worker) { changes.touch(worker); }
  void touch(const storage::AttemptRow& attempt) { changes.touch(attempt); }
  void touch_counters() { changes.touch_counters(); }
  void add(storage::CandidateRow candidate) { changes.add(std::move(candidate)); }
  /// Points, checkpoints, profiles, logs.
  void append(storage::Mutation row) { changes.append(std::move(row)); }
  void event(std::string_view kind, const About& about, std::string message) {
    changes.event(now.wall_ms, kind, about, std::move(message));
  }

  // ---- shorthands; the id is known to exist
  Sweep& sweep_of(const Trial& trial) { return state.sweeps.at(trial.row.sweep); }
  Worker& worker_of(const LiveAttempt& live) { return state.workers.at(live.row.worker); }
};

/// Applies one event; what it changed and says is added to `changes`.
void step_into(State& state, const Event& event, Now now, Changes& changes);

// ---- lifecycle.cc: the states of trials, attempts and sweeps

/// Makes a trial wait (again), for `delay_ms` at least.
void queue_trial(Transition& t, Trial& trial, std::int64_t delay_ms);
/// Makes a trial final; tells the search and completes the sweep when it was the last.
void finish_trial(Transition& t, Trial& trial, storage::TrialState final_state,
                  std::string_view end_class, std::string message);
/// Gives `trial` a new attempt on `worker` and sends it. REQUIRES: queued, slots free.
void assign(Transition& t, Trial& trial, Worker& worker, const std::vector<std::uint32_t>& slots);
/// The message that starts the live attempt of `trial`.
protocol::Assign make_assign(const State& state, const Trial& trial);
/// Ends the live attempt of `trial` and decides what becomes of the trial. `report` is the
/// trainer's own last word, null when the attempt was lost. REQUIRES: trial.live.
void end_attempt(Transition& t, Trial& trial, protocol::EndClass end, std::string message,
                 const protocol::EndReport* report);
/// Tells the live attempt to stop, once. `reason`: kPaused or kCancelled.
void ask_to_stop(Transition& t, Trial& trial, protocol::StopReason reason);
/// The live attempt of `trial` was heard of: its lease runs a whole time from now, or longer when
/// it does already.
void renew_lease(Transition& t, const Trial& trial);
/// Completes the sweep when nothing is left to do.
void complete_if_done(Transition& t, Sweep& sweep);
/// Takes a queued trial out of the indexes of queued trials.
void unindex_queued(State& state, Sweep& sweep, Trial& trial);
/// Moves a trial to `next`, keeping the counts.
void set_trial_state(Transition& t, Trial& trial, storage::TrialState next);

// ---- submit.cc
void on_submit(Transition& t, const SubmitSweep& event);
/// Adds a candidate with its trials, unless an equal one is there; false in that case.
bool add_candidate(Transition& t, Sweep& sweep, sweep::Candidate candidate);
/// True while the search of the sweep has to draw: it is not done and too few trials are queued.
bool wants_draws(const State& state, const Sweep& sweep);
/// Draws candidates until enough trials are queued. When the transaction may draw no more, the rest
/// is a deadline (kDraws): other events get their turn first.
void refill(Transition& t, Sweep& sweep);
/// SweepRow.search_state: "told 0-4,6[ done]\n" and the algorithm's own text.
std::string encode_search(const Sweep& sweep);
/// Reads it back into `told`, `search_done` and the algorithm. Errors: kDataLoss.
Status decode_search(Sweep& sweep);

// ---- control.cc
void on_control_sweep(Transition& t, const ControlSweep& event);
void on_control_trials(Transition& t, const ControlTrials& event);
void on_drain_worker(Transition& t, const DrainWorker& event);
void on_artifacts(Transition& t, const ArtifactsChanged& event);

// ---- session.cc
void on_session_opened(Transition& t, const SessionOpened& event);
void on_session_closed(Transition& t, const SessionClosed& event);
void on_heartbeat(Transition& t, Worker& worker, const protocol::Heartbeat& message);
void on_draining(Transition& t, Worker& worker, const protocol::Draining& message);
void on_session_message(Transition& t, const SessionMessage& event);
/// The trial whose live attempt `ref` names on `worker`; null when the token is stale.
Trial* live_trial(State& state, const Worker& worker, const protocol::AttemptRef& ref);

// ---- reports.cc
void on_reports(Transition& t, Worker& worker, const protocol::Reports& message);
void on_log_chunk(Transition& t, Worker& worker, const protocol::LogChunk& message);

// ---- timers.cc
void on_tick(Transition& t);
void on_stalled(Transition& t, const Stalled& event);

// ---- schedule.cc
/// Draws candidates, places what fits. Last act of every step.
void schedule(Transition& t);

}  // namespace tailor::core
