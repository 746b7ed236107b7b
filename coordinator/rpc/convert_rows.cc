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
  out.set_scaling(view.scaling);
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
  if (row.standard_error) out.set_standard_error(*row.standard_error);
  out.set_no_error(utf8(row.no_error));
  out.mutable_subsample_values()->Add(row.subsample_values.begin(), row.subsample_values.end());
  if (row.energies) {
    v1::MatchEnergies& energies = *out.mutable_energies();
    energies.set_energy(row.energies->energy);
    energies.set_identity(row.energies->identity);
    energies.set_norm_bound(row.energies->norm_bound);
    energies.set_second_bound(row.energies->second_bound);
    energies.set_third_bound(row.energies->third_bound);
    energies.set_certified(row.energies->certified);
  }
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
    profile.set_subsamples_asked(row.subsamples_asked);
    profile.set_positions(row.positions);
    profile.set_sequences(row.sequences);
    profile.set_sequences_given(row.sequences_given);
    if (!row.standard_error && profile.no_error().empty()) {
      profile.set_no_error(utf8(row.no_error));
    }
    if (profile.entries_size() == 0) {
      profile.mutable_subsample_tokens()->Add(row.subsample_tokens.begin(),
                                              row.subsample_tokens.end());
    }
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
  to.set_primary(row.primary);
  if (row.paired.t.has_value()) to.set_t(*row.paired.t);
  if (row.paired.p_t.has_value()) to.set_p_t(*row.paired.p_t);
  if (row.p_t_holm.has_value()) to.set_p_t_holm(*row.p_t_holm);
  to.set_negative(row.paired.negative);
  to.set_positive(row.paired.positive);
  if (row.paired.sign_test.has_value()) to.set_p_sign(row.paired.sign_test->p);
  if (const auto& test = row.paired.wilcoxon) {
    to.set_p_wilcoxon(test->p);
    to.set_wilcoxon_exact(test->exact);
  }
  if (row.p_westfall_young.has_value()) to.set_p_westfall_young(*row.p_westfall_young);
  if (row.evaluation_se.has_value()) to.set_evaluation_se(*row.evaluation_se);
  to.set_evaluation_se_seeds(row.evaluation_se_seeds);
  if (row.difference_evaluation_se_max.has_value()) {
    to.set_difference_evaluation_se_max(*row.difference_evaluation_se_max);
  }
  to.set_verdict(std::string(analysis::verdict_name(row.verdict.code)));
  to.set_verdict_text(utf8(row.verdict.text));
  if (row.verdict.detectable.has_value()) to.set_detectable(*row.verdict.detectable);
  if (row.verdict.seeds_needed.has_value()) to.set_seeds_needed(*row.verdict.seeds_needed);
  to.set_seeds_beyond(row.verdict.seeds_beyond);
  if (row.tokens_per_s.has_value()) to.set_tokens_per_s(*row.tokens_per_s);
}

void fill(v1::Comparison& to, const analysis::RowDetail& detail) {
  if (detail.bca.has_value()) {
    to.set_bca_low(detail.bca->low);
    to.set_bca_high(detail.bca->high);
  }
  to.set_bca_note(detail.bca_note);
  if (!detail.ratio.has_value()) return;
  to.set_ratio_refused(detail.ratio->refused);
  to.set_ratio_seeds(static_cast<std::uint32_t>(detail.ratio->n));
  if (!detail.ratio->value.has_value()) return;
  to.set_ratio(*detail.ratio->value);
  to.set_ratio_low(*detail.ratio->low);
  to.set_ratio_high(*detail.ratio->high);
}

v1::ScalingEstimate to_proto(const analysis::LawEstimate& estimate) {
  v1::ScalingEstimate out;
  out.set_value(estimate.value);
  if (estimate.low.has_value()) out.set_low(*estimate.low);
  if (estimate.high.has_value()) out.set_high(*estimate.high);
  return out;
}

v1::ScalingCurve to_proto(const analysis::ScalingCurve& curve) {
  v1::ScalingCurve out;
  *out.mutable_irreducible() = to_proto(curve.irreducible);
  *out.mutable_coefficient() = to_proto(curve.coefficient);
  *out.mutable_exponent() = to_proto(curve.exponent);
  out.set_unit(curve.unit);
  out.set_rms_residual(curve.rms_residual);
  for (const analysis::BandPoint& point : curve.band) {
    v1::ScalingBandPoint& to = *out.add_band();
    to.set_x(point.x);
    *to.mutable_loss() = to_proto(point.loss);
  }
  out.set_note(utf8(curve.note));
  return out;
}

v1::ScalingSize to_proto(const analysis::ScalingSizeRow& row) {
  v1::ScalingSize out;
  out.set_size(utf8(row.size));
  out.set_candidate(utf8(row.candidate));
  out.set_parameters_body(row.parameters_body);
  out.set_flops(row.flops);
  if (row.mean.has_value()) out.set_mean(*row.mean);
  if (row.sd.has_value()) out.set_sd(*row.sd);
  out.set_finished(row.finished);
  out.set_failed(row.failed);
  out.set_stopped(row.stopped);
  out.set_lost(row.lost);
  if (row.centre.has_value()) out.set_centre(*row.centre);
  if (row.residual.has_value()) out.set_residual(*row.residual);
  out.set_pairs(static_cast<std::uint32_t>(row.paired.n));
  if (row.paired.n > 0) out.set_difference(row.paired.mean);
  if (row.paired.ci_low.has_value()) out.set_ci_low(*row.paired.ci_low);
  if (row.paired.ci_high.has_value()) out.set_ci_high(*row.paired.ci_high);
  if (row.paired.sign_flip.has_value()) out.set_p_sign_flip(row.paired.sign_flip->p);
  if (row.paired.p_t.has_value()) out.set_p_t(*row.paired.p_t);
  return out;
}

v1::ScalingFamily to_proto(const analysis::ScalingFamily& family) {
  v1::ScalingFamily out;
  out.set_name(utf8(family.name));
  out.set_incomplete(family.incomplete);
  out.mutable_seeds()->Add(family.seeds.begin(), family.seeds.end());
  out.set_seeds_left_out(family.seeds_left_out);
  for (const auto& row : family.sizes) *out.add_sizes() = to_proto(row);
  if (family.in_parameters) *out.mutable_in_parameters() = to_proto(*family.in_parameters);
  if (family.in_compute) *out.mutable_in_compute() = to_proto(*family.in_compute);
  out.set_gain_seeds(family.gain_seeds);
  for (const analysis::ScalingGain& gain : family.gains) {
    v1::ScalingGain& to = *out.add_gains();
    to.set_at(utf8(gain.at));
    to.set_flops(gain.flops);
    if (gain.gain) *to.mutable_gain() = to_proto(*gain.gain);
    to.set_extrapolated(gain.extrapolated);
    to.set_undefined_share(gain.undefined_share);
    to.set_note(utf8(gain.note));
  }
  out.set_verdict(std::string(analysis::scaling_verdict_name(family.verdict)));
  out.set_text(utf8(family.text));
  out.set_note(utf8(family.note));
  return out;
}

}  // namespace

v1::CompareScalingResponse to_proto(const analysis::ScalingTable& table) {
  v1::CompareScalingResponse out;
  out.set_baseline(utf8(table.baseline));
  out.set_objective(utf8(table.objective));
  out.set_seeds(table.seeds);
  out.set_resamples(table.resamples);
  for (const auto& family : table.families) *out.add_families() = to_proto(family);
  for (const std::string& note : table.notes) out.add_notes(utf8(note));
  out.set_as_of(table.as_of);
  return out;
}

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
  out.set_primary(utf8(table.primary));
  out.set_smallest_effect(table.smallest_effect);
  out.set_family_tests(table.family_tests);
  out.set_holm_smallest_p(table.holm_smallest_p);
  out.set_westfall_young_smallest_p(table.westfall_young_smallest_p);
  out.set_westfall_young_draws(table.westfall_young_draws);
  out.set_ratio_to(utf8(page.ratio_to));
  for (std::size_t i = 0; i < page.rows.size(); ++i) {
    const analysis::ComparisonRow* row = page.rows[i];
    v1::Comparison& to = *out.add_rows();
    fill(to, page.details[i]);
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
