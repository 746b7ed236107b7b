// Submission, and the search's candidates as they become trials.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "coordinator/core/json.h"
#include "coordinator/core/step.h"
#include "coordinator/core/transition.h"

namespace tailor::core {

using storage::SweepState;
using storage::TrialState;

namespace {

/// Reasons that are told apart; the rest is counted together.
constexpr std::size_t kReasonsMax = 20;

SubmitOutcome outcome_of(const Sweep& sweep, bool created) {
  SubmitOutcome outcome;
  outcome.sweep = sweep.row.id;
  outcome.created = created;
  outcome.candidates = sweep.candidates.size();
  outcome.trials = trials_at_most(sweep);
  outcome.exact = points_left(sweep) == 0;
  return outcome;
}

/// Counts a point that fell away. Returns under what.
std::string count_infeasible(Sweep& sweep, const std::string& reason) {
  ++sweep.row.infeasible;
  std::string kind = sweep::reason_kind(reason);
  auto& reasons = sweep.infeasible_reasons;
  if (!reasons.contains(kind) && reasons.size() >= kReasonsMax) kind = "another reason";
  ++reasons[kind];
  return kind;
}

std::string duplicate_text(const Sweep& sweep, const std::string& name, std::uint32_t as) {
  return fmt::format("'{}' is the same as '{}' and is trained once", name,
                     sweep.candidates[as] != nullptr ? sweep.candidates[as]->name
                                                     : fmt::format("candidate {}", as));
}

/// A grid has an end; a search that draws may try for ever, where all that is left is infeasible or
/// comes out as what is there.
void give_up_if_barren(Transition& t, Sweep& sweep) {
  sweep.algorithm->refuse();
  const std::uint64_t limit =
      std::max<std::uint64_t>(t.state.options.infeasible_max, 100 * sweep.candidates.size());
  const std::uint64_t duplicates = duplicates_of(sweep);
  if (sweep.row.infeasible + duplicates < limit || sweep.algorithm->exhausts_space()) return;
  sweep.search_done = true;
  t.event(EventKind::kSearchStopped, {sweep.row.id, {}, 0, {}},
          fmt::format("{} points of the space are infeasible, {} have the architecture of another "
                      "and {} candidates were found: the search gives up; `tailor plan` says why "
                      "points fail",
                      sweep.row.infeasible, duplicates, sweep.candidates.size()));
}

/// One point of the space: a new candidate, a duplicate, or infeasible.
void try_point(Transition& t, Sweep& sweep, const sweep::Point& point) {
  const std::string name = sweep::point_name(point);
  auto candidate = sweep::resolve(*sweep.spec, name, point);
  if (!candidate) {
    const std::string kind = count_infeasible(sweep, candidate.error().message());
    t.changes.fell_away(t.now.wall_ms, sweep.row.id, EventKind::kCandidateInfeasible, kind,
                        fmt::format("{}: {}", name, candidate.error().message()));
    return give_up_if_barren(t, sweep);
  }
  if (const auto known = sweep.candidate_by_hash.find(candidate->hash);
      known != sweep.candidate_by_hash.end()) {
    ++sweep.infeasible_reasons[kDuplicateReason];
    t.changes.fell_away(t.now.wall_ms, sweep.row.id, EventKind::kCandidateDuplicate,
                        kDuplicateReason, duplicate_text(sweep, name, known->second));
    return give_up_if_barren(t, sweep);
  }
  add_candidate(t, sweep, std::move(*candidate));
}

}  // namespace

Status taken(const storage::SweepRow& row) {
  return {Code::kAlreadyExists,
          fmt::format("a sweep named '{}' exists ({}) and was made from another file; give this "
                      "one another name",
                      row.name, row.id.to_string())};
}

std::uint64_t duplicates_of(const Sweep& sweep) {
  const auto found = sweep.infeasible_reasons.find(kDuplicateReason);
  return found == sweep.infeasible_reasons.end() ? 0 : found->second;
}

std::uint64_t points_left(const Sweep& sweep) {
  if (!sweep.algorithm || sweep.search_done || sweep.row.state == SweepState::kCancelled) return 0;
  return sweep.algorithm->remaining().value_or(0);
}

std::uint64_t trials_at_most(const Sweep& sweep) {
  const std::uint64_t left = points_left(sweep);
  const std::uint64_t seeds = sweep.spec->seeds.size();
  constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
  // Of a sweep that was read for a view there are no notes.
  const std::uint64_t made = sweep.first_note.size() == sweep.candidates.size()
                                 ? sweep.notes.size()
                                 : sweep.candidates.size() * seeds;
  return left > (kMost - made) / seeds ? kMost : made + left * seeds;
}

storage::CandidateRow row_of(const Sweep& sweep, std::uint32_t index,
                             const sweep::Candidate& candidate) {
  storage::CandidateRow row;
  row.sweep = sweep.row.id;
  row.index = index;
  row.name = candidate.name;
  row.point_json = point_to_json(candidate.point);
  row.architecture_json = shape::canonical_json(candidate.architecture);
  row.hash = candidate.hash;
  row.parameters_body = candidate.counts.body;
  row.parameters_total = candidate.counts.total;
  return row;
}

void note_seeds(Sweep& sweep, std::uint32_t index, const std::string& name) {
  const std::vector<std::uint64_t>& seeds = sweep::seeds_of(*sweep.spec, name);
  if (&seeds != &sweep.spec->seeds) sweep.own_seeds[index] = seeds;
}

bool add_candidate(Transition& t, Sweep& sweep, sweep::Candidate candidate) {
  const auto index = static_cast<std::uint32_t>(sweep.candidates.size());
  const auto [known, is_new] = sweep.candidate_by_hash.emplace(candidate.hash, index);
  if (!is_new) {
    t.event(EventKind::kCandidateDuplicate, {sweep.row.id, {}, 0, {}},
            duplicate_text(sweep, candidate.name, known->second));
    return false;
  }
  t.add(row_of(sweep, index, candidate));
  note_seeds(sweep, index, candidate.name);
  if (candidate.waiting) begin_schedule(t, sweep, index, candidate);
  sweep.candidates.push_back(std::make_unique<const sweep::Candidate>(std::move(candidate)));
  const std::vector<std::uint64_t>& seeds = sweep.seeds_of(index);
  sweep.first_note.push_back(sweep.notes.size());
  sweep.notes.resize(sweep.notes.size() + seeds.size());
  sweep.first_trial.push_back(TrialId{t.state.counters.next_trial});
  sweep.open_trials.push_back(static_cast<std::uint32_t>(seeds.size()));
  for (const std::uint64_t seed : seeds) {
    Trial trial;
    trial.row.id = TrialId{t.state.counters.next_trial++};
    trial.row.sweep = sweep.row.id;
    trial.row.candidate = index;
    trial.row.seed = seed;
    trial.row.failures_json = failures_to_json({});
    trial.row.created_ms = t.now.wall_ms;
    ++sweep.counts[TrialState::kQueued];  // queue_trial moves it from queued to queued
    Trial& stored = t.state.trials.emplace(trial.row.id, std::move(trial)).first->second;
    queue_trial(t, stored, 0);
  }
  t.touch_counters();
  t.touch(sweep);
  return true;
}

bool wants_draws(const State& state, const Sweep& sweep) {
  if (sweep.row.state != SweepState::kRunning || !sweep.algorithm || sweep.search_done)
    return false;
  // One that learns is asked as late as can be: what ends until then is learned from.
  const std::size_t ahead = sweep.algorithm->learns() ? 1 : state.options.queue_ahead;
  return sweep.ready.size() < ahead;
}

void refill(Transition& t, Sweep& sweep) {
  if (sweep.row.state != SweepState::kRunning || sweep.search_done || !sweep.algorithm) return;
  while (wants_draws(t.state, sweep)) {
    if (t.changes.draws_left == 0) {
      t.state.deadlines.set(DeadlineKind::kDraws, sweep.row.id.value, t.now.mono_ms);
      return;
    }
    --t.changes.draws_left;
    const std::vector<sweep::Point> points = sweep.algorithm->suggest(1);
    if (points.empty()) {
      sweep.search_done = true;
      if (!sweep.algorithm->why().empty()) {
        t.event(EventKind::kSearchStopped, {sweep.row.id, {}, 0, {}},
                fmt::format("{} candidates were found: {}", sweep.candidates.size() - sweep.named,
                            sweep.algorithm->why()));
      }
    } else {
      try_point(t, sweep, points.front());
      if (sweep.algorithm->remaining() == 0u) sweep.search_done = true;
    }
    t.touch(sweep);
  }
  t.state.deadlines.clear(DeadlineKind::kDraws, sweep.row.id.value);
  complete_if_done(t, sweep);  // the rest of the space may have been infeasible
}

void on_submit(Transition& t, const SubmitSweep& event) {
  const sweep::Spec& spec = *event.spec;
  if (const auto found = t.state.sweep_by_name.find(spec.name);
      found != t.state.sweep_by_name.end() && t.state.sweeps.contains(found->second)) {
    const Sweep& existing = t.state.sweeps.at(found->second);
    if (existing.row.spec_hash == event.hash) {
      return t.reply(event.request, Status::ok(), outcome_of(existing, false));
    }
    return t.reply(event.request, taken(existing.row));
  }
  if (!recall(t, event)) return;
  auto named = sweep::resolve_named(spec);
  if (!named) return t.reply(event.request, named.error());

  Sweep sweep;
  if (!spec.space.empty()) {
    auto algorithm = search::make_algorithm(spec.search.algorithm, spec);
    if (!algorithm) return t.reply(event.request, algorithm.error());
    sweep.algorithm = std::move(*algorithm);
  }
  if (named->empty() && !sweep.algorithm) {
    return t.reply(event.request,
                   {Code::kInvalidArgument,
                    fmt::format("sweep '{}' has nothing to train: it needs a [[candidate]] "
                                "or a [space]",
                                spec.name)});
  }

  sweep.search_done = sweep.algorithm == nullptr;
  sweep.spec = event.spec;
  sweep.demand = demand_of(event.spec->resources);
  sweep.row.user = event.user;
  sweep.row.id = SweepId{t.state.counters.next_sweep++};
  sweep.row.name = spec.name;
  sweep.row.spec_hash = event.hash;
  sweep.row.base_dir = event.base_dir;
  sweep.row.toml = event.toml;
  sweep.row.priority = spec.resources.priority;
  sweep.row.created_ms = t.now.wall_ms;
  const SweepId id = sweep.row.id;
  t.state.sweep_by_name.emplace(spec.name, id);
  t.state.open_sweeps.insert(id);
  t.touch_counters();
  Sweep& stored = t.state.sweeps.emplace(id, std::move(sweep)).first->second;
  t.touch(stored);
  t.event(EventKind::kSweepSubmitted, {id, {}, 0, {}}, spec.name);
  add_named(t, stored, *std::move(named), event.recalled.get());
  stored.named = stored.candidates.size();
  if (stored.algorithm && stored.algorithm->learns()) {
    std::vector<search::Recalled> known;
    for (const auto& candidate : stored.candidates) {
      known.push_back({candidate->point, candidate->hash, true, false, {}});
    }
    stored.algorithm->recall(known);
  }
  refill(t, stored);
  t.placement_changed = true;
  t.reply(event.request, Status::ok(), outcome_of(stored, true));
}

std::string encode_search(const Sweep& sweep) {
  if (!sweep.algorithm) return "";
  std::string told;
  for (const auto& [first, last] : sweep.told.ranges()) {
    told += fmt::format("{}{}-{}", told.empty() ? "" : ",", first, last);
  }
  return fmt::format("told {}{}\n{}", told, sweep.search_done ? " done" : "",
                     sweep.algorithm->save());
}

Status decode_search(Sweep& sweep, std::span<const storage::CandidateRow* const> candidates) {
  if (!sweep.algorithm) {
    sweep.search_done = true;
    return Status::ok();
  }
  const auto damaged = [&] {
    return Status{Code::kDataLoss, fmt::format("the stored search state of sweep {} is damaged",
                                               sweep.row.id.to_string())};
  };
  const std::string_view text = sweep.row.search_state;
  const std::size_t line = text.find('\n');
  if (line == std::string_view::npos || !text.starts_with("told ")) return damaged();
  std::string_view head = text.substr(5, line - 5);
  sweep.search_done = head.ends_with(" done");
  if (sweep.search_done) head.remove_suffix(5);
  for (const std::string_view range : split(head, ',')) {
    if (range.empty()) continue;
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    const char* const end = range.data() + range.size();
    const auto a = std::from_chars(range.data(), end, first);
    if (a.ec != std::errc() || a.ptr == end || *a.ptr != '-') return damaged();
    const auto b = std::from_chars(a.ptr + 1, end, last);
    if (b.ec != std::errc() || b.ptr != end || last < first || last >= sweep.candidates.size()) {
      return damaged();
    }
    for (std::uint32_t i = first; i <= last; ++i) sweep.told.insert(i);
  }
  if (sweep.algorithm->learns() && !candidates.empty()) {
    std::vector<search::Recalled> known;
    for (const storage::CandidateRow* row : candidates) {
      auto point = point_from_json(row->point_json);
      if (!point) return point.error().with_context(fmt::format("candidate {}", row->index));
      search::Recalled one{*std::move(point), row->hash, row->index < sweep.named, false, {}};
      one.told = sweep.told.contains(row->index);
      if (one.told) one.objective = candidate_objective(sweep, row->index);
      known.push_back(std::move(one));
    }
    sweep.algorithm->recall(known);
  }
  return sweep.algorithm->load(text.substr(line + 1))
      .with_context(fmt::format("search state of sweep {}", sweep.row.id.to_string()));
}

}  // namespace tailor::core
