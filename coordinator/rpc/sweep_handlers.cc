// Sweeps: submitted, listed, shown, controlled, compared.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/paging.h"
#include "protocol/limits.h"
#include "sweep/spec.h"

namespace tailor::rpc {
namespace {

Status check_submission(const v1::SubmitSweepRequest& request) {
  if (!request.base_dir().empty() && !request.base_dir().starts_with('/')) {
    return {Code::kInvalidArgument,
            "base_dir must be an absolute path, not \"" + request.base_dir() + "\""};
  }
  if (request.user().size() > protocol::kNameBytesMax) {
    return {Code::kInvalidArgument, fmt::format("the user's name has {} bytes, more than {}",
                                                request.user().size(), protocol::kNameBytesMax)};
  }
  if (request.toml().size() > kTomlBytesMax) {
    return {Code::kInvalidArgument,
            fmt::format("the sweep file has {} bytes, more than {}: describe the candidates by a "
                        "[space] instead of one by one",
                        request.toml().size(), kTomlBytesMax)};
  }
  return Status::ok();
}

v1::SubmitSweepResponse submitted(const core::ReplyBody& body) {
  v1::SubmitSweepResponse out;
  if (const auto* done = std::get_if<core::SubmitOutcome>(&body)) {
    out.set_sweep(done->sweep.value);
    out.set_created(done->created);
    out.set_candidates(done->candidates);
    out.set_trials(done->trials);
    out.set_trials_exact(done->exact);
  }
  return out;
}

Result<core::ControlSweep> control_event(const v1::ControlSweepRequest& request, SweepId sweep) {
  core::ControlSweep event;
  event.sweep = sweep;
  switch (request.action_case()) {
    case v1::ControlSweepRequest::kPause:
      event.action = core::SweepAction::kPause;
      return event;
    case v1::ControlSweepRequest::kResume:
      event.action = core::SweepAction::kResume;
      return event;
    case v1::ControlSweepRequest::kCancel:
      event.action = core::SweepAction::kCancel;
      return event;
    case v1::ControlSweepRequest::kPriority:
      event.action = core::SweepAction::kSetPriority;
      event.priority = request.priority();
      return event;
    case v1::ControlSweepRequest::ACTION_NOT_SET:
      break;
  }
  return error(Code::kInvalidArgument, "no action; allowed: pause, resume, cancel, priority");
}

}  // namespace

grpc::ServerUnaryReactor* CoordinatorServiceImpl::SubmitSweep(Context*,
                                                              const v1::SubmitSweepRequest* request,
                                                              v1::SubmitSweepResponse* response) {
  return begin(
      reads_, "SubmitSweep", response, options_.on_call,
      [this, request = *request](const std::shared_ptr<Call<v1::SubmitSweepResponse>>& call) {
        if (const Status bad = check_submission(request); !bad.is_ok()) return call->finish(bad);
        const std::string file = request.file_name().empty() ? "sweep.toml" : request.file_name();
        auto spec = sweep::parse(request.toml(), file, request.base_dir());
        if (!spec.has_value()) return call->finish(spec.error());
        core::SubmitSweep event;
        event.spec = std::make_shared<const sweep::Spec>(std::move(*spec));
        event.toml = request.toml();
        event.base_dir = request.base_dir();
        event.user = protocol::cut(request.user(), protocol::kNameBytesMax);
        event.hash = sweep::spec_hash(event.toml, event.base_dir);
        views_.engine().request(std::move(event),
                                [call](const Status& status, const core::ReplyBody& body) {
                                  if (!status.is_ok()) return call->finish(status);
                                  v1::SubmitSweepResponse out = submitted(body);
                                  call->finish(Status::ok(), &out);
                                });
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ListSweeps(Context*,
                                                             const v1::ListSweepsRequest* request,
                                                             v1::ListSweepsResponse* response) {
  return answer(
      reads_, "ListSweeps", response, options_.on_call,
      [this, request = *request]() -> Result<v1::ListSweepsResponse> {
        TAILOR_ASSIGN_OR_RETURN(
            const auto page,
            views_.sweep_page(request.offset(), page_limit(request.limit(), kPageMax)));
        v1::ListSweepsResponse out;
        PageBudget budget;
        for (const auto& view : page.sweeps) {  // from the newest back, as far as there is room
          v1::Sweep sweep = to_proto(view);
          if (!budget.take(sweep)) break;
          out.add_sweeps()->Swap(&sweep);
        }
        std::reverse(out.mutable_sweeps()->pointer_begin(), out.mutable_sweeps()->pointer_end());
        const auto given = static_cast<std::uint64_t>(out.sweeps_size());
        out.set_total(page.total);
        out.set_more(engine::is_more(request.offset(), given, page.total));
        return out;
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetSweep(Context*,
                                                           const v1::GetSweepRequest* request,
                                                           v1::GetSweepResponse* response) {
  return answer(
      reads_, "GetSweep", response, options_.on_call,
      [this, request = *request]() -> Result<v1::GetSweepResponse> {
        TAILOR_ASSIGN_OR_RETURN(const SweepId id, find(request.sweep()));
        TAILOR_ASSIGN_OR_RETURN(const auto view, views_.sweep(id));
        v1::GetSweepResponse out;
        *out.mutable_sweep() = to_proto(view);
        if (request.without_candidates()) return out;
        TAILOR_ASSIGN_OR_RETURN(
            const auto page, views_.store().candidate_page(id, request.offset(),
                                                           page_limit(request.limit(), kPageMax)));
        PageBudget budget;
        for (const auto& row : page.candidates) {
          v1::Candidate candidate = to_proto(row);
          if (!budget.take(candidate)) break;
          out.add_candidates()->Swap(&candidate);
        }
        out.set_candidates_total(page.total);
        out.set_more(engine::is_more(
            request.offset(), static_cast<std::uint64_t>(out.candidates_size()), page.total));
        if (request.offset() > 0) return out;
        TAILOR_ASSIGN_OR_RETURN(const auto row, views_.store().sweep(id));
        out.set_toml(row.toml.substr(0, kTomlBytesMax));
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
        auto event = control_event(request, *id);
        if (!event.has_value()) return call->finish(event.error());
        const auto changed = [this, call, sweep = *id](const Status& status,
                                                       const core::ReplyBody&) {
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
        };
        views_.engine().request(*std::move(event), changed);
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Compare(Context*,
                                                          const v1::CompareRequest* request,
                                                          v1::CompareResponse* response) {
  return answer(
      comparisons_, "Compare", response, options_.on_call,
      [this, request = *request]() -> Result<v1::CompareResponse> {
        analysis::PageRequest page;
        TAILOR_ASSIGN_OR_RETURN(page.order, analysis::parse_row_order(request.order()));
        page.descending = request.descending();
        page.offset = request.offset();
        page.limit = request.limit();
        page.differences = !request.without_differences();
        TAILOR_ASSIGN_OR_RETURN(const SweepId id, find(request.sweep()));
        TAILOR_ASSIGN_OR_RETURN(const auto table,
                                views_.compare(id, request.baseline(), request.objective()));
        TAILOR_ASSIGN_OR_RETURN(page.ratio_to, analysis::find_ratio(*table, request.ratio_to()));
        return to_proto(*table, analysis::page_of(*table, page));
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::CompareScaling(
    Context*, const v1::CompareScalingRequest* request, v1::CompareScalingResponse* response) {
  return answer(comparisons_, "CompareScaling", response, options_.on_call,
                [this, request = *request]() -> Result<v1::CompareScalingResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const SweepId id, find(request.sweep()));
                  TAILOR_ASSIGN_OR_RETURN(const auto table, views_.scaling(id, request.baseline(),
                                                                           request.objective()));
                  return to_proto(*table);
                });
}

}  // namespace tailor::rpc
