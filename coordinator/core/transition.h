// Transition: one step under way. The handlers (submit.cc, control.cc, session.cc, reports.cc,
// timers.cc) change the State and note here which rows they touched and what should leave; `finish`
// turns that into Effects. Internal to core/.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/core/effect.h"
#include "coordinator/core/event.h"
#include "coordinator/core/state.h"

namespace tailor::core {

/// What an event row is about; fields left out stay 0.
struct About {
  SweepId sweep;
  TrialId trial;
  std::uint32_t attempt = 0;
  WorkerId worker;
};

class Transition {
 public:
  Transition(State& s, Now n) : state(s), now(n), draws_left(s.options.draws_per_step) {}

  State& state;
  const Now now;
  bool placement_changed = false;  ///< a trial or a slot became available: schedule() has work
  std::uint32_t draws_left;        ///< points that this step may still resolve
  bool more_draws = false;         ///< the search wants to go on in a next step, at once

  // ---- outward, in order
  void reply(RequestId request, Status status, ReplyBody body = {});
  void send(SessionId session, protocol::CoordinatorMessage message);
  void close(SessionId session, Status status);

  // ---- rows; a keyed row is written once, as it is at the end of the step
  void touch(const Sweep& sweep) { sweeps_.insert(sweep.row.id); }
  void touch(const Trial& trial) { trials_.insert(trial.row.id); }
  void touch(const Worker& worker) { workers_.insert(worker.row.id); }
  void touch(const storage::AttemptRow& attempt) { attempts_[attempt.id] = attempt; }
  void touch_counters() { counters_ = true; }
  void add(storage::CandidateRow candidate) { candidates_.push_back(std::move(candidate)); }
  /// Points, checkpoints, profiles, logs.
  void append(storage::Mutation row) { appended_.push_back(std::move(row)); }
  void event(std::string_view kind, const About& about, std::string message);

  // ---- shorthands; the id is known to exist
  Sweep& sweep_of(const Trial& trial) { return state.sweeps.at(trial.row.sweep); }
  Worker& worker_of(const LiveAttempt& live) { return state.workers.at(live.row.worker); }

  /// The effects, rows in an order that satisfies references. Called once, last.
  Effects finish();

 private:
  std::set<SweepId> sweeps_;
  std::set<TrialId> trials_;
  std::set<WorkerId> workers_;
  std::map<AttemptId, storage::AttemptRow> attempts_;
  std::vector<storage::CandidateRow> candidates_;
  std::vector<storage::Mutation> appended_;
  std::vector<Outward> outward_;
  bool counters_ = false;
};

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
/// Moves the lease of the live attempt.
void renew_lease(Transition& t, Trial& trial, MonotonicMs deadline_ms);
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
/// Draws candidates until enough trials are queued, or until `draws_left` is used up.
void refill(Transition& t, Sweep& sweep);
/// SweepRow.search_state: "told 0-4,6[ done]\n" and the algorithm's own text.
std::string encode_search(const Sweep& sweep);
/// Reads it back into `told`, `search_done` and the algorithm. Errors: kDataLoss.
Status decode_search(Sweep& sweep);

// ---- control.cc
void on_control_sweep(Transition& t, const ControlSweep& event);
void on_control_trials(Transition& t, const ControlTrials& event);
void on_drain_worker(Transition& t, const DrainWorker& event);

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
/// Ends back-offs that are over, draws candidates, places what fits. Last act of every step.
void schedule(Transition& t);

}  // namespace tailor::core
