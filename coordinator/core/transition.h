// Transition: one step under way. The handlers (submit.cc, control.cc, session.cc, reports.cc,
// timers.cc) change the State and note in Changes which rows they touched and what should leave.
// Internal to core/.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
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
  /// The row of an attempt is all that a restart knows of how long it ran.
  void touch(LiveAttempt& live) {
    live.row.ran_ms = std::max<std::int64_t>(0, now.mono_ms - live.began_ms);
    changes.touch(live.row);
  }
  void touch_counters() { changes.touch_counters(); }
  void add(storage::CandidateRow candidate) { changes.add(std::move(candidate)); }
  /// Points, checkpoints, profiles, logs.
  void append(storage::Mutation row) { changes.append(std::move(row)); }
  void event(EventKind kind, const About& about, std::string message) {
    changes.event(now.wall_ms, kind, about, std::move(message));
  }

  // ---- shorthands; the id is known to exist
  Sweep& sweep_of(const Trial& trial) { return state.sweeps.at(trial.row.sweep); }
  Worker& worker_of(const Member& member) { return state.workers.at(member.row.worker); }
};

/// Applies one event; what it changed and says is added to `changes`.
void step_into(State& state, const Event& event, Now now, Changes& changes);

// ---- lifecycle.cc: the states of trials, attempts and sweeps

/// Makes a trial wait (again), for `delay_ms` at least.
void queue_trial(Transition& t, Trial& trial, std::int64_t delay_ms);
/// Makes a trial final; tells the search and completes the sweep when it was the last.
void finish_trial(Transition& t, Trial& trial, storage::TrialState final_state,
                  std::optional<protocol::EndClass> end_class, std::string message);
/// Gives `trial` a new attempt on `workers`, its demand on each of them, and sends it: all or
/// nothing. REQUIRES: queued, slots free.
void assign(Transition& t, Trial& trial, const std::vector<WorkerId>& workers);
/// The message that starts `member` of the live attempt of `trial`.
protocol::Assign make_assign(const State& state, const Trial& trial, const Member& member);
/// Ends the live attempt, all of whose members have ended, and decides what becomes of the trial.
void close_attempt(Transition& t, Trial& trial);
/// Sets the moment at which the coordinator itself looks after the limits of the live attempt.
void watch_limits(State& state, const Trial& trial);
/// That moment has come.
void end_by_limit(Transition& t, Trial& trial);
/// Tells the live attempt to stop. A second reason changes what the end will count as, but for a
/// cancelled one.
void ask_to_stop(Transition& t, Trial& trial, protocol::StopReason reason);
/// Completes the sweep when nothing is left to do.
void complete_if_done(Transition& t, Sweep& sweep);
/// The trial may be placed from now on.
void make_ready(Transition& t, Sweep& sweep, Trial& trial);
/// Takes a queued trial out of the indexes of queued trials.
void unindex_queued(State& state, Sweep& sweep, Trial& trial);
TrialNote note_of(const storage::TrialRow& trial);
/// Moves a trial to `next`, keeping the counts.
void set_trial_state(Transition& t, Trial& trial, storage::TrialState next);

// ---- members.cc: the workers of one attempt

/// A live attempt and the member of it that runs on a certain worker; null when there is none.
struct LiveMember {
  Trial* trial = nullptr;
  Member* member = nullptr;
  bool speaks() const { return member != nullptr && member == trial->live->members.data(); }
};
/// What `ref` names on `worker`; nothing when the token is stale, or when that member has ended.
LiveMember live_member(State& state, const Worker& worker, const protocol::AttemptRef& ref);
/// The member was heard of: its lease runs a whole time from now, or longer when it does already.
void renew_lease(Transition& t, Trial& trial, Member& member);
/// Sets the attempt's deadline to the earliest of its members'.
void index_lease(State& state, const Trial& trial);
/// The member's processes have ended (or nobody will hear of them again): its slots are free. The
/// others are told to stop. The last one closes the attempt: `trial.live` is empty afterwards.
void end_member(Transition& t, Trial& trial, WorkerId worker, protocol::EndClass end,
                std::string message);
/// As end_member for all that have not ended.
void end_all_members(Transition& t, Trial& trial, protocol::EndClass end,
                     const std::string& message);
/// How the attempt as a whole ended, by the words of its members.
struct Verdict {
  protocol::EndClass end = protocol::EndClass::kCompleted;
  std::string message;
  WorkerId worker;  ///< where it happened
};
Verdict verdict_of(const LiveAttempt& live);
void on_refused(Transition& t, Worker& worker, const protocol::Refused& message);
void on_member_ended(Transition& t, Worker& worker, const protocol::MemberEnded& message);
void on_rendezvous(Transition& t, Worker& worker, const protocol::Rendezvous& message);

// ---- workers.cc: who may be given work, and the trouble they are in

/// False for workers that are away, silent, draining, unfit, in quarantine or paused.
bool takes_work(const State& state, const Worker& worker);
/// What the worker would offer if nothing ran there.
scheduler::Offer whole_offer(const Worker& worker);
/// What is free there for `trial`: slots that are kept for another are not.
scheduler::Offer offer_of(const State& state, const Worker& worker, TrialId trial);
/// Brings the index of offers up to date; after every change of what the above depend on.
void refresh(State& state, const Worker& worker);
/// A message of the worker's session arrived.
void hear(Transition& t, Worker& worker);
/// It lost a lease: it gets nothing until it was heard of, and then waits.
void lose_lease(Transition& t, Worker& worker);
enum class Trouble { kRefused, kNotStarted, kInfrastructure };
/// Something that is the worker's fault, not the trial's.
void worker_trouble(Transition& t, Worker& worker, const LiveAttempt& ended, Trouble trouble,
                    const std::string& reason);
/// An attempt ended there as attempts should: no trouble any more.
void worker_well(Transition& t, Worker& worker);
/// The trial that tries a quarantined worker came to a step there.
void probe_succeeded(Transition& t, Trial& trial);
/// The attempt that tried quarantined workers has ended: of whom nothing was learned, another one
/// tries.
void probe_ended(Transition& t, const LiveAttempt& ended);
void quarantine(Transition& t, Worker& worker, storage::QuarantineCause cause, std::string reason);
/// Looks for patterns of trouble in what a trainer wrote.
void watch_log(Transition& t, Worker& worker, LiveAttempt& live, std::string_view news);
/// True for a quarantine that one trial tries after a time.
bool is_probed(const Worker& worker);
void on_quarantine_worker(Transition& t, const QuarantineWorker& event);
void on_release_worker(Transition& t, const ReleaseWorker& event);

// ---- priority.cc: room for trials that wait too long or matter more

std::int64_t priority_of(const Sweep& sweep, const Trial& trial);
/// Where a running trial stands among those that may be stopped.
Preemptible preemptible_of(const Sweep& sweep, const Trial& trial);
/// Gives back what is kept for trials that may not start, or where they fit no more; false when
/// there is no such.
bool prune_reservations(Transition& t);
/// Gives back what is kept for trials of lower priority than one that could then be placed whole;
/// false when there is no such.
bool yield_reservations(Transition& t);
/// The trial does not wait any more: what was kept and stopped for it is forgotten.
void forget_room(State& state, Trial& trial);
/// The running trial ends; if it was stopped for another one, that one waits for less.
void room_was_made(State& state, const Trial& trial);
/// Keeps slots for large trials that waited too long, and stops trials of lower priority. True when
/// slots that were kept may be free now: placing goes on.
bool make_room(Transition& t);

// ---- submit.cc
void on_submit(Transition& t, const SubmitSweep& event);
/// kAlreadyExists: the name is that of `row`, which was made from another file.
Status taken(const storage::SweepRow& row);
/// Adds a candidate with its trials, unless an equal one is there; false in that case.
bool add_candidate(Transition& t, Sweep& sweep, sweep::Candidate candidate);
/// True while the search of the sweep has to draw: it is not done and too few trials are queued.
storage::CandidateRow row_of(const Sweep& sweep, std::uint32_t index,
                             const sweep::Candidate& candidate);
/// Notes the seeds of a candidate that is trained with some of the sweep's only.
void note_seeds(Sweep& sweep, std::uint32_t index, const std::string& name);
bool wants_draws(const State& state, const Sweep& sweep);
/// Draws candidates until enough trials are queued. When the transaction may draw no more, the rest
/// is a deadline (kDraws): other events get their turn first.
void refill(Transition& t, Sweep& sweep);
/// SweepRow.search_state: "told 0-4,6[ done]\n" and the algorithm's own text.
std::string encode_search(const Sweep& sweep);
/// Reads it back into `told`, `search_done` and the algorithm, which recalls `candidates` first.
/// Without them (the sweep is only shown) it knows no outcomes. Errors: kDataLoss.
Status decode_search(Sweep& sweep, std::span<const storage::CandidateRow* const> candidates = {});
/// What the search hears of a candidate whose seeds are all final.
std::optional<double> candidate_objective(const Sweep& sweep, std::uint32_t candidate);

// ---- stages.cc: widths that are cut from measurements

/// Keys of the measurements that a sweep's schedules begin with.
std::vector<std::string> measurements_wanted(const sweep::Spec& spec);
/// Makes candidates of `named`, in their order, and their schedules; what is in `recalled` need not
/// be measured again.
void add_named(Transition& t, Sweep& sweep, std::vector<sweep::Candidate> named,
               const Recalled* recalled);
/// The row of a schedule that waits. Whom it is cut from is said by add_named.
void begin_schedule(Transition& t, Sweep& sweep, std::uint32_t index,
                    const sweep::Candidate& candidate);
/// True when the widths of the trial's candidate are not known yet.
bool waits_for_schedule(const Sweep& sweep, const Trial& trial);
/// True when a schedule that is not cut is to be cut from this trial's measurement.
bool is_reference(const Sweep& sweep, TrialId trial);
/// The trial was measured, or could not be: whoever waits for that goes on.
void accept_profile(Transition& t, Trial& trial, const protocol::ProfileReport& profile);
/// The trial has ended: whoever waits for a measurement of it waits in vain.
void after_final(Transition& t, Sweep& sweep, const Trial& trial);
/// Before a trial is queued again: its schedule waits again.
void retry_schedule(Transition& t, Sweep& sweep, std::uint32_t candidate);
/// After retries: fails the schedules whose references will not be measured any more.
void settle_schedules(Transition& t, Sweep& sweep);
/// A trial started on data: those of the measurement that its widths were cut from?
void check_data(Transition& t, const Sweep& sweep, const Trial& trial,
                const std::string& data_hash);

// ---- changes.cc
/// A sweep becomes rows only (`times` 1) or comes back into memory (-1).
void count_others(State& state, storage::SweepState sweep,
                  const std::map<storage::TrialState, std::uint64_t>& trials, int times);

// ---- load.cc
/// The rows of one sweep; trials and attempts ascending.
struct SweepRows {
  const storage::SweepRow* row = nullptr;
  std::vector<const storage::CandidateRow*> candidates;
  std::vector<const storage::TrialRow*> trials;
  std::map<TrialId, std::vector<const storage::AttemptRow*>> attempts;
  std::map<TrialId, const storage::CheckpointRow*> checkpoints;  ///< the newest of each
  std::vector<const storage::ScheduleRow*> schedules;
};
/// Those of `snapshot` that belong to `sweep`. Refers to both.
SweepRows rows_of(const storage::Snapshot& snapshot, const storage::SweepRow& sweep);
/// Brings a sweep back: its trials that are not final, and of those that are, `wanted`. Its
/// candidates' architectures are those of the rows. Errors: why this version cannot read it; then
/// `state` is as it was.
Status install(State& state, const SweepRows& rows, const std::set<TrialId>& wanted, Now now);
/// Brings one final trial of a sweep in memory back. Errors: as above.
Status install(State& state, Sweep& sweep, const storage::TrialRow& row,
               const storage::CandidateRow& candidate,
               const std::vector<const storage::AttemptRow*>& attempts,
               const storage::CheckpointRow* checkpoint);

// ---- invariants.cc
/// What must hold of one sweep in memory. Errors: kInternal.
Status check_sweep(const State& state, const Sweep& sweep);

// ---- recall.cc: requests about what is not in memory
/// True when all that the request is about is in memory now. False: it was answered, with
/// RowsWanted or with what stands in the rows.
bool recall(Transition& t, const SubmitSweep& event);
bool recall(Transition& t, const ControlSweep& event);
bool recall(Transition& t, const ControlTrials& event);
/// Of a trial in memory or of a sweep that is; nullopt for others.
std::optional<storage::TrialState> state_of(const State& state, TrialId trial);

// ---- control.cc
void on_control_sweep(Transition& t, const ControlSweep& event);
void on_control_trials(Transition& t, const ControlTrials& event);
/// Those named, and the failed ones of `failed_of` where that is in memory.
std::set<TrialId> trials_meant(const State& state, const ControlTrials& event);
/// True when the action has something to do for a trial in this state.
bool applies(TrialAction action, storage::TrialState state);
void on_drain_worker(Transition& t, const DrainWorker& event);
void drain_worker(Transition& t, Worker& worker, const std::string& reason);
/// 0: at no time.
void plan_drain(Transition& t, Worker& worker, WallMs at_ms);

// ---- artifacts.cc
/// What the artifact store has of it, newest first; empty = nothing.
const std::vector<protocol::StoredCheckpoint>& stored_of(const State& state, TrialId trial);
void on_artifacts(Transition& t, const ArtifactsChanged& event);

// ---- session.cc
void on_session_opened(Transition& t, const SessionOpened& event);
void on_session_closed(Transition& t, const SessionClosed& event);
void on_heartbeat(Transition& t, Worker& worker, const protocol::Heartbeat& message);
void on_draining(Transition& t, Worker& worker, const protocol::Draining& message);
void on_session_message(Transition& t, const SessionMessage& event);

// ---- reports.cc
void on_reports(Transition& t, Worker& worker, const protocol::Reports& message);
void on_log_chunk(Transition& t, Worker& worker, const protocol::LogChunk& message);

// ---- timers.cc
void on_tick(Transition& t);
void on_stalled(Transition& t, const Stalled& event);

// ---- schedule.cc
/// What a trial of a sweep takes.
scheduler::Demand demand_of(const sweep::ResourceSpec& resources);
/// The demand of the sweep's trials with the number of workers that one would get now: all it asks
/// for, or as many as could take it whatever they run now, `workers_min` at least. Cost: linear in
/// the connected workers where the two differ.
scheduler::Demand demand_now(const State& state, const Sweep& sweep);
/// Slots that `live`, a trial's of `sweep`, does without, having fewer members than the whole
/// demand.
std::uint64_t slots_spared(const Sweep& sweep, const LiveAttempt& live);
/// The workers for `trial` now; empty when there are none.
std::vector<WorkerId> find_workers(const State& state, const Sweep& sweep, const Trial& trial);
/// False while as many of its trials run as `resources.parallel` allows.
bool has_room(const Sweep& sweep);
/// Whether the artifact store has the newest checkpoint of `trial`, or a newer one.
bool can_be_fetched(const State& state, const Trial& trial);
/// The trials folder in which the trial's checkpoint lies; "" = none, or it can be fetched.
std::string checkpoint_folder(const State& state, const Trial& trial);
/// True while the trial should not start anywhere but near its checkpoint: for a time someone may
/// come or become free who can read it.
bool waits_for_holder(const State& state, const Trial& trial);
/// Identity of the worker's trials folder; its own where it does not say.
std::string folder_of(const Worker& worker);
/// Draws candidates, places what fits. Last act of every step.
void schedule(Transition& t);

}  // namespace tailor::core
