// Trials: listed, shown, explained, controlled; their curves and logs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"

namespace tailor::rpc {
namespace {

constexpr std::uint64_t kPageDefault = 100;
constexpr std::uint64_t kPageMax = 10'000;
constexpr std::uint64_t kLogBytesMax = 1u << 20;

}  // namespace

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ListTrials(Context*,
                                                             const v1::ListTrialsRequest* request,
                                                             v1::ListTrialsResponse* response) {
  return answer(
      reads_, "ListTrials", response, options_.on_call,
      [this, request = *request]() -> Result<v1::ListTrialsResponse> {
        storage::TrialQuery query;
        if (request.has_sweep() && request.sweep().by_case() != v1::SweepRef::BY_NOT_SET) {
          TAILOR_ASSIGN_OR_RETURN(query.sweep, find(request.sweep()));
        }
        TAILOR_ASSIGN_OR_RETURN(query.state, from_proto(request.state()));
        if (!request.order().empty()) query.order = request.order();
        if (query.order != "id" && query.order != "objective" && query.order != "state" &&
            query.order != "candidate") {
          return error(Code::kInvalidArgument,
                       fmt::format("cannot order trials by \"{}\"; allowed: id, objective, state, "
                                   "candidate",
                                   query.order));
        }
        query.descending = request.descending();
        query.offset = request.offset();
        query.limit = request.limit() == 0 ? kPageDefault : std::min(request.limit(), kPageMax);
        TAILOR_ASSIGN_OR_RETURN(const auto page, views_.trials(query));
        v1::ListTrialsResponse out;
        for (const auto& view : page.trials) *out.add_trials() = to_proto(view);
        out.set_total(page.total);
        return out;
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetTrial(Context*,
                                                           const v1::GetTrialRequest* request,
                                                           v1::GetTrialResponse* response) {
  return answer(reads_, "GetTrial", response, options_.on_call,
                [this, id = TrialId{request->trial()}]() -> Result<v1::GetTrialResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const auto detail, views_.trial(id));
                  return to_proto(detail);
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetSeries(Context*,
                                                            const v1::GetSeriesRequest* request,
                                                            v1::GetSeriesResponse* response) {
  return answer(reads_, "GetSeries", response, options_.on_call,
                [this, request = *request]() -> Result<v1::GetSeriesResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const auto series,
                                          views_.series(TrialId{request.trial()}, request.metric(),
                                                        request.points_max()));
                  v1::GetSeriesResponse out;
                  *out.mutable_series() = to_proto(series);
                  return out;
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ControlTrials(
    Context*, const v1::ControlTrialsRequest* request, v1::ControlTrialsResponse* response) {
  return begin(
      reads_, "ControlTrials", response, options_.on_call,
      [this, request = *request](const std::shared_ptr<Call<v1::ControlTrialsResponse>>& call) {
        core::ControlTrials event;
        switch (request.action()) {
          case v1::ControlTrialsRequest::ACTION_CANCEL:
            event.action = core::TrialAction::kCancel;
            break;
          case v1::ControlTrialsRequest::ACTION_RETRY:
            event.action = core::TrialAction::kRetry;
            break;
          default:
            return call->finish(
                Status(Code::kInvalidArgument, "no action; allowed: cancel, retry"));
        }
        for (const std::uint64_t trial : request.trials()) event.trials.push_back(TrialId{trial});
        if (request.has_failed_of()) {
          const auto id = find(request.failed_of());
          if (!id.has_value()) return call->finish(id.error());
          event.failed_of = *id;
        }
        if (event.trials.empty() && !event.failed_of.valid()) {
          return call->finish(Status(Code::kInvalidArgument,
                                     "name trials, or a sweep whose failed trials are meant"));
        }
        event.dry_run = request.dry_run();
        views_.engine().request(std::move(event),
                                [call](const Status& status, const core::ReplyBody& body) {
                                  if (!status.is_ok()) return call->finish(status);
                                  v1::ControlTrialsResponse out;
                                  if (const auto* done = std::get_if<core::TrialsOutcome>(&body)) {
                                    for (const TrialId id : done->trials) out.add_trials(id.value);
                                    for (const auto& [sweep, hit] : done->targets) {
                                      auto& target = *out.add_targets();
                                      target.set_sweep(sweep.value);
                                      target.set_sweep_name(hit.sweep_name);
                                      target.set_trials(hit.trials);
                                      target.set_running(hit.running);
                                    }
                                  }
                                  call->finish(Status::ok(), &out);
                                });
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Explain(Context*,
                                                          const v1::ExplainRequest* request,
                                                          v1::ExplainResponse* response) {
  return answer(reads_, "Explain", response, options_.on_call,
                [this, id = TrialId{request->trial()}]() -> Result<v1::ExplainResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const std::string text, views_.explain(id));
                  v1::ExplainResponse out;
                  out.set_text(text);
                  return out;
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetLog(Context*, const v1::GetLogRequest* request,
                                                         v1::GetLogResponse* response) {
  return answer(
      reads_, "GetLog", response, options_.on_call,
      [this, request = *request]() -> Result<v1::GetLogResponse> {
        const std::uint64_t bytes =
            request.bytes_max() == 0 ? kLogBytesMax : std::min(request.bytes_max(), kLogBytesMax);
        TAILOR_ASSIGN_OR_RETURN(auto piece, views_.log(TrialId{request.trial()}, request.attempt(),
                                                       request.offset(), bytes));
        v1::GetLogResponse out;
        out.set_data(std::move(piece.bytes));
        out.set_next_offset(piece.next_offset);
        out.set_attempt(piece.attempt);
        out.set_ended(piece.ended);
        out.set_offset(piece.offset);
        out.set_trial_ended(piece.trial_ended);
        out.set_attempts(piece.attempts);
        out.set_worker(piece.worker_name);
        out.set_end_class(piece.end_class);
        return out;
      });
}

}  // namespace tailor::rpc
