// Sweeps: submitted, listed, shown, controlled, compared.
#include <utility>

#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"
#include "sweep/spec.h"

namespace tailor::rpc {

grpc::ServerUnaryReactor* CoordinatorServiceImpl::SubmitSweep(Context*,
                                                              const v1::SubmitSweepRequest* request,
                                                              v1::SubmitSweepResponse* response) {
  return begin(
      reads_, "SubmitSweep", response, options_.on_call,
      [this, request = *request](const std::shared_ptr<Call<v1::SubmitSweepResponse>>& call) {
        if (!request.base_dir().empty() && !request.base_dir().starts_with('/')) {
          return call->finish(
              Status(Code::kInvalidArgument,
                     "base_dir must be an absolute path, not \"" + request.base_dir() + "\""));
        }
        const std::string file = request.file_name().empty() ? "sweep.toml" : request.file_name();
        auto spec = sweep::parse(request.toml(), file, request.base_dir());
        if (!spec.has_value()) return call->finish(spec.error());
        core::SubmitSweep event;
        event.spec = std::make_shared<const sweep::Spec>(std::move(*spec));
        event.toml = request.toml();
        event.base_dir = request.base_dir();
        event.hash = sweep::spec_hash(event.toml, event.base_dir);
        views_.engine().request(std::move(event),
                                [call](const Status& status, const core::ReplyBody& body) {
                                  if (!status.is_ok()) return call->finish(status);
                                  v1::SubmitSweepResponse out;
                                  if (const auto* done = std::get_if<core::SubmitOutcome>(&body)) {
                                    out.set_sweep(done->sweep.value);
                                    out.set_created(done->created);
                                    out.set_candidates(done->candidates);
                                    out.set_trials(done->trials);
                                    out.set_trials_exact(done->exact);
                                  }
                                  call->finish(Status::ok(), &out);
                                });
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ListSweeps(Context*, const v1::ListSweepsRequest*,
                                                             v1::ListSweepsResponse* response) {
  return answer(reads_, "ListSweeps", response, options_.on_call,
                [this]() -> Result<v1::ListSweepsResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const auto sweeps, views_.sweeps());
                  v1::ListSweepsResponse out;
                  for (const auto& view : sweeps) *out.add_sweeps() = to_proto(view);
                  return out;
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetSweep(Context*,
                                                           const v1::GetSweepRequest* request,
                                                           v1::GetSweepResponse* response) {
  return answer(reads_, "GetSweep", response, options_.on_call,
                [this, request = *request]() -> Result<v1::GetSweepResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const SweepId id, find(request.sweep()));
                  TAILOR_ASSIGN_OR_RETURN(const auto view, views_.sweep(id));
                  v1::GetSweepResponse out;
                  *out.mutable_sweep() = to_proto(view);
                  if (request.without_candidates()) return out;
                  TAILOR_ASSIGN_OR_RETURN(const auto candidates, views_.candidates(id));
                  TAILOR_ASSIGN_OR_RETURN(const auto row, views_.store().sweep(id));
                  for (const auto& c : candidates) *out.add_candidates() = to_proto(c);
                  out.set_toml(row.toml);
                  return out;
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ControlSweep(
    Context*, const v1::ControlSweepRequest* request, v1::ControlSweepResponse* response) {
  return begin(
      reads_, "ControlSweep", response, options_.on_call,
      [this, request = *request](const std::shared_ptr<Call<v1::ControlSweepResponse>>& call) {
        const auto id = find(request.sweep());
        if (!id.has_value()) return call->finish(id.error());
        core::ControlSweep event;
        event.sweep = *id;
        switch (request.action_case()) {
          case v1::ControlSweepRequest::kPause:
            event.action = core::SweepAction::kPause;
            break;
          case v1::ControlSweepRequest::kResume:
            event.action = core::SweepAction::kResume;
            break;
          case v1::ControlSweepRequest::kCancel:
            event.action = core::SweepAction::kCancel;
            break;
          case v1::ControlSweepRequest::kPriority:
            event.action = core::SweepAction::kSetPriority;
            event.priority = request.priority();
            break;
          case v1::ControlSweepRequest::ACTION_NOT_SET:
            return call->finish(Status(Code::kInvalidArgument,
                                       "no action; allowed: pause, resume, cancel, priority"));
        }
        views_.engine().request(
            std::move(event),
            [this, call, sweep = *id](const Status& status, const core::ReplyBody&) {
              // A call that is over may be answered after the server is gone: then touch nothing of it.
              if (!status.is_ok() || call->over()) return call->finish(status);
              const bool going_on = reads_.post([this, call, sweep] {
                const auto view = views_.sweep(sweep);
                if (!view.has_value()) return call->finish(view.error());
                v1::ControlSweepResponse out;
                *out.mutable_sweep() = to_proto(*view);
                call->finish(Status::ok(), &out);
              });
              if (!going_on) {  // done all the same; only the answer is bare
                v1::ControlSweepResponse out;
                out.mutable_sweep()->set_id(sweep.value);
                call->finish(Status::ok(), &out);
              }
            });
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Compare(Context*,
                                                          const v1::CompareRequest* request,
                                                          v1::CompareResponse* response) {
  return answer(comparisons_, "Compare", response, options_.on_call,
                [this, request = *request]() -> Result<v1::CompareResponse> {
                  analysis::PageRequest page;
                  TAILOR_ASSIGN_OR_RETURN(page.order, analysis::parse_row_order(request.order()));
                  page.descending = request.descending();
                  page.offset = request.offset();
                  page.limit = request.limit();
                  page.differences = !request.without_differences();
                  TAILOR_ASSIGN_OR_RETURN(const SweepId id, find(request.sweep()));
                  TAILOR_ASSIGN_OR_RETURN(const auto table, views_.compare(id, request.baseline(),
                                                                           request.objective()));
                  return to_proto(*table, analysis::page_of(*table, page));
                });
}

}  // namespace tailor::rpc
