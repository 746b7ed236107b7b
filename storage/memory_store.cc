// MemoryStore.
#include "storage/memory_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace tailor::storage {
namespace {

// Numbers first, then NaN, then missing; whatever the direction.
int objective_rank(const TrialRow& row) {
  if (!row.objective) return 2;
  return std::isnan(*row.objective) ? 1 : 0;
}

// Strict order of two trials by one key, ties left to the caller. -1, 0, 1.
template <typename T>
int compare(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

int compare_by(std::string_view order, bool descending, const TrialRow& a, const TrialRow& b) {
  int result = 0;
  if (order == "objective") {
    const int rank = compare(objective_rank(a), objective_rank(b));
    if (rank != 0 || objective_rank(a) != 0) return rank;
    result = compare(*a.objective, *b.objective);
  } else if (order == "state") {
    result = compare(a.state, b.state);
  } else if (order == "candidate") {
    result =
        compare(std::tie(a.sweep, a.candidate, a.seed), std::tie(b.sweep, b.candidate, b.seed));
  } else {
    result = compare(a.id, b.id);
  }
  return descending ? -result : result;
}

}  // namespace

// What a batch would leave behind, asked before anything is changed.
struct MemoryStore::BatchChecker {
  const MemoryStore& store;
  std::map<std::string, SweepId, std::less<>> sweep_names{};
  std::map<std::string, WorkerId, std::less<>> worker_names{};
  std::map<SeedKey, TrialId> seeds{};
  std::set<SweepId> sweeps{};
  std::set<CandidateKey> candidates{};
  std::set<TrialId> trials{};
  std::set<AttemptId> attempts{};
  std::set<WorkerId> workers{};
  Status status{};

  void fail(Code code, std::string message) {
    if (status.is_ok()) status = Status(code, std::move(message));
  }

  // First pass: what the batch brings.
  void gather(const Mutation& mutation) {
    if (const auto* sweep = std::get_if<SweepRow>(&mutation)) {
      sweeps.insert(sweep->id);
      claim(store.sweep_names_, sweep_names, sweep->name, sweep->id, "sweep name");
    } else if (const auto* candidate = std::get_if<CandidateRow>(&mutation)) {
      candidates.insert({candidate->sweep, candidate->index});
    } else if (const auto* trial = std::get_if<TrialRow>(&mutation)) {
      trials.insert(trial->id);
      claim(store.trial_seeds_, seeds, SeedKey{trial->sweep, trial->candidate, trial->seed},
            trial->id, "candidate and seed of trial");
    } else if (const auto* attempt = std::get_if<AttemptRow>(&mutation)) {
      attempts.insert(attempt->id);
    } else if (const auto* worker = std::get_if<WorkerRow>(&mutation)) {
      workers.insert(worker->id);
      claim(store.worker_names_, worker_names, worker->name, worker->id, "worker name");
    }
  }

  template <typename Known, typename Key, typename Owner>
  void claim(const Known& known, Known& mine, const Key& key, Owner owner, std::string_view what) {
    const auto old = known.find(key);
    const auto [fresh, inserted] = mine.try_emplace(key, owner);
    if ((old != known.end() && old->second != owner) || (!inserted && fresh->second != owner)) {
      fail(Code::kAlreadyExists, fmt::format("{} of {} is taken", what, owner.to_string()));
    }
  }

  // Second pass: what the batch needs.
  void need(const Mutation& mutation) {
    if (const auto* candidate = std::get_if<CandidateRow>(&mutation)) {
      need_in(store.sweeps_, sweeps, candidate->sweep, candidate->sweep.to_string());
    } else if (const auto* trial = std::get_if<TrialRow>(&mutation)) {
      need_in(store.candidates_, candidates, CandidateKey{trial->sweep, trial->candidate},
              fmt::format("candidate {} of {}", trial->candidate, trial->sweep.to_string()));
    } else if (const auto* attempt = std::get_if<AttemptRow>(&mutation)) {
      need_in(store.trials_, trials, attempt->id.trial, attempt->id.trial.to_string());
      need_in(store.workers_, workers, attempt->worker, attempt->worker.to_string());
    } else if (const auto* point = std::get_if<MetricPoint>(&mutation)) {
      need_attempt({point->trial, point->attempt});
    } else if (const auto* checkpoint = std::get_if<CheckpointRow>(&mutation)) {
      need_attempt(checkpoint->attempt);
    } else if (const auto* profile = std::get_if<ProfileRow>(&mutation)) {
      need_attempt(profile->attempt);
    } else if (const auto* measurement = std::get_if<MeasurementRow>(&mutation)) {
      need_attempt(measurement->attempt);
    } else if (const auto* schedule = std::get_if<ScheduleRow>(&mutation)) {
      need_in(store.candidates_, candidates, CandidateKey{schedule->sweep, schedule->candidate},
              fmt::format("candidate {} of {}", schedule->candidate, schedule->sweep.to_string()));
    } else if (const auto* log = std::get_if<LogRow>(&mutation)) {
      need_attempt(log->attempt);
    } else if (const auto* trim = std::get_if<LogTrim>(&mutation)) {
      need_attempt(trim->attempt);
    }
  }

  void need_attempt(AttemptId id) { need_in(store.attempts_, attempts, id, id.to_string()); }

  template <typename Known, typename Mine, typename Key>
  void need_in(const Known& known, const Mine& mine, const Key& key, const std::string& what) {
    if (known.count(key) == 0 && mine.count(key) == 0) {
      fail(Code::kFailedPrecondition, fmt::format("{} is needed by a row and is not stored", what));
    }
  }
};

void MemoryStore::fail_next_commits(Status status, std::uint64_t count) {
  TAILOR_CHECK(!status.is_ok());
  const std::lock_guard lock(mutex_);
  fault_ = std::move(status);
  faults_left_ = count;
}

void MemoryStore::set_fault(Status status) {
  const std::lock_guard lock(mutex_);
  faults_left_ = status.is_ok() ? 0 : std::numeric_limits<std::uint64_t>::max();
  fault_ = std::move(status);
}

std::uint64_t MemoryStore::commits() const {
  const std::lock_guard lock(mutex_);
  return commits_;
}

std::vector<CheckpointRow> MemoryStore::newest_checkpoints() const {
  std::map<TrialId, CheckpointRow> newest;
  for (const auto& [key, row] : checkpoints_) {
    if (is_final(trials_.at(row.attempt.trial).state)) continue;
    newest.insert_or_assign(row.attempt.trial, row);  // by attempt and step, ascending
  }
  std::vector<CheckpointRow> rows;
  for (const auto& [trial, row] : newest) rows.push_back(row);
  return rows;
}

Result<Snapshot> MemoryStore::load() {
  const std::lock_guard lock(mutex_);
  Snapshot snapshot;
  snapshot.counters = counters_;
  for (const auto& [id, row] : sweeps_) snapshot.sweeps.push_back(row);
  for (const auto& [key, row] : candidates_) snapshot.candidates.push_back(row);
  for (const auto& [key, row] : schedules_) snapshot.schedules.push_back(row);
  for (const auto& [id, row] : trials_) snapshot.trials.push_back(row);
  for (const auto& [id, row] : attempts_) {
    if (row.state != AttemptState::kEnded || !is_final(trials_.at(id.trial).state)) {
      snapshot.attempts.push_back(row);
    }
  }
  snapshot.checkpoints = newest_checkpoints();
  for (const auto& [id, row] : workers_) snapshot.workers.push_back(row);
  return snapshot;
}

Result<Snapshot> MemoryStore::load_open() {
  const std::lock_guard lock(mutex_);
  Snapshot snapshot;
  snapshot.counters = counters_;
  std::set<SweepId> open;
  for (const auto& [id, row] : sweeps_) {
    if (is_open(row.state)) open.insert(id);
  }
  for (const auto& [id, row] : trials_) {
    if (!is_final(row.state)) open.insert(row.sweep);
  }
  for (const SweepId id : open) snapshot.sweeps.push_back(sweeps_.at(id));
  for (const auto& [id, row] : sweeps_) {
    if (!open.contains(id)) ++snapshot.other_sweeps[row.state];
  }
  for (const auto& [id, row] : trials_) {
    if (!open.contains(row.sweep)) ++snapshot.other_trials[row.state];
  }
  for (const auto& [key, row] : candidates_) {
    if (open.contains(key.first)) snapshot.candidates.push_back(row);
  }
  for (const auto& [key, row] : schedules_) {
    if (open.contains(key.first)) snapshot.schedules.push_back(row);
  }
  for (const auto& [id, row] : trials_) {
    if (open.contains(row.sweep)) snapshot.trials.push_back(row);
  }
  for (const auto& [id, row] : attempts_) {
    if (!is_final(trials_.at(id.trial).state)) snapshot.attempts.push_back(row);
  }
  snapshot.checkpoints = newest_checkpoints();
  for (const auto& [id, row] : workers_) snapshot.workers.push_back(row);
  return snapshot;
}

Status MemoryStore::commit(std::span<const Mutation> batch) {
  const std::lock_guard lock(mutex_);
  TAILOR_RETURN_IF_ERROR(lost());
  if (faults_left_ > 0) {
    if (faults_left_ != std::numeric_limits<std::uint64_t>::max()) --faults_left_;
    return fault_;
  }
  TAILOR_RETURN_IF_ERROR(check_batch(batch));
  for (const Mutation& mutation : batch) apply(mutation);
  ++commits_;
  return {};
}

Status MemoryStore::check_batch(std::span<const Mutation> batch) const {
  BatchChecker checker{*this};
  for (const Mutation& mutation : batch) {
    TAILOR_RETURN_IF_ERROR(check_row(mutation));
    checker.gather(mutation);
  }
  for (const Mutation& mutation : batch) checker.need(mutation);
  return checker.status;
}

void MemoryStore::apply(const Mutation& mutation) {
  if (const auto* sweep = std::get_if<SweepRow>(&mutation)) {
    if (const auto old = sweeps_.find(sweep->id); old != sweeps_.end())
      sweep_names_.erase(old->second.name);
    sweep_names_[sweep->name] = sweep->id;
    sweeps_[sweep->id] = *sweep;
  } else if (const auto* candidate = std::get_if<CandidateRow>(&mutation)) {
    candidates_[{candidate->sweep, candidate->index}] = *candidate;
  } else if (const auto* trial = std::get_if<TrialRow>(&mutation)) {
    if (const auto old = trials_.find(trial->id); old != trials_.end()) {
      trial_seeds_.erase({old->second.sweep, old->second.candidate, old->second.seed});
    }
    trial_seeds_[{trial->sweep, trial->candidate, trial->seed}] = trial->id;
    trials_[trial->id] = *trial;
  } else if (const auto* attempt = std::get_if<AttemptRow>(&mutation)) {
    attempts_[attempt->id] = *attempt;
  } else if (const auto* worker = std::get_if<WorkerRow>(&mutation)) {
    if (const auto old = workers_.find(worker->id); old != workers_.end())
      worker_names_.erase(old->second.name);
    worker_names_[worker->name] = worker->id;
    workers_[worker->id] = *worker;
  } else if (const auto* point = std::get_if<MetricPoint>(&mutation)) {
    points_[point->trial][point->name][point->attempt].push_back(
        {point->step, point->tokens, point->wall_ms, point->value});
  } else if (const auto* checkpoint = std::get_if<CheckpointRow>(&mutation)) {
    checkpoints_[{checkpoint->attempt, checkpoint->step}] = *checkpoint;
  } else if (const auto* profile = std::get_if<ProfileRow>(&mutation)) {
    profiles_[{profile->attempt, profile->step, profile->layer, profile->sub_block,
               profile->geometry, profile->statistic}] = *profile;
  } else if (const auto* measurement = std::get_if<MeasurementRow>(&mutation)) {
    measurements_[{measurement->attempt, measurement->step}] = *measurement;
  } else if (const auto* schedule = std::get_if<ScheduleRow>(&mutation)) {
    schedules_[{schedule->sweep, schedule->candidate}] = *schedule;
  } else if (const auto* event = std::get_if<EventRow>(&mutation)) {
    events_.push_back(*event);
    events_.back().id = next_event_++;
  } else if (const auto* log = std::get_if<LogRow>(&mutation)) {
    logs_[log->attempt].try_emplace(log->offset, log->bytes);
  } else if (const auto* trim = std::get_if<LogTrim>(&mutation)) {
    std::erase_if(logs_[trim->attempt], [&](const auto& piece) {
      return piece.first >= trim->from && piece.first + piece.second.size() <= trim->to;
    });
  } else if (const auto* counters = std::get_if<CountersRow>(&mutation)) {
    counters_ = *counters;
  }
}

Result<std::vector<SweepRow>> MemoryStore::sweeps() const {
  const std::lock_guard lock(mutex_);
  std::vector<SweepRow> rows;
  for (const auto& [id, row] : sweeps_) rows.push_back(row);
  return rows;
}

Result<SweepRow> MemoryStore::sweep(SweepId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = sweeps_.find(id);
  if (found == sweeps_.end())
    return error(Code::kNotFound, fmt::format("no sweep {}", id.to_string()));
  return found->second;
}

Result<SweepRow> MemoryStore::sweep_by_name(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = sweep_names_.find(name);
  if (found == sweep_names_.end())
    return error(Code::kNotFound, fmt::format("no sweep `{}`", name));
  return sweeps_.at(found->second);
}

Result<std::vector<CandidateRow>> MemoryStore::candidates(SweepId sweep) const {
  const std::lock_guard lock(mutex_);
  std::vector<CandidateRow> rows;
  for (auto it = candidates_.lower_bound({sweep, 0});
       it != candidates_.end() && it->first.first == sweep; ++it) {
    rows.push_back(it->second);
  }
  return rows;
}

Result<SweepPage> MemoryStore::sweep_page(std::uint64_t offset, std::uint64_t limit) const {
  const std::lock_guard lock(mutex_);
  SweepPage page;
  page.total = sweeps_.size();
  std::uint64_t place = 0;
  for (auto it = sweeps_.rbegin(); it != sweeps_.rend() && page.sweeps.size() < limit; ++it) {
    if (place++ < offset) continue;
    page.sweeps.push_back(it->second);
    page.sweeps.back().toml.clear();
  }
  return page;
}

Result<CandidatePage> MemoryStore::candidate_page(SweepId sweep, std::uint64_t offset,
                                                  std::uint64_t limit) const {
  const std::lock_guard lock(mutex_);
  CandidatePage page;
  for (auto it = candidates_.lower_bound({sweep, 0});
       it != candidates_.end() && it->first.first == sweep; ++it, ++page.total) {
    if (it->first.second >= offset && page.candidates.size() < limit) {
      page.candidates.push_back(it->second);
    }
  }
  return page;
}

Result<CandidateRow> MemoryStore::candidate(SweepId sweep, std::uint32_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = candidates_.find({sweep, number});
  if (found == candidates_.end()) return error(no_candidate(sweep, number));
  return found->second;
}

Result<TrialCounts> MemoryStore::trial_counts(SweepId sweep) const {
  const std::lock_guard lock(mutex_);
  TrialCounts counts;
  for (const auto& [id, row] : trials_) {
    if (row.sweep == sweep) ++counts.by_state[static_cast<std::size_t>(row.state)];
  }
  return counts;
}

Result<TrialPage> MemoryStore::trials(const TrialQuery& query) const {
  TAILOR_RETURN_IF_ERROR(check_trial_query(query));
  const std::string& order = query.order;
  const std::lock_guard lock(mutex_);
  const auto matches = [&](const TrialRow& row) {
    return (!query.sweep || row.sweep == *query.sweep) &&
           (!query.state || row.state == *query.state);
  };
  if (query.after && !query.descending && !query.count) {  // straight from the place on
    TrialPage page;
    for (auto it = trials_.upper_bound(*query.after);
         it != trials_.end() && page.trials.size() < query.limit; ++it) {
      if (matches(it->second)) page.trials.push_back(it->second);
    }
    return page;
  }
  std::vector<const TrialRow*> matching;
  for (const auto& [id, row] : trials_) {
    if (matches(row)) matching.push_back(&row);
  }
  if (order != "id") {
    std::stable_sort(matching.begin(), matching.end(), [&](const TrialRow* a, const TrialRow* b) {
      return compare_by(order, query.descending, *a, *b) < 0;
    });
  } else if (query.descending) {
    std::reverse(matching.begin(), matching.end());
  }
  TrialPage page;
  page.total = query.count ? matching.size() : 0;
  if (query.after) {
    std::erase_if(matching, [&](const TrialRow* row) {
      return query.descending ? row->id >= *query.after : row->id <= *query.after;
    });
  }
  for (std::uint64_t i = query.offset; i < matching.size() && page.trials.size() < query.limit;
       ++i) {
    page.trials.push_back(*matching[i]);
  }
  return page;
}

Result<TrialRow> MemoryStore::trial(TrialId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = trials_.find(id);
  if (found == trials_.end())
    return error(Code::kNotFound, fmt::format("no trial {}", id.to_string()));
  return found->second;
}

Result<std::vector<AttemptRow>> MemoryStore::attempts(TrialId trial) const {
  const std::lock_guard lock(mutex_);
  std::vector<AttemptRow> rows;
  for (auto it = attempts_.lower_bound({trial, 0});
       it != attempts_.end() && it->first.trial == trial; ++it) {
    rows.push_back(it->second);
  }
  return rows;
}

Result<std::vector<StartRow>> MemoryStore::starts(SweepId sweep) const {
  const std::lock_guard lock(mutex_);
  std::vector<StartRow> rows;
  for (const auto& [id, trial] : trials_) {
    if (trial.sweep != sweep || trial.state != TrialState::kCompleted) continue;
    const auto last = attempts_.find({id, trial.attempts});
    if (last != attempts_.end()) rows.push_back({id, last->second.started_json});
  }
  return rows;
}

Result<std::vector<WorkerRow>> MemoryStore::workers() const {
  const std::lock_guard lock(mutex_);
  std::vector<WorkerRow> rows;
  for (const auto& [id, row] : workers_) rows.push_back(row);
  return rows;
}

Result<std::vector<std::string>> MemoryStore::metric_names(TrialId trial) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  if (const auto found = points_.find(trial); found != points_.end()) {
    for (const auto& [name, attempts] : found->second) names.push_back(name);
  }
  return names;
}

Series MemoryStore::joined(TrialId trial, std::string_view metric) const {
  std::vector<AttemptPoints> attempts;
  if (const auto found = points_.find(trial); found != points_.end()) {
    if (const auto named = found->second.find(metric); named != found->second.end()) {
      for (const auto& [attempt, points] : named->second) attempts.push_back({attempt, points});
    }
  }
  return join_attempts(std::string(metric), std::move(attempts));
}

Result<Series> MemoryStore::series(TrialId trial, std::string_view metric,
                                   std::size_t points_max) const {
  const std::lock_guard lock(mutex_);
  return thin(joined(trial, metric), points_max);
}

Result<CurvePage> MemoryStore::curves(const CurveQuery& query) const {
  const std::lock_guard lock(mutex_);
  CurvePage page;
  std::size_t points = 0;
  std::size_t seen = 0;
  for (auto it = trials_.upper_bound(query.after); it != trials_.end(); ++it) {
    if (it->second.sweep != query.sweep) continue;
    if (seen >= std::max<std::size_t>(query.trials_max, 1) || points >= query.points_max) {
      return page;
    }
    ++seen;
    page.next = it->first;
    TrialCurves curves{it->first, {}};
    if (const auto found = points_.find(it->first); found != points_.end()) {
      for (const auto& [name, attempts] : found->second) {
        if (!query.metric.empty() && name != query.metric) continue;
        curves.series.push_back(joined(it->first, name));
        points += curves.series.back().steps.size();
      }
    }
    if (!curves.series.empty()) page.trials.push_back(std::move(curves));
  }
  page.next.reset();
  return page;
}

bool MemoryStore::ended_before(TrialId trial, WallMs wall_ms) const {
  const auto found = trials_.find(trial);
  return found != trials_.end() && is_final(found->second.state) &&
         found->second.ended_ms <= wall_ms;
}

Result<Pruned> MemoryStore::prune(const PruneRules& rules, WallMs now_ms) {
  const std::lock_guard lock(mutex_);
  TAILOR_RETURN_IF_ERROR(lost());
  Pruned pruned;
  std::uint64_t log_bytes = 0;
  for (const auto& [attempt, pieces] : logs_) {
    for (const auto& [offset, bytes] : pieces) log_bytes += bytes.size();
  }
  for (auto& [attempt, pieces] : logs_) {
    const bool over = rules.logs_bytes_max > 0 && log_bytes > rules.logs_bytes_max &&
                      is_final(trials_.at(attempt.trial).state);
    const bool old = rules.logs_ms > 0 && ended_before(attempt.trial, now_ms - rules.logs_ms);
    if (pieces.empty() || (!over && !old)) continue;
    for (const auto& [offset, bytes] : pieces) {
      pruned.log_bytes += bytes.size();
      log_bytes -= bytes.size();
    }
    pieces.clear();
    pruned_[attempt.trial].logs_ms = now_ms;
  }
  for (auto it = points_.begin(); it != points_.end();) {
    if (rules.points_ms <= 0 || !ended_before(it->first, now_ms - rules.points_ms)) {
      ++it;
      continue;
    }
    for (const auto& [name, attempts] : it->second) {
      for (const auto& [attempt, points] : attempts) pruned.points += points.size();
    }
    pruned_[it->first].points_ms = now_ms;
    it = points_.erase(it);
  }
  if (rules.events_ms > 0 && !events_.empty()) {
    const std::uint64_t newest = events_.back().id;
    pruned.events = std::erase_if(events_, [&](const EventRow& row) {
      if (row.id == newest || row.wall_ms > now_ms - rules.events_ms) return false;
      const auto trial = trials_.find(row.trial);
      if (trial != trials_.end()) return is_final(trial->second.state);
      const auto sweep = sweeps_.find(row.sweep);
      return sweep == sweeps_.end() || !is_open(sweep->second.state);
    });
  }
  return pruned;
}

Result<std::optional<PrunedTrial>> MemoryStore::pruned(TrialId trial) const {
  const std::lock_guard lock(mutex_);
  const auto found = pruned_.find(trial);
  if (found == pruned_.end()) return std::nullopt;
  return found->second;
}

Result<std::uint64_t> MemoryStore::trials_without_points(SweepId sweep, TrialId after) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint64_t>(
      std::count_if(pruned_.upper_bound(after), pruned_.end(), [&](const auto& entry) {
        return entry.second.points_ms > 0 && trials_.at(entry.first).sweep == sweep;
      }));
}

void MemoryStore::lose_file() {
  const std::lock_guard lock(mutex_);
  file_lost_ = true;
}

Status MemoryStore::lost() const {
  return file_lost_ ? Status(Code::kDataLoss, "the database was removed while it was in use")
                    : Status();
}

Status MemoryStore::still_there() const {
  const std::lock_guard lock(mutex_);
  return lost();
}

Result<std::vector<CheckpointRow>> MemoryStore::checkpoints(TrialId trial) const {
  const std::lock_guard lock(mutex_);
  std::vector<CheckpointRow> rows;
  for (const auto& [key, row] : checkpoints_) {
    if (key.first.trial == trial) rows.push_back(row);
  }
  return rows;
}

Result<std::optional<MeasurementRow>> MemoryStore::measurement(TrialId trial) const {
  const std::lock_guard lock(mutex_);
  std::optional<MeasurementRow> newest;
  for (const auto& [key, row] : measurements_) {
    if (row.attempt.trial == trial) newest = row;  // ascending by attempt, then step
  }
  return newest;
}

Result<std::optional<Measured>> MemoryStore::measured(std::string_view key) const {
  std::optional<Measured> newest;
  const std::lock_guard lock(mutex_);
  for (const auto& [place, row] : measurements_) {
    if (row.key == key && row.failure.empty()) newest = Measured{row, {}};
  }
  if (!newest) return newest;
  for (const auto& [place, row] : profiles_) {
    if (row.attempt == newest->row.attempt && row.step == newest->row.step) {
      newest->profile.push_back(row);
    }
  }
  return newest;
}

Result<std::vector<ScheduleRow>> MemoryStore::schedules(SweepId sweep) const {
  const std::lock_guard lock(mutex_);
  std::vector<ScheduleRow> rows;
  for (auto it = schedules_.lower_bound({sweep, 0});
       it != schedules_.end() && it->first.first == sweep; ++it) {
    rows.push_back(it->second);
  }
  return rows;
}

Result<std::vector<ProfileRow>> MemoryStore::profile(TrialId trial) const {
  const std::lock_guard lock(mutex_);
  std::vector<ProfileRow> rows;
  for (const auto& [key, row] : profiles_) {
    if (row.attempt.trial != trial) continue;
    // Keys ascend by attempt and step: a later one starts the list anew.
    if (!rows.empty() && (rows.back().attempt != row.attempt || rows.back().step != row.step))
      rows.clear();
    rows.push_back(row);
  }
  return rows;
}

Result<std::vector<EventRow>> MemoryStore::events(std::uint64_t after, std::size_t limit,
                                                  std::optional<SweepId> sweep,
                                                  std::optional<TrialId> trial) const {
  const std::lock_guard lock(mutex_);
  std::vector<EventRow> rows;
  const auto first =
      std::upper_bound(events_.begin(), events_.end(), after,
                       [](std::uint64_t id, const EventRow& row) { return id < row.id; });
  for (auto it = first; it != events_.end() && rows.size() < limit; ++it) {
    const EventRow& row = *it;
    if ((sweep && row.sweep != *sweep) || (trial && row.trial != *trial)) continue;
    rows.push_back(row);
  }
  return rows;
}

Result<std::string> MemoryStore::log(AttemptId attempt, std::uint64_t offset,
                                     std::size_t bytes_max) const {
  const std::lock_guard lock(mutex_);
  std::string bytes;
  const auto found = logs_.find(attempt);
  if (found == logs_.end()) return bytes;
  auto it = found->second.upper_bound(offset);
  if (it != found->second.begin()) --it;
  for (; it != found->second.end() && bytes.size() < bytes_max; ++it) {
    const std::uint64_t next = offset + bytes.size();
    if (it->first > next) break;
    const std::uint64_t skip = next - it->first;
    if (skip >= it->second.size()) continue;
    bytes.append(it->second, skip, bytes_max - bytes.size());
  }
  return bytes;
}

Result<std::optional<std::uint64_t>> MemoryStore::log_from(AttemptId attempt,
                                                           std::uint64_t offset) const {
  const std::lock_guard lock(mutex_);
  const auto found = logs_.find(attempt);
  if (found == logs_.end()) return std::nullopt;
  for (const auto& [begin, bytes] : found->second) {
    if (begin + bytes.size() > offset) return std::max(begin, offset);
  }
  return std::nullopt;
}

Result<Table> MemoryStore::query(std::string_view, const QueryLimits&) const {
  return error(Code::kUnimplemented, "a memory store answers no SQL");
}

Status MemoryStore::backup(const std::string&) const {
  return Status(Code::kUnimplemented, "a memory store has no file to back up");
}

}  // namespace tailor::storage
