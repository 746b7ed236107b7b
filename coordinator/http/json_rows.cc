#include "coordinator/http/json_rows.h"

#include <cmath>

#include "base/json.h"

namespace tailor::http {

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json number(const std::optional<double>& value) {
  return value.has_value() ? number(*value) : Json(nullptr);
}

Json parsed(const std::string& text) {
  auto value = parse_ordered_json(text);
  return value ? *std::move(value) : Json(text);
}

Json to_json(const engine::SweepView& view) {
  using storage::TrialState;
  Json trials = Json::object();
  std::uint64_t total = 0;
  for (const TrialState state :
       {TrialState::kQueued, TrialState::kRunning, TrialState::kCompleted, TrialState::kStopped,
        TrialState::kFailed, TrialState::kCancelled}) {
    const auto found = view.counts.find(state);
    const std::uint64_t count = found == view.counts.end() ? 0 : found->second;
    trials[std::string(storage::trial_state_name(state))] = count;
    total += count;
  }
  trials["total"] = total;
  return {{"id", view.row.id.value},
          {"name", view.row.name},
          {"state", storage::sweep_state_name(view.row.state)},
          {"priority", view.row.priority},
          {"user", view.row.user},
          {"created_ms", view.row.created_ms},
          {"ended_ms", view.row.ended_ms},
          {"description", view.description},
          {"baseline", view.baseline},
          {"scaling", view.scaling},
          {"objectives", view.objectives},
          {"candidates", view.candidates},
          {"infeasible", view.row.infeasible},
          {"infeasible_reasons", view.infeasible_reasons},
          {"search_points", view.search_points},
          {"search_tried", view.search_tried},
          {"trials_at_most", view.trials_at_most},
          {"message", view.message},
          {"unreadable", view.unreadable},
          {"seeds", view.seeds},
          {"trials", std::move(trials)}};
}

Json to_json(const storage::CandidateRow& row) {
  return {{"index", row.index},
          {"name", row.name},
          {"point", parsed(row.point_json)},
          {"parameters_body", row.parameters_body},
          {"parameters_total", row.parameters_total}};
}

Json to_json(const engine::TrialView& view) {
  Json values = Json::object();
  for (const auto& [name, value] : view.row.final_values) values[name] = number(value);
  return {{"id", view.row.id.value},
          {"sweep", view.row.sweep.value},
          {"candidate", view.row.candidate},
          {"candidate_name", view.candidate_name},
          {"seed", view.row.seed},
          {"state", storage::trial_state_name(view.row.state)},
          {"attempts", view.row.attempts},
          {"end_class", protocol::end_class_name(view.row.end_class)},
          {"message", view.row.message},
          {"objective", number(view.row.objective)},
          {"values", std::move(values)},
          {"parameters_body", view.parameters_body},
          {"priority", view.row.priority},
          {"created_ms", view.row.created_ms},
          {"started_ms", view.row.started_ms},
          {"ended_ms", view.row.ended_ms}};
}

Json to_json(const engine::AttemptView& view) {
  return {
      {"number", view.row.id.number},
      {"worker", view.row.worker.value},
      {"worker_name", view.worker_name},
      {"slots", view.row.slots},
      {"state", storage::attempt_state_name(view.row.state)},
      {"end_class", protocol::end_class_name(view.row.end_class)},
      {"message", view.row.message},
      {"assigned_ms", view.row.assigned_ms},
      {"ended_ms", view.row.ended_ms},
      {"resumed_step", view.resumed_step},
      {"reports", view.row.acked_sequence},
      {"log_bytes", view.row.log_bytes},
      {"started", view.row.started_json.empty() ? Json(nullptr) : parsed(view.row.started_json)}};
}

Json to_json(const storage::CheckpointRow& row) {
  return {{"attempt", row.attempt.number}, {"step", row.step},   {"path", row.path},
          {"sha256", row.sha256},          {"bytes", row.bytes}, {"wall_ms", row.wall_ms}};
}

namespace {

// As `tailor geometry work` prints them; null where there are none.
Json energies_json(const std::optional<protocol::MatchEnergies>& of) {
  if (!of) return nullptr;
  return {{"energy", number(of->energy)},
          {"identity", number(of->identity)},
          {"identity_ratio", of->energy > 0 ? number(of->identity / of->energy) : Json(nullptr)},
          {"lower_bounds",
           {{"norm", number(of->norm_bound)},
            {"second", number(of->second_bound)},
            {"third", number(of->third_bound)}}},
          {"certified", of->certified}};
}

}  // namespace

Json to_json(const storage::ProfileRow& row) {
  return {{"layer", row.layer},
          {"sub_block", row.sub_block},
          {"geometry", row.geometry},
          {"statistic", row.statistic},
          {"value", number(row.value)},
          {"standard_error", number(row.standard_error)},
          {"no_error", row.no_error},
          {"subsample_values", row.subsample_values},
          {"energies", energies_json(row.energies)},
          {"step", row.step},
          {"tokens", row.tokens},
          {"linear_tokens", row.linear_tokens},
          {"subsamples", row.subsamples},
          {"subsamples_asked", row.subsamples_asked},
          {"subsample_tokens", row.subsample_tokens},
          {"positions", row.positions},
          {"sequences", row.sequences},
          {"sequences_given", row.sequences_given},
          {"rho", number(row.rho)},
          {"seed", row.seed},
          {"dropped", row.dropped}};
}

Json to_json(const engine::WorkerView& view) {
  Json running = Json::array();
  for (const AttemptId& attempt : view.running) {
    running.push_back({{"trial", attempt.trial.value}, {"attempt", attempt.number}});
  }
  return {{"id", view.row.id.value},
          {"name", view.row.name},
          {"host", view.row.host},
          {"version", view.row.version},
          {"connected", view.connected},
          {"draining", view.row.draining},
          {"drain_at_ms", view.row.drain_at_ms},
          {"quarantine", view.row.quarantine},
          {"quarantined_ms", view.row.quarantined_ms},
          {"quarantine_cause", storage::quarantine_cause_name(view.row.quarantine_cause)},
          {"labels", view.row.labels},
          {"memory_bytes", view.row.memory_bytes},
          {"folder", view.row.folder},
          {"slots", view.slots},
          {"busy_slots", view.busy_slots},
          {"devices", view.devices},
          {"clock_skew_ms", view.clock_skew_ms ? Json(*view.clock_skew_ms) : Json(nullptr)},
          {"running", std::move(running)},
          {"first_seen_ms", view.row.first_seen_ms},
          {"last_seen_ms", view.row.last_seen_ms}};
}

Json to_json(const storage::EventRow& row) {
  return {{"id", row.id},
          {"wall_ms", row.wall_ms},
          {"kind", storage::event_kind_name(row.kind)},
          {"sweep", row.sweep.value},
          {"trial", row.trial.value},
          {"attempt", row.attempt},
          {"worker", row.worker.value},
          {"message", row.message}};
}

namespace {

Json comparison_row(const analysis::ComparisonRow& row, const analysis::RowDetail& detail,
                    bool differences) {
  const auto& test = row.paired.sign_flip;
  Json out = {
      {"candidate", row.candidate},
      {"name", row.name},
      {"parameters_body", row.parameters_body},
      {"status", analysis::row_status_name(row.status)},
      {"mean", number(row.mean)},
      {"finished", row.finished},
      {"failed", row.failed},
      {"stopped", row.stopped},
      {"lost", row.lost},
      {"missing", row.missing},
      {"other_data", row.other_data},
      {"other_version", row.other_version},
      {"pairs", row.paired.n},
      {"difference", row.paired.n > 0 ? number(row.paired.mean) : Json(nullptr)},
      {"sd", number(row.paired.sd)},
      {"ci_low", number(row.paired.ci_low)},
      {"ci_high", number(row.paired.ci_high)},
      {"negative", row.paired.negative},
      {"positive", row.paired.positive},
      {"p_sign_flip", test ? number(test->p) : Json(nullptr)},
      {"p_draws", test ? test->draws : 0},
      {"p_standard_error", test ? number(test->standard_error) : Json(nullptr)},
      {"smallest_p", test ? number(test->smallest_p) : Json(nullptr)},
      {"p_holm", number(row.p_holm)},
      {"tokens_per_s", number(row.tokens_per_s)},
      {"note", row.note},
      {"primary", row.primary},
      {"t", number(row.paired.t)},
      {"p_t", number(row.paired.p_t)},
      {"p_t_holm", number(row.p_t_holm)},
      {"p_sign", row.paired.sign_test ? number(row.paired.sign_test->p) : Json(nullptr)},
      {"p_wilcoxon", row.paired.wilcoxon ? number(row.paired.wilcoxon->p) : Json(nullptr)},
      {"wilcoxon_exact", !row.paired.wilcoxon || row.paired.wilcoxon->exact},
      {"p_westfall_young", number(row.p_westfall_young)},
      {"bca_low", detail.bca ? number(detail.bca->low) : Json(nullptr)},
      {"bca_high", detail.bca ? number(detail.bca->high) : Json(nullptr)},
      {"bca_note", detail.bca_note},
      {"evaluation_se", number(row.evaluation_se)},
      {"evaluation_se_seeds", row.evaluation_se_seeds},
      {"difference_evaluation_se_max", number(row.difference_evaluation_se_max)},
      {"verdict", analysis::verdict_name(row.verdict.code)},
      {"verdict_text", row.verdict.text},
      {"detectable", number(row.verdict.detectable)},
      {"seeds_needed", row.verdict.seeds_needed ? Json(*row.verdict.seeds_needed) : Json(nullptr)},
      {"seeds_beyond", row.verdict.seeds_beyond}};
  if (detail.ratio) {
    out["ratio"] = number(detail.ratio->value);
    out["ratio_low"] = number(detail.ratio->low);
    out["ratio_high"] = number(detail.ratio->high);
    out["ratio_seeds"] = detail.ratio->n;
    out["ratio_refused"] = detail.ratio->refused;
  }
  if (differences) {
    out["seeds"] = row.seeds;
    out["differences"] = row.differences;
  }
  return out;
}

Json estimate_json(const analysis::LawEstimate& estimate) {
  return {{"value", number(estimate.value)},
          {"low", number(estimate.low)},
          {"high", number(estimate.high)}};
}

Json curve_json(const std::optional<analysis::ScalingCurve>& curve) {
  if (!curve) return nullptr;
  Json band = Json::array();
  for (const analysis::BandPoint& point : curve->band) {
    band.push_back({number(point.x), number(point.loss.value), number(point.loss.low),
                    number(point.loss.high)});
  }
  return {{"irreducible", estimate_json(curve->irreducible)},
          {"coefficient", estimate_json(curve->coefficient)},
          {"exponent", estimate_json(curve->exponent)},
          {"unit", number(curve->unit)},
          {"rms_residual", number(curve->rms_residual)},
          {"band", std::move(band)},
          {"note", curve->note}};
}

Json size_json(const analysis::ScalingSizeRow& row) {
  return {{"size", row.size},
          {"candidate", row.candidate},
          {"parameters_body", row.parameters_body},
          {"flops", number(row.flops)},
          {"mean", number(row.mean)},
          {"sd", number(row.sd)},
          {"finished", row.finished},
          {"failed", row.failed},
          {"stopped", row.stopped},
          {"lost", row.lost},
          {"centre", number(row.centre)},
          {"residual", number(row.residual)},
          {"pairs", row.paired.n},
          {"difference", row.paired.n > 0 ? number(row.paired.mean) : Json(nullptr)},
          {"ci_low", number(row.paired.ci_low)},
          {"ci_high", number(row.paired.ci_high)},
          {"p_sign_flip", row.paired.sign_flip ? number(row.paired.sign_flip->p) : Json(nullptr)},
          {"p_t", number(row.paired.p_t)}};
}

Json family_json(const analysis::ScalingFamily& family) {
  Json sizes = Json::array(), gains = Json::array();
  for (const auto& row : family.sizes) sizes.push_back(size_json(row));
  for (const analysis::ScalingGain& gain : family.gains) {
    gains.push_back({{"at", gain.at},
                     {"flops", number(gain.flops)},
                     {"gain", gain.gain ? estimate_json(*gain.gain) : Json(nullptr)},
                     {"extrapolated", gain.extrapolated},
                     {"undefined_share", number(gain.undefined_share)},
                     {"note", gain.note}});
  }
  return {{"name", family.name},
          {"incomplete", family.incomplete},
          {"seeds", family.seeds},
          {"seeds_left_out", family.seeds_left_out},
          {"sizes", std::move(sizes)},
          {"in_parameters", curve_json(family.in_parameters)},
          {"in_compute", curve_json(family.in_compute)},
          {"gain_seeds", family.gain_seeds},
          {"gains", std::move(gains)},
          {"verdict", analysis::scaling_verdict_name(family.verdict)},
          {"text", family.text},
          {"note", family.note}};
}

}  // namespace

Json to_json(const analysis::ScalingTable& table) {
  Json families = Json::array();
  for (const auto& family : table.families) families.push_back(family_json(family));
  return {{"baseline", table.baseline},   {"objective", table.objective},    {"seeds", table.seeds},
          {"resamples", table.resamples}, {"families", std::move(families)}, {"notes", table.notes},
          {"as_of", table.as_of}};
}

Json to_json(const analysis::ComparisonTable& table, const analysis::ComparisonPage& page) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < page.rows.size(); ++i) {
    rows.push_back(comparison_row(*page.rows[i], page.details[i], page.differences));
  }
  return {{"baseline", table.baseline},
          {"objective", table.objective},
          {"seeds", table.seeds},
          {"smallest_p", number(table.smallest_p)},
          {"best", table.best ? Json(*table.best) : Json(nullptr)},
          {"notes", table.notes},
          {"total", page.total},
          {"next_offset", page.next_offset},
          {"as_of", table.as_of},
          {"primary", table.primary},
          {"smallest_effect", number(table.smallest_effect)},
          {"family_tests", table.family_tests},
          {"holm_smallest_p", number(table.holm_smallest_p)},
          {"westfall_young_smallest_p", number(table.westfall_young_smallest_p)},
          {"westfall_young_draws", table.westfall_young_draws},
          {"ratio_to", page.ratio_to},
          {"rows", std::move(rows)}};
}

}  // namespace tailor::http
