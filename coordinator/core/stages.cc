// Stages: reference -> profile -> schedule -> trials (design.md 5).
//
// A candidate whose widths are cut from a measurement is made with the others, with its trials;
// they wait. Its reference is an ordinary trial, which is told to measure. When the profile of that
// trial arrives, the widths are cut here and now, in the step that stores the profile: that is pure
// and takes milliseconds, and so there is no moment at which a measurement is stored and its
// schedules are not. A crash before the commit loses neither: the report is sent again.
//
// A measurement is known by its key whatever the sweep (sweep::measurement_key). One that is stored
// is used at once (submission reads it through RowsWanted); one that arrives serves every sweep.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/core/json.h"
#include "coordinator/core/transition.h"
#include "sweep/cut.h"
#include "sweep/references.h"

namespace tailor::core {

using protocol::EndClass;
using storage::ScheduleRow;
using storage::ScheduleState;
using storage::SweepState;
using storage::TrialState;

namespace {

std::string key_of(const Sweep& sweep, const std::string& candidate_hash, std::uint64_t seed) {
  return sweep::measurement_key(candidate_hash, sweep.spec->data, seed,
                                sweep::reference_geometry(*sweep.spec));
}

void store_row(Transition& t, ScheduleRow& row) {
  row.wall_ms = t.now.wall_ms;
  t.append(row);
}

About about_sweep(const Sweep& sweep, TrialId trial = {}) { return {sweep.row.id, trial, 0, {}}; }

std::vector<TrialId> queued_of(const Sweep& sweep, std::uint32_t candidate) {
  std::vector<TrialId> found;
  for (std::size_t i = 0; i < sweep.seeds_of(candidate).size(); ++i) {
    if (sweep.notes[sweep.first_note[candidate] + i].state != TrialState::kQueued) continue;
    found.push_back(TrialId{sweep.first_trial[candidate].value + i});
  }
  return found;
}

void fail_schedule(Transition& t, Sweep& sweep, std::uint32_t index, const std::string& reason) {
  ScheduleRow& row = sweep.schedules.at(index);
  row.state = ScheduleState::kFailed;
  row.message = reason;
  store_row(t, row);
  t.event(EventKind::kScheduleFailed, about_sweep(sweep),
          fmt::format("candidate {}: {}", index, reason));
  const bool cancelled = sweep.row.state == SweepState::kCancelled;
  for (const TrialId id : queued_of(sweep, index)) {
    finish_trial(t, t.state.trials.at(id), cancelled ? TrialState::kCancelled : TrialState::kFailed,
                 EndClass::kUser,
                 cancelled ? "cancelled by request" : "its widths could not be cut: " + reason);
  }
}

/// Which trial of `candidate` has the seed.
std::optional<TrialId> trial_with_seed(const Sweep& sweep, std::uint32_t candidate,
                                       std::uint64_t seed) {
  const std::vector<std::uint64_t>& seeds = sweep.seeds_of(candidate);
  const auto found = std::find(seeds.begin(), seeds.end(), seed);
  if (found == seeds.end()) return std::nullopt;
  return TrialId{sweep.first_trial[candidate].value +
                 static_cast<std::uint64_t>(found - seeds.begin())};
}

std::uint64_t seed_at(const Sweep& sweep, std::uint32_t candidate, TrialId trial) {
  return sweep.seeds_of(candidate)[trial.value - sweep.first_trial[candidate].value];
}

std::uint32_t candidate_of(const Sweep& sweep, TrialId trial) {
  const auto after = std::upper_bound(sweep.first_trial.begin(), sweep.first_trial.end(), trial);
  return static_cast<std::uint32_t>(after - sweep.first_trial.begin() - 1);
}

/// Schedules that wait for trials of `candidate`.
std::vector<std::uint32_t> waiting_for(const Sweep& sweep, std::uint32_t candidate) {
  std::vector<std::uint32_t> found;
  for (const auto& [index, row] : sweep.schedules) {
    if (row.state == ScheduleState::kWaiting && row.reference.valid() &&
        candidate_of(sweep, row.reference) == candidate) {
      found.push_back(index);
    }
  }
  return found;
}

/// What an inserted reference was to be measured for has its measurement from elsewhere.
void drop_unneeded(Transition& t, Sweep& sweep, TrialId reference, TrialId measured) {
  if (!reference.valid() || reference == measured || is_reference(sweep, reference)) return;
  const auto found = t.state.trials.find(reference);
  if (found == t.state.trials.end() || found->second.row.state != TrialState::kQueued ||
      !sweep.own_seeds.contains(found->second.row.candidate)) {
    return;
  }
  finish_trial(t, found->second, TrialState::kCancelled, std::nullopt,
               fmt::format("not trained: the measurement of {} is used", measured.to_string()));
}

void cut_schedule(Transition& t, Sweep& sweep, std::uint32_t index,
                  const storage::Measured& measured);

/// The widths came out as those of `known`, which is trained already. What waits for a measurement
/// of the candidate waits for one of `known`.
void make_same(Transition& t, Sweep& sweep, std::uint32_t index, std::uint32_t known,
               const storage::Measured& measured) {
  const std::string name = sweep.candidates[known] != nullptr
                               ? "'" + sweep.candidates[known]->name + "'"
                               : fmt::format("candidate {}", known);
  const std::string message =
      fmt::format("its widths came out as those of {}, which is trained once for both", name);
  ScheduleRow& row = sweep.schedules.at(index);
  row.state = ScheduleState::kSame;
  row.message = message;
  store_row(t, row);
  const std::vector<std::uint32_t> dependents = waiting_for(sweep, index);
  for (const std::uint32_t other : dependents) {
    ScheduleRow& waiting = sweep.schedules.at(other);
    const std::uint64_t seed = seed_at(sweep, index, waiting.reference);
    const auto trial = trial_with_seed(sweep, known, seed);
    waiting.key = key_of(sweep, sweep.candidates[index]->hash, seed);
    if (trial) waiting.reference = *trial;
  }
  t.event(EventKind::kScheduleSame, about_sweep(sweep),
          fmt::format("candidate {}: {}", index, message));
  for (const TrialId id : queued_of(sweep, index)) {
    finish_trial(t, t.state.trials.at(id), TrialState::kCancelled, std::nullopt, message);
  }
  for (const std::uint32_t other : dependents) {
    const auto waiting = sweep.schedules.find(other);
    if (waiting == sweep.schedules.end()) continue;
    if (waiting->second.key == measured.row.key) {
      cut_schedule(t, sweep, other, measured);  // a fixed point
      continue;
    }
    const auto trial = t.state.trials.find(waiting->second.reference);
    const bool will_measure =
        trial != t.state.trials.end() && trial->second.row.candidate == known &&
        (trial->second.row.state == TrialState::kQueued ||
         std::any_of(sweep.schedules.begin(), sweep.schedules.end(), [&](const auto& entry) {
           return entry.first != other && entry.second.reference == trial->first;
         }));
    if (will_measure) {
      store_row(t, waiting->second);
    } else {
      fail_schedule(t, sweep, other,
                    fmt::format("the widths that it was to be measured with came out as those of "
                                "{}, whose trial is not measured any more",
                                name));
    }
  }
}

std::string source_text(const ScheduleRow& row, const storage::Measured& measured) {
  const bool own = row.reference == measured.row.attempt.trial;
  return fmt::format("the measurement of {}{}", measured.row.attempt.to_string(),
                     own ? "" : ", of the same network, seed and data");
}

Result<sweep::Cut> cut_of(const Sweep& sweep, const sweep::Candidate& candidate,
                          const storage::Measured& measured) {
  const auto request = sweep::schedule_of(*sweep.spec, candidate.point);
  if (!request) return error(Code::kInternal, "its request is not in the stored file");
  if (!measured.row.failure.empty()) {
    return error(Code::kFailedPrecondition,
                 fmt::format("{} could not be measured: {}", measured.row.attempt.trial.to_string(),
                             measured.row.failure));
  }
  std::vector<protocol::WorkEntry> entries;
  for (const storage::ProfileRow& row : measured.profile) {
    entries.push_back({row.layer, row.sub_block, row.geometry, row.statistic, row.value,
                       row.standard_error, row.no_error, row.subsample_values, row.energies});
  }
  const std::int32_t multiple = sweep.spec->budget ? sweep.spec->budget->width_multiple : 1;
  auto cut = sweep::cut_widths(*request, entries, candidate.architecture, multiple);
  if (!cut && request->rule != geometry::ExponentRule::kConstant &&
      !measured.row.dimension_failure.empty()) {
    return error(Code::kFailedPrecondition, "the intrinsic dimension could not be measured: " +
                                                measured.row.dimension_failure);
  }
  return cut;
}

/// True when every seed of `index` is one of `known`.
bool has_seeds_of(const Sweep& sweep, std::uint32_t known, std::uint32_t index) {
  const std::vector<std::uint64_t>& wanted = sweep.seeds_of(index);
  return std::all_of(wanted.begin(), wanted.end(), [&](std::uint64_t seed) {
    return trial_with_seed(sweep, known, seed).has_value();
  });
}

/// Cuts the widths of one candidate and lets its trials go on. REQUIRES: it waits.
void cut_schedule(Transition& t, Sweep& sweep, std::uint32_t index,
                  const storage::Measured& measured) {
  ScheduleRow& row = sweep.schedules.at(index);
  const sweep::Candidate& waiting = *sweep.candidates[index];
  row.measured = measured.row.attempt;
  row.data_hash = measured.row.data_hash;
  const auto widths = cut_of(sweep, waiting, measured);
  if (!widths) return fail_schedule(t, sweep, index, widths.error().message());
  auto candidate = sweep::with_widths(waiting, widths->widths);
  if (!candidate) return fail_schedule(t, sweep, index, candidate.error().message());
  row.problem_json = widths->problem_json;
  row.solution_json = widths->solution_json;
  row.raw_widths_json = fmt::format("[{}]", fmt::join(widths->raw_widths, ","));
  row.widths_json = widths_json(widths->widths);
  const TrialId reference = row.reference;
  const std::string identity = candidate->hash;
  auto [known, is_new] = sweep.candidate_by_hash.emplace(candidate->hash, index);
  if (!is_new && !has_seeds_of(sweep, known->second, index)) {
    // That one was inserted to be measured; this one is to be compared, with all its seeds.
    candidate->hash = sweep::again_hash(candidate->name, candidate->architecture, candidate->train);
    is_new = sweep.candidate_by_hash.emplace(candidate->hash, index).second;
  }
  if (!is_new) {
    // Who waits for this one is to know what it would have been.
    const std::uint32_t other = known->second;
    sweep::Candidate same = waiting;
    same.hash = candidate->hash;
    sweep.candidates[index] = std::make_unique<const sweep::Candidate>(std::move(same));
    return make_same(t, sweep, index, other, measured);
  }
  row.state = ScheduleState::kCut;
  row.message = "cut from " + source_text(row, measured);
  store_row(t, row);
  const bool foreign = reference != measured.row.attempt.trial;
  if (foreign) {
    t.event(EventKind::kMeasurementReused, about_sweep(sweep, measured.row.attempt.trial),
            fmt::format("'{}' is {}: nothing is measured again", waiting.name, row.message));
    if (!measured.row.data_hash.empty()) sweep.cut_on_data[index] = measured.row.data_hash;
  }
  t.event(EventKind::kScheduleCut, about_sweep(sweep),
          fmt::format("'{}': {} {}", waiting.name, row.message, row.widths_json));
  sweep.candidate_by_hash.erase(waiting.hash);
  t.add(row_of(sweep, index, *candidate));
  sweep.candidates[index] = std::make_unique<const sweep::Candidate>(*std::move(candidate));
  sweep.schedules.erase(index);
  for (const TrialId id : queued_of(sweep, index)) make_ready(t, sweep, t.state.trials.at(id));
  for (const std::uint32_t other : waiting_for(sweep, index)) {
    ScheduleRow& next = sweep.schedules.at(other);
    next.key = key_of(sweep, identity, seed_at(sweep, index, next.reference));
    store_row(t, next);
  }
  t.touch(sweep);
  drop_unneeded(t, sweep, reference, measured.row.attempt.trial);
}

/// Every schedule that waits for this measurement, of whatever sweep.
void serve(Transition& t, const storage::Measured& measured) {
  const std::vector<SweepId> open(t.state.open_sweeps.begin(), t.state.open_sweeps.end());
  for (const SweepId id : open) {
    Sweep& sweep = t.state.sweeps.at(id);
    std::vector<std::uint32_t> waiting;
    for (const auto& [index, row] : sweep.schedules) {
      if (row.state != ScheduleState::kWaiting || row.key != measured.row.key) continue;
      // Of a failure only those hear who wait for this very trial.
      if (measured.row.failure.empty() || row.reference == measured.row.attempt.trial) {
        waiting.push_back(index);
      }
    }
    // Inserted ones last: where they come out the same, those with all seeds stand for them.
    std::stable_partition(waiting.begin(), waiting.end(),
                          [&](std::uint32_t index) { return !sweep.own_seeds.contains(index); });
    for (const std::uint32_t index : waiting) {
      // An earlier one may have been the same, and have served this one too.
      const auto row = sweep.schedules.find(index);
      if (row != sweep.schedules.end() && row->second.state == ScheduleState::kWaiting) {
        cut_schedule(t, sweep, index, measured);
      }
    }
  }
}

const storage::Measured* find_measured(const Recalled* recalled, const std::string& key) {
  if (recalled == nullptr) return nullptr;
  for (const storage::Measured& measured : recalled->measured) {
    if (measured.row.key == key) return &measured;
  }
  return nullptr;
}

TrialState state_of(const Sweep& sweep, TrialId trial) {
  const std::uint32_t candidate = candidate_of(sweep, trial);
  const std::uint64_t position = trial.value - sweep.first_trial[candidate].value;
  return sweep.notes[sweep.first_note[candidate] + position].state;
}

}  // namespace

std::vector<std::string> measurements_wanted(const sweep::Spec& spec) {
  std::vector<std::string> keys;
  const bool staged =
      std::any_of(spec.candidates.begin(), spec.candidates.end(),
                  [](const auto& c) { return sweep::asks_for_geometry(c.overrides); });
  if (!staged) return keys;
  const auto named = sweep::resolve_named(spec);
  if (!named) return keys;  // the submission will say so
  const protocol::GeometrySpec geometry = sweep::reference_geometry(spec);
  for (const sweep::Candidate& candidate : *named) {
    const auto request = sweep::schedule_of(spec, candidate.point);
    if (!request) continue;
    const auto from = std::find_if(named->begin(), named->end(),
                                   [&](const auto& c) { return c.name == request->from; });
    if (from == named->end() || from->waiting) continue;
    std::string key = sweep::measurement_key(from->hash, spec.data,
                                             sweep::reference_seed(spec, *request), geometry);
    if (std::count(keys.begin(), keys.end(), key) == 0) keys.push_back(std::move(key));
  }
  return keys;
}

void begin_schedule(Transition& t, Sweep& sweep, std::uint32_t index,
                    const sweep::Candidate& candidate) {
  ScheduleRow row;
  row.sweep = sweep.row.id;
  row.candidate = index;
  sweep::Point request;
  for (const auto& [path, value] : candidate.point) {
    if (path.starts_with("schedule.")) request.emplace(path, value);
  }
  row.request_json = point_to_json(request);
  row.wall_ms = t.now.wall_ms;
  sweep.schedules[index] = std::move(row);
}

void add_named(Transition& t, Sweep& sweep, std::vector<sweep::Candidate> named,
               const Recalled* recalled) {
  std::map<std::string, std::uint32_t> index_of;
  std::map<std::string, std::string> not_made;  // inserted references by name: their hashes
  for (sweep::Candidate& candidate : named) {
    const std::string name = candidate.name;
    const std::string hash = candidate.hash;
    const std::vector<std::uint64_t>& seeds = sweep::seeds_of(*sweep.spec, name);
    const bool measured = &seeds != &sweep.spec->seeds && !candidate.waiting &&
                          std::all_of(seeds.begin(), seeds.end(), [&](std::uint64_t seed) {
                            return find_measured(recalled, key_of(sweep, hash, seed)) != nullptr;
                          });
    if (measured) {
      not_made[name] = hash;
      continue;
    }
    add_candidate(t, sweep, std::move(candidate));
    index_of[name] = sweep.candidate_by_hash.at(hash);
  }
  std::vector<std::uint32_t> known;
  for (auto& [index, row] : sweep.schedules) {
    const auto request = sweep::schedule_of(*sweep.spec, sweep.candidates[index]->point);
    const std::uint64_t seed = sweep::reference_seed(*sweep.spec, *request);
    std::string hash;
    if (const auto left_out = not_made.find(request->from); left_out != not_made.end()) {
      hash = left_out->second;
    } else {
      const std::uint32_t from = index_of.at(request->from);
      row.reference = trial_with_seed(sweep, from, seed).value_or(TrialId{});
      if (!sweep.schedules.contains(from)) hash = sweep.candidates[from]->hash;
    }
    if (!hash.empty()) row.key = key_of(sweep, hash, seed);
    row.message = fmt::format("waits for the measurement of {}", request->from);
    store_row(t, row);
    if (find_measured(recalled, row.key) != nullptr) known.push_back(index);
  }
  std::stable_partition(known.begin(), known.end(),
                        [&](std::uint32_t index) { return !sweep.own_seeds.contains(index); });
  for (const std::uint32_t index : known) {
    const auto row = sweep.schedules.find(index);
    if (row == sweep.schedules.end() || row->second.state != ScheduleState::kWaiting) continue;
    cut_schedule(t, sweep, index, *find_measured(recalled, row->second.key));
  }
}

bool waits_for_schedule(const Sweep& sweep, const Trial& trial) {
  const auto row = sweep.schedules.find(trial.row.candidate);
  return row != sweep.schedules.end() && row->second.state == ScheduleState::kWaiting;
}

bool is_reference(const Sweep& sweep, TrialId trial) {
  return std::any_of(sweep.schedules.begin(), sweep.schedules.end(), [&](const auto& entry) {
    return entry.second.reference == trial && entry.second.state != ScheduleState::kSame;
  });
}

void accept_profile(Transition& t, Trial& trial, const protocol::ProfileReport& profile) {
  Sweep& sweep = t.sweep_of(trial);
  storage::Measured measured;
  storage::MeasurementRow& row = measured.row;
  row.attempt = trial.live->row.id;
  row.step = profile.step;
  const protocol::GeometrySpec geometry = is_reference(sweep, trial.row.id)
                                              ? sweep::reference_geometry(*sweep.spec)
                                              : sweep.spec->geometry;
  const sweep::Candidate& candidate = *sweep.candidates[trial.row.candidate];
  row.key = sweep::measurement_key(sweep::identity_hash(candidate.architecture, candidate.train),
                                   sweep.spec->data, trial.row.seed, geometry);
  row.data_hash = started_data_hash(trial.live->row.started_json);
  row.failure = profile.failure;
  row.dimension_failure = profile.dimension_failure;
  if (row.failure.empty() && profile.entries.empty()) row.failure = "the profile is empty";
  row.wall_ms = t.now.wall_ms;
  for (const protocol::WorkEntry& entry : profile.entries) {
    storage::ProfileRow one;
    one.attempt = row.attempt;
    one.step = profile.step;
    one.layer = entry.layer;
    one.sub_block = entry.sub_block;
    one.geometry = entry.geometry;
    one.statistic = entry.statistic;
    one.value = entry.value;
    one.standard_error = entry.standard_error;
    one.tokens = profile.tokens;
    one.subsamples = profile.subsamples;
    one.linear_tokens = profile.linear_tokens;
    one.rho = profile.rho;
    one.seed = profile.seed;
    one.dropped = profile.dropped;
    one.no_error = entry.no_error;
    one.subsample_values = entry.subsample_values;
    one.energies = entry.energies;
    one.subsamples_asked = profile.subsamples_asked;
    one.positions = profile.positions;
    one.sequences = profile.sequences;
    one.sequences_given = profile.sequences_given;
    one.subsample_tokens = profile.subsample_tokens;
    t.append(one);
    measured.profile.push_back(std::move(one));
  }
  t.append(row);
  t.event(row.failure.empty() ? EventKind::kMeasured : EventKind::kMeasureFailed,
          {sweep.row.id, trial.row.id, row.attempt.number, trial.live->row.worker},
          row.failure.empty()
              ? fmt::format("{} values at step {}", measured.profile.size(), row.step)
              : row.failure);
  serve(t, measured);
}

void after_final(Transition& t, Sweep& sweep, const Trial& trial) {
  const TrialId id = trial.row.id;
  const std::uint32_t candidate = trial.row.candidate;
  std::vector<std::uint32_t> in_vain;
  for (const auto& [index, row] : sweep.schedules) {
    if (row.state == ScheduleState::kWaiting && row.reference == id) in_vain.push_back(index);
  }
  const std::string end =
      trial.row.state == TrialState::kCompleted
          ? std::string("completed without a measurement")
          : fmt::format("{}{}{}", storage::trial_state_name(trial.row.state),
                        trial.row.message.empty() ? "" : ": ", trial.row.message);
  for (const std::uint32_t index : in_vain) {
    const auto row = sweep.schedules.find(index);
    if (row == sweep.schedules.end() || row->second.state != ScheduleState::kWaiting) continue;
    fail_schedule(
        t, sweep, index,
        fmt::format("its reference {} (seed {}) {}", id.to_string(), trial.row.seed, end));
  }
  const auto own = sweep.schedules.find(candidate);
  if (own == sweep.schedules.end() || own->second.state != ScheduleState::kWaiting ||
      sweep.open_trials[candidate] > 0) {
    return;
  }
  own->second.state = ScheduleState::kFailed;
  own->second.message = "its trials were cancelled before it was cut";
  store_row(t, own->second);
}

void retry_schedule(Transition& t, Sweep& sweep, std::uint32_t candidate) {
  const auto row = sweep.schedules.find(candidate);
  if (row == sweep.schedules.end() || row->second.state == ScheduleState::kWaiting) return;
  row->second.state = ScheduleState::kWaiting;
  store_row(t, row->second);
}

void settle_schedules(Transition& t, Sweep& sweep) {
  std::vector<std::pair<std::uint32_t, std::string>> in_vain;
  for (const auto& [index, row] : sweep.schedules) {
    if (row.state != ScheduleState::kWaiting) continue;
    if (row.reference.valid() && !storage::is_final(state_of(sweep, row.reference))) continue;
    in_vain.emplace_back(
        index,
        fmt::format("{}; its reference is {} and will not be measured again: retry that too, "
                    "or submit the file under another name (what is measured is used again)",
                    row.message,
                    row.reference.valid()
                        ? fmt::format("{} ({})", row.reference.to_string(),
                                      storage::trial_state_name(state_of(sweep, row.reference)))
                        : "of another sweep"));
  }
  for (const auto& [index, reason] : in_vain) {
    const auto row = sweep.schedules.find(index);
    if (row != sweep.schedules.end() && row->second.state == ScheduleState::kWaiting) {
      fail_schedule(t, sweep, index, reason);
    }
  }
}

void check_data(Transition& t, const Sweep& sweep, const Trial& trial,
                const std::string& data_hash) {
  const auto cut_on = sweep.cut_on_data.find(trial.row.candidate);
  if (cut_on == sweep.cut_on_data.end() || data_hash.empty() || cut_on->second == data_hash) return;
  t.event(
      EventKind::kMeasurementReused,
      {sweep.row.id, trial.row.id, trial.row.attempts, trial.live->row.worker},
      fmt::format("its widths were cut from a measurement on other data ({}) than it is trained "
                  "on ({}): the shards were replaced since",
                  cut_on->second.substr(0, 12), data_hash.substr(0, 12)));
}

}  // namespace tailor::core
