#include "coordinator/rpc/convert_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "protocol/limits.h"

namespace tailor::rpc {
namespace {

v1::QueryRow::Kind kind_of(storage::Cell::Kind kind) {
  switch (kind) {
    case storage::Cell::Kind::kNull:
      return v1::QueryRow::KIND_NULL;
    case storage::Cell::Kind::kInteger:
      return v1::QueryRow::KIND_INTEGER;
    case storage::Cell::Kind::kReal:
      return v1::QueryRow::KIND_REAL;
    case storage::Cell::Kind::kText:
      return v1::QueryRow::KIND_TEXT;
    case storage::Cell::Kind::kBytes:
      return v1::QueryRow::KIND_BYTES;
  }
  return v1::QueryRow::KIND_UNSPECIFIED;
}

constexpr std::size_t kReasonsMax = 50;
constexpr std::size_t kRunningMax = 1'000;

/// A text for people, of rows that were written before there were limits too.
std::string bounded(std::string_view text) {
  return protocol::cut(utf8(text), protocol::kMessageBytesMax);
}

/// The commonest reasons, the others taken together.
std::map<std::string, std::uint64_t> commonest(
    const std::map<std::string, std::uint64_t>& reasons) {
  std::vector<std::pair<std::uint64_t, std::string>> ordered;
  for (const auto& [reason, count] : reasons) ordered.emplace_back(count, bounded(reason));
  std::sort(ordered.rbegin(), ordered.rend());
  std::map<std::string, std::uint64_t> out;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    out[i < kReasonsMax ? ordered[i].second : "(others)"] += ordered[i].first;
  }
  return out;
}

std::uint64_t count_of(const std::map<storage::TrialState, std::uint64_t>& counts,
                       storage::TrialState state) {
  const auto found = counts.find(state);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

std::string utf8(std::string_view text) { return with_valid_utf8(std::string(text)); }

grpc::Status to_grpc(const Status& status) {
  // It travels in the trailing metadata; beyond 8 KiB those arrive as another error.
  constexpr std::size_t kMessageMax = 4000;
  std::string message = status.message();
  if (message.size() > kMessageMax) message = message.substr(0, kMessageMax) + "...";
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), utf8(message));
}

v1::SweepState to_proto(storage::SweepState state) {
  switch (state) {
    case storage::SweepState::kRunning:
      return v1::SWEEP_STATE_RUNNING;
    case storage::SweepState::kPaused:
      return v1::SWEEP_STATE_PAUSED;
    case storage::SweepState::kCompleted:
      return v1::SWEEP_STATE_COMPLETED;
    case storage::SweepState::kCancelled:
      return v1::SWEEP_STATE_CANCELLED;
    case storage::SweepState::kFailed:
      return v1::SWEEP_STATE_FAILED;
  }
  return v1::SWEEP_STATE_UNSPECIFIED;
}

v1::TrialState to_proto(storage::TrialState state) {
  switch (state) {
    case storage::TrialState::kQueued:
      return v1::TRIAL_STATE_QUEUED;
    case storage::TrialState::kRunning:
      return v1::TRIAL_STATE_RUNNING;
    case storage::TrialState::kCompleted:
      return v1::TRIAL_STATE_COMPLETED;
    case storage::TrialState::kStopped:
      return v1::TRIAL_STATE_STOPPED;
    case storage::TrialState::kFailed:
      return v1::TRIAL_STATE_FAILED;
    case storage::TrialState::kCancelled:
      return v1::TRIAL_STATE_CANCELLED;
  }
  return v1::TRIAL_STATE_UNSPECIFIED;
}

Result<std::optional<storage::TrialState>> from_proto(v1::TrialState state) {
  using storage::TrialState;
  switch (state) {
    case v1::TRIAL_STATE_UNSPECIFIED:
      return std::nullopt;
    case v1::TRIAL_STATE_QUEUED:
      return TrialState::kQueued;
    case v1::TRIAL_STATE_RUNNING:
      return TrialState::kRunning;
    case v1::TRIAL_STATE_COMPLETED:
      return TrialState::kCompleted;
    case v1::TRIAL_STATE_STOPPED:
      return TrialState::kStopped;
    case v1::TRIAL_STATE_FAILED:
      return TrialState::kFailed;
    case v1::TRIAL_STATE_CANCELLED:
      return TrialState::kCancelled;
    default:
      break;
  }
  return error(Code::kInvalidArgument,
               fmt::format("{} is no trial state", static_cast<int>(state)));
}

v1::Sweep to_proto(const engine::SweepView& view) {
  using storage::TrialState;
  v1::Sweep out;
  out.set_id(view.row.id.value);
  out.set_name(utf8(view.row.name));
  out.set_state(to_proto(view.row.state));
  out.set_priority(view.row.priority);
  out.set_user(utf8(view.row.user));
  out.set_created_ms(view.row.created_ms);
  out.set_ended_ms(view.row.ended_ms);
  out.set_candidates(view.candidates);
  out.set_infeasible(view.row.infeasible);
  out.set_queued(count_of(view.counts, TrialState::kQueued));
  out.set_running(count_of(view.counts, TrialState::kRunning));
  out.set_completed(count_of(view.counts, TrialState::kCompleted));
  out.set_stopped(count_of(view.counts, TrialState::kStopped));
  out.set_failed(count_of(view.counts, TrialState::kFailed));
  out.set_cancelled(count_of(view.counts, TrialState::kCancelled));
  out.set_baseline(utf8(view.baseline));
  out.set_description(bounded(view.description));
  out.set_seeds(view.seeds);
  out.set_search_points(view.search_points);
  out.set_search_tried(view.search_tried);
  out.set_trials_at_most(view.trials_at_most);
  out.set_message(bounded(view.message));
  out.set_unreadable(bounded(view.unreadable));
  for (const auto& [reason, count] : commonest(view.infeasible_reasons)) {
    (*out.mutable_infeasible_reasons())[reason] = count;
  }
  return out;
}

v1::Candidate to_proto(const storage::CandidateRow& row) {
  v1::Candidate out;
  out.set_index(row.index);
  out.set_name(utf8(row.name));
  out.set_point_json(utf8(row.point_json));
  out.set_architecture_json(utf8(row.architecture_json));
  out.set_parameters_body(row.parameters_body);
  out.set_parameters_total(row.parameters_total);
  return out;
}

v1::Trial to_proto(const engine::TrialView& view) {
  v1::Trial out;
  out.set_id(view.row.id.value);
  out.set_sweep(view.row.sweep.value);
  out.set_candidate(view.row.candidate);
  out.set_candidate_name(utf8(view.candidate_name));
  out.set_seed(view.row.seed);
  out.set_state(to_proto(view.row.state));
  out.set_attempts(view.row.attempts);
  out.set_end_class(std::string(protocol::end_class_name(view.row.end_class)));
  out.set_message(bounded(view.row.message));
  if (view.row.objective.has_value()) out.set_objective(*view.row.objective);
  for (const auto& [name, value] : view.row.final_values)
    (*out.mutable_values())[utf8(name)] = value;
  out.set_created_ms(view.row.created_ms);
  out.set_started_ms(view.row.started_ms);
  out.set_ended_ms(view.row.ended_ms);
  out.set_parameters_body(view.parameters_body);
  out.set_priority(view.row.priority);
  return out;
}

v1::Attempt to_proto(const engine::AttemptView& view) {
  v1::Attempt out;
  out.set_trial(view.row.id.trial.value);
  out.set_number(view.row.id.number);
  out.set_worker(view.row.worker.value);
  out.set_worker_name(utf8(view.worker_name));
  for (const std::uint32_t slot : view.row.slots) out.add_slots(slot);
  out.set_state(std::string(storage::attempt_state_name(view.row.state)));
  out.set_end_class(std::string(protocol::end_class_name(view.row.end_class)));
  out.set_message(bounded(view.row.message));
  out.set_assigned_ms(view.row.assigned_ms);
  out.set_ended_ms(view.row.ended_ms);
  out.set_resumed_step(view.resumed_step);
  return out;
}

v1::Checkpoint to_proto(const storage::CheckpointRow& row) {
  v1::Checkpoint out;
  out.set_attempt(row.attempt.number);
  out.set_step(row.step);
  out.set_path(utf8(row.path));
  out.set_sha256(utf8(row.sha256));
  out.set_bytes(row.bytes);
  out.set_wall_ms(row.wall_ms);
  return out;
}

v1::WorkEntry to_proto(const storage::ProfileRow& row) {
  v1::WorkEntry out;
  out.set_layer(row.layer);
  out.set_sub_block(row.sub_block);
  out.set_geometry(utf8(row.geometry));
  out.set_statistic(utf8(row.statistic));
  out.set_value(row.value);
  out.set_standard_error(row.standard_error);
  return out;
}

v1::Event to_proto(const storage::EventRow& row) {
  v1::Event out;
  out.set_id(row.id);
  out.set_wall_ms(row.wall_ms);
  out.set_kind(std::string(storage::event_kind_name(row.kind)));
  out.set_sweep(row.sweep.value);
  out.set_trial(row.trial.value);
  out.set_attempt(row.attempt);
  out.set_worker(row.worker.value);
  out.set_message(bounded(row.message));
  return out;
}

v1::WorkerInfo to_proto(const engine::WorkerView& view) {
  v1::WorkerInfo out;
  out.set_id(view.row.id.value);
  out.set_name(utf8(view.row.name));
  out.set_host(utf8(view.row.host));
  out.set_version(utf8(view.row.version));
  out.set_connected(view.connected);
  out.set_draining(view.row.draining);
  out.set_slots(view.slots);
  out.set_busy_slots(view.busy_slots);
  for (std::size_t i = 0; i < std::min(view.running.size(), kRunningMax); ++i) {
    out.add_running(view.running[i].to_string());
  }
  out.set_last_seen_ms(view.row.last_seen_ms);
  out.set_devices(utf8(view.devices));
  out.set_quarantine(utf8(view.row.quarantine));
  out.set_quarantined_ms(view.row.quarantined_ms);
  out.set_quarantine_cause(std::string(storage::quarantine_cause_name(view.row.quarantine_cause)));
  out.set_drain_at_ms(view.row.drain_at_ms);
  for (const std::string& label : view.row.labels) out.add_labels(utf8(label));
  out.set_memory_bytes(view.row.memory_bytes);
  out.set_folder(utf8(view.row.folder));
  return out;
}

bool add_profile(const std::vector<storage::ProfileRow>& rows, PageBudget& budget,
                 v1::GetTrialResponse& out) {
  for (const storage::ProfileRow& row : rows) {
    v1::WorkEntry entry = to_proto(row);
    if (!budget.take(entry)) return false;
    v1::WorkProfile& profile = *out.mutable_work_profile();
    profile.set_step(row.step);
    profile.set_tokens(row.tokens);
    profile.set_linear_tokens(row.linear_tokens);
    profile.set_subsamples(row.subsamples);
    profile.set_rho(row.rho);
    profile.set_seed(row.seed);
    profile.set_dropped(row.dropped);
    profile.add_entries()->Swap(&entry);
  }
  return true;
}

namespace {

void fill(v1::Comparison& to, const analysis::ComparisonRow& row, bool is_baseline) {
  to.set_candidate(row.candidate);
  to.set_name(utf8(row.name));
  to.set_parameters_body(row.parameters_body);
  to.set_seeds(is_baseline ? row.finished : static_cast<std::uint32_t>(row.paired.n));
  to.set_missing(row.missing);
  to.set_finished(row.finished);
  to.set_failed(row.failed);
  to.set_stopped(row.stopped);
  to.set_lost(row.lost);
  to.set_other_data(row.other_data);
  to.set_other_version(row.other_version);
  to.set_status(std::string(analysis::row_status_name(row.status)));
  to.set_note(utf8(row.note));
  if (row.mean.has_value()) to.set_mean(*row.mean);
  if (row.paired.n > 0) to.set_difference(row.paired.mean);
  if (row.paired.sd.has_value()) to.set_sd(*row.paired.sd);
  if (row.paired.ci_low.has_value()) to.set_ci_low(*row.paired.ci_low);
  if (row.paired.ci_high.has_value()) to.set_ci_high(*row.paired.ci_high);
  if (const auto& test = row.paired.sign_flip) {
    to.set_p_sign_flip(test->p);
    to.set_p_draws(test->draws);
    to.set_p_standard_error(test->standard_error);
    to.set_smallest_p(test->smallest_p);
  }
  if (row.p_holm.has_value()) to.set_p_holm(*row.p_holm);
  if (row.tokens_per_s.has_value()) to.set_tokens_per_s(*row.tokens_per_s);
}

}  // namespace

v1::CompareResponse to_proto(const analysis::ComparisonTable& table,
                             const analysis::ComparisonPage& page) {
  v1::CompareResponse out;
  out.set_baseline(utf8(table.baseline));
  out.set_objective(utf8(table.objective));
  out.set_seeds(table.seeds);
  out.set_smallest_p(table.smallest_p);
  if (table.best.has_value()) out.set_best(*table.best);
  for (const std::string& note : table.notes) out.add_notes(utf8(note));
  out.set_total(page.total);
  out.set_next_offset(page.next_offset);
  out.set_as_of(table.as_of);
  for (const analysis::ComparisonRow* row : page.rows) {
    v1::Comparison& to = *out.add_rows();
    fill(to, *row, row == &table.rows.front());
    if (!page.differences) continue;
    to.mutable_differences()->Add(row->differences.begin(), row->differences.end());
    to.mutable_seed()->Add(row->seeds.begin(), row->seeds.end());
  }
  return out;
}

v1::QueryRow to_proto(const std::vector<storage::Cell>& row) {
  v1::QueryRow out;
  for (const auto& cell : row) {
    v1::QueryRow::Cell& to_cell = *out.add_cells();
    to_cell.set_kind(kind_of(cell.kind));
    if (cell.kind != storage::Cell::Kind::kNull) to_cell.set_text(utf8(cell.text));
  }
  return out;
}

}  // namespace tailor::rpc
