#include "coordinator/engine/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "coordinator/core/step.h"
#include "sweep/spec.h"

namespace tailor::engine {
namespace {

SweepView aside_view(const core::UnreadableSweep& sweep) {
  SweepView view;
  view.row = sweep.row;
  view.row.toml.clear();
  view.counts = sweep.counts;
  view.unreadable = sweep.reason;
  view.message = "cannot be read by this version: " + sweep.reason;
  return view;
}

std::string devices_text(const std::vector<core::WorkerSlot>& slots) {
  std::vector<std::pair<std::string, std::size_t>> counts;
  for (const core::WorkerSlot& slot : slots) {
    const auto same = std::find_if(counts.begin(), counts.end(),
                                   [&](const auto& c) { return c.first == slot.slot.name; });
    if (same != counts.end()) {
      ++same->second;
    } else {
      counts.emplace_back(slot.slot.name, 1);
    }
  }
  std::string text;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
  }
  return text;
}

WorkerView worker_view(const core::Worker& worker) {
  WorkerView view;
  view.row = worker.row;
  view.connected = worker.session != 0;
  view.slots = static_cast<std::uint32_t>(worker.slots.size());
  std::set<AttemptId> running;
  for (const core::WorkerSlot& slot : worker.slots) {
    if (!slot.held_by.has_value()) continue;
    ++view.busy_slots;
    running.insert(*slot.held_by);
  }
  view.running.assign(running.begin(), running.end());
  view.devices = devices_text(worker.slots);
  view.clock_skew_ms = worker.clock_skew_ms;
  return view;
}

/// Notes what a row is about: a sweep, workers. Ids of 0 name nothing.
struct NamedIn {
  std::set<SweepId>& sweeps;
  std::set<WorkerId>& workers;

  void operator()(const storage::SweepRow& row) const { sweeps.insert(row.id); }
  void operator()(const storage::CandidateRow& row) const { sweeps.insert(row.sweep); }
  void operator()(const storage::TrialRow& row) const { sweeps.insert(row.sweep); }
  void operator()(const storage::AttemptRow& row) const {
    workers.insert(row.worker);
    for (const storage::AttemptMember& member : row.members) workers.insert(member.worker);
  }
  void operator()(const storage::WorkerRow& row) const { workers.insert(row.id); }
  void operator()(const storage::EventRow& row) const {
    if (row.sweep.valid()) sweeps.insert(row.sweep);
    if (row.worker.valid()) workers.insert(row.worker);
  }
  template <typename Other>
  void operator()(const Other&) const {}
};

template <typename View, typename Id>
Published::List<View> list_of(const std::map<Id, std::shared_ptr<const View>>& views) {
  auto list = std::make_shared<std::vector<std::shared_ptr<const View>>>();
  list->reserve(views.size());
  for (const auto& [id, view] : views) list->push_back(view);
  return list;
}

bool is_open(const SweepView& view) {
  return view.row.state == storage::SweepState::kRunning ||
         view.row.state == storage::SweepState::kPaused;
}

}  // namespace

SweepView view_of(const core::Sweep& sweep) {
  SweepView view;
  view.row.id = sweep.row.id;
  view.row.name = sweep.row.name;
  view.row.spec_hash = sweep.row.spec_hash;
  view.row.base_dir = sweep.row.base_dir;
  view.row.state = sweep.row.state;
  view.row.priority = sweep.row.priority;
  view.row.infeasible = sweep.row.infeasible;
  view.row.created_ms = sweep.row.created_ms;
  view.row.ended_ms = sweep.row.ended_ms;
  view.counts = sweep.counts;
  view.candidates = sweep.candidates.size();
  view.seeds = sweep.spec->seeds.size();
  view.search_points = sweep::search_size(*sweep.spec);
  view.search_tried =
      view.search_points -
      std::min(view.search_points, sweep.algorithm ? sweep.algorithm->remaining().value_or(0) : 0);
  view.search_left = core::points_left(sweep);
  view.trials_at_most = core::trials_at_most(sweep);
  view.infeasible_reasons = sweep.infeasible_reasons;
  view.message = core::outcome_text(sweep);
  view.baseline = sweep.spec->baseline;
  view.scaling = !sweep.spec->scaling.families.empty();
  view.description = sweep.spec->description;
  view.objectives = sweep.spec->objectives;
  return view;
}

std::shared_ptr<const SweepView> Published::sweep(SweepId id) const {
  const auto found =
      std::lower_bound(sweeps->begin(), sweeps->end(), id,
                       [](const auto& view, SweepId wanted) { return view->row.id < wanted; });
  return found != sweeps->end() && (*found)->row.id == id ? *found : nullptr;
}

Publisher::Publisher(const core::State& state) {
  for (const auto& [id, sweep] : state.sweeps) sweeps_.changed.insert(id);
  for (const auto& [id, sweep] : state.unreadable) sweeps_.changed.insert(id);
  for (const auto& [id, worker] : state.workers) workers_.changed.insert(id);
  sweeps_.list = list_of(sweeps_.views);
  workers_.list = list_of(workers_.views);
}

void Publisher::note(std::span<const storage::Mutation> committed) {
  for (const storage::Mutation& row : committed) {
    std::visit(NamedIn{sweeps_.changed, workers_.changed}, row);
  }
}

// Unsigned numbers wrap, so adding -1 times what was added before takes it away.
void Publisher::count(const SweepView& view, int times) {
  const auto sign = static_cast<std::uint64_t>(times);
  totals_.sweeps[view.row.state] += sign;
  for (const auto& [state, trials] : view.counts) totals_.trials[state] += sign * trials;
  if (!is_open(view)) return;
  totals_.search_left += sign * view.search_left;
  totals_.search_tried += sign * (view.search_points - view.search_left);
}

void Publisher::count(const WorkerView& view, int times) {
  if (!view.connected) return;
  const auto sign = static_cast<std::uint32_t>(times);
  totals_.workers_connected += sign;
  totals_.slots += sign * view.slots;
  totals_.busy_slots += sign * view.busy_slots;
}

template <typename Id, typename View, typename Make>
void Publisher::refresh(Kept<Id, View>& kept, Make make) {
  if (kept.changed.empty()) return;
  for (const Id id : kept.changed) {
    const auto before = kept.views.find(id);
    if (before != kept.views.end()) count(*before->second, -1);
    std::optional<View> made = make(id);
    if (!made) {
      if (before != kept.views.end()) kept.views.erase(before);
      continue;
    }
    auto view = std::make_shared<const View>(*std::move(made));
    count(*view, 1);
    kept.views.insert_or_assign(id, std::move(view));
  }
  kept.changed.clear();
  kept.list = list_of(kept.views);
}

std::shared_ptr<const Published> Publisher::publish(const core::State& state) {
  refresh(sweeps_, [&](SweepId id) -> std::optional<SweepView> {
    if (const auto sweep = state.sweeps.find(id); sweep != state.sweeps.end()) {
      return view_of(sweep->second);
    }
    if (const auto aside = state.unreadable.find(id); aside != state.unreadable.end()) {
      return aside_view(aside->second);
    }
    return std::nullopt;  // it has ended: rows only
  });
  refresh(workers_, [&](WorkerId id) -> std::optional<WorkerView> {
    const auto worker = state.workers.find(id);
    if (worker == state.workers.end()) return std::nullopt;
    return worker_view(worker->second);
  });
  Totals totals = totals_;
  for (const auto& [sweep, count] : state.other_sweeps) totals.sweeps[sweep] += count;
  for (const auto& [trial, count] : state.other_trials) totals.trials[trial] += count;
  return std::make_shared<const Published>(
      Published{std::move(totals), sweeps_.list, workers_.list});
}

}  // namespace tailor::engine
