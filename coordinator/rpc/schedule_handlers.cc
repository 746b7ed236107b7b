// Schedules: how widths came from measurements, as it is stored.
#include <utility>

#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/paging.h"

namespace tailor::rpc {
namespace {

v1::Schedule to_proto(const storage::ScheduleRow& row, const storage::CandidateRow& candidate) {
  v1::Schedule out;
  out.set_candidate(row.candidate);
  out.set_candidate_name(utf8(candidate.name));
  out.set_state(std::string(storage::schedule_state_name(row.state)));
  out.set_message(utf8(row.message));
  out.set_reference(row.reference.value);
  out.set_measured_trial(row.measured.trial.value);
  out.set_measured_attempt(row.measured.number);
  out.set_key(row.key);
  out.set_data_hash(utf8(row.data_hash));
  out.set_request_json(utf8(row.request_json));
  out.set_problem_json(row.problem_json);
  out.set_solution_json(row.solution_json);
  out.set_raw_widths_json(row.raw_widths_json);
  out.set_widths_json(row.widths_json);
  out.set_architecture_json(candidate.architecture_json);
  out.set_wall_ms(row.wall_ms);
  return out;
}

Result<v1::ListSchedulesResponse> schedules_page(const storage::Store& store, SweepId sweep,
                                                 std::uint64_t offset, std::uint64_t limit) {
  TAILOR_ASSIGN_OR_RETURN(const auto row, store.sweep(sweep));
  TAILOR_ASSIGN_OR_RETURN(const auto schedules, store.schedules(sweep));
  v1::ListSchedulesResponse out;
  out.set_sweep(sweep.value);
  out.set_sweep_name(utf8(row.name));
  out.set_total(schedules.size());
  PageBudget budget;
  for (std::uint64_t i = offset; i < schedules.size() && i - offset < limit; ++i) {
    TAILOR_ASSIGN_OR_RETURN(const auto candidate, store.candidate(sweep, schedules[i].candidate));
    v1::Schedule schedule = to_proto(schedules[i], candidate);
    if (!budget.take(schedule)) break;
    out.add_schedules()->Swap(&schedule);
  }
  return out;
}

}  // namespace

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ListSchedules(
    Context*, const v1::ListSchedulesRequest* request, v1::ListSchedulesResponse* response) {
  return answer(reads_, "ListSchedules", response, options_.on_call,
                [this, request = *request]() -> Result<v1::ListSchedulesResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const SweepId sweep, find(request.sweep()));
                  return schedules_page(views_.store(), sweep, request.offset(),
                                        page_limit(request.limit(), kPageMax));
                });
}

}  // namespace tailor::rpc
