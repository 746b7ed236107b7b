// What runs a trial again, put together from its stored rows: the recipe of the sweep file, the
// architecture of the candidate's row, the seed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/core/json.h"
#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/paging.h"
#include "model/shape/architecture.h"
#include "protocol/convert.h"
#include "sweep/candidate.h"
#include "sweep/spec.h"

namespace tailor::rpc {
namespace {

/// The candidate as it was stored: its architecture is the row's, whatever today's rules would make
/// of its point.
Result<sweep::Candidate> stored_candidate(const sweep::Spec& spec,
                                          const storage::CandidateRow& row) {
  TAILOR_ASSIGN_OR_RETURN(sweep::Point point, core::point_from_json(row.point_json));
  TAILOR_ASSIGN_OR_RETURN(auto architecture, shape::architecture_from_json(row.architecture_json));
  return sweep::restore(spec, row.name, std::move(point), std::move(architecture), row.hash);
}

Result<std::string> spec_json(const storage::SweepRow& sweep, const storage::CandidateRow& row,
                              std::uint64_t seed, bool measured) {
  TAILOR_ASSIGN_OR_RETURN(
      const sweep::Spec spec,
      sweep::parse(sweep.toml, sweep.name, sweep.base_dir, sweep::Origin::kStored));
  TAILOR_ASSIGN_OR_RETURN(const sweep::Candidate candidate, stored_candidate(spec, row));
  if (candidate.waiting) {
    return error(Code::kFailedPrecondition,
                 fmt::format("the widths of '{}' are not cut yet (`tailor schedule show {}`)",
                             row.name, sweep.name));
  }
  protocol::TrialSpec trial = sweep::make_trial_spec(spec, candidate, seed, measured);
  if (spec.resources.gpus > 0) trial.device = "cuda:0";
  return protocol::to_json(trial);
}

Result<v1::GetTrialSpecResponse> trial_spec(const engine::Views& views, TrialId id,
                                            std::uint32_t number) {
  TAILOR_ASSIGN_OR_RETURN(const auto detail, views.trial(id));
  TAILOR_ASSIGN_OR_RETURN(const auto sweep, views.store().sweep(detail.trial.row.sweep));
  TAILOR_ASSIGN_OR_RETURN(const auto schedules, views.store().schedules(sweep.id));
  const bool measured = std::any_of(schedules.begin(), schedules.end(),
                                    [&](const auto& row) { return row.reference == id; });
  auto spec = spec_json(sweep, detail.candidate, detail.trial.row.seed, measured);
  if (!spec.has_value() && spec.error().message().find("not cut yet") != std::string::npos) {
    return error(spec.error());
  }
  if (!spec.has_value()) {
    return error(Code::kFailedPrecondition,
                 fmt::format("this version cannot read the sweep file of {} any more: {}. Use the "
                             "version that ran it ({}: `tailor show {}`)",
                             sweep.name, spec.error().message(), id.to_string(), id.to_string()));
  }
  v1::GetTrialSpecResponse out;
  out.set_spec_json(*std::move(spec));
  out.set_sweep_toml(sweep.toml.substr(0, kTomlBytesMax));
  out.set_sweep_name(utf8(sweep.name));
  out.set_base_dir(utf8(sweep.base_dir));
  *out.mutable_candidate() = to_proto(detail.candidate);
  *out.mutable_trial() = to_proto(detail.trial);
  const auto chosen = std::find_if(
      detail.attempts.rbegin(), detail.attempts.rend(),
      [&](const engine::AttemptView& view) { return number == 0 || view.row.id.number == number; });
  if (chosen == detail.attempts.rend()) {
    if (number == 0) return out;
    return error(Code::kNotFound, fmt::format("trial {} has no attempt {}; it made {}",
                                              id.to_string(), number, detail.attempts.size()));
  }
  *out.mutable_attempt() = to_proto(*chosen);
  out.set_started_json(utf8(chosen->row.started_json));
  TAILOR_ASSIGN_OR_RETURN(const auto workers, views.store().workers());
  for (const auto& worker : workers) {
    if (worker.id == chosen->row.worker) out.set_worker_host(utf8(worker.host));
  }
  return out;
}

}  // namespace

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetTrialSpec(
    Context*, const v1::GetTrialSpecRequest* request, v1::GetTrialSpecResponse* response) {
  return answer(reads_, "GetTrialSpec", response, options_.on_call,
                [this, id = TrialId{request->trial()}, attempt = request->attempt()]() {
                  return trial_spec(views_, id, attempt);
                });
}

}  // namespace tailor::rpc
