// Workers.
#include <algorithm>
#include <utility>

#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/paging.h"
#include "protocol/limits.h"

namespace tailor::rpc {

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ListWorkers(Context*,
                                                              const v1::ListWorkersRequest* request,
                                                              v1::ListWorkersResponse* response) {
  return answer(reads_, "ListWorkers", response, options_.on_call,
                [this, request = *request]() -> Result<v1::ListWorkersResponse> {
                  const auto workers = views_.workers();
                  v1::ListWorkersResponse out;
                  PageBudget budget;
                  const std::uint64_t limit = page_limit(request.limit(), kWorkersPageMax);
                  std::uint64_t at = std::min<std::uint64_t>(request.offset(), workers.size());
                  for (const std::uint64_t first = at; at < workers.size() && at - first < limit;
                       ++at) {
                    v1::WorkerInfo worker = to_proto(workers[at]);
                    if (!budget.take(worker)) break;
                    out.add_workers()->Swap(&worker);
                  }
                  out.set_total(workers.size());
                  out.set_more(at < workers.size());
                  return out;
                });
}

namespace {

/// Posts `event` about the worker that the caller names by name or id.
template <typename Response, typename WorkerEvent>
void post(const engine::Views& views, const std::shared_ptr<Call<Response>>& call,
          const std::string& worker, WorkerEvent event) {
  const auto id = views.find_worker(worker);
  if (!id.has_value()) return call->finish(id.error());
  event.worker = *id;
  views.engine().request(std::move(event), [call](const Status& status, const core::ReplyBody&) {
    Response out;
    call->finish(status, &out);
  });
}

}  // namespace

grpc::ServerUnaryReactor* CoordinatorServiceImpl::DrainWorker(Context*,
                                                              const v1::DrainWorkerRequest* request,
                                                              v1::DrainWorkerResponse* response) {
  return begin(reads_, "DrainWorker", response, options_.on_call,
               [this, request = *request](const auto& call) {
                 core::DrainWorker event;
                 event.in_ms = request.in_ms();
                 post(views_, call, request.worker(), std::move(event));
               });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::QuarantineWorker(
    Context*, const v1::QuarantineWorkerRequest* request, v1::QuarantineWorkerResponse* response) {
  return begin(reads_, "QuarantineWorker", response, options_.on_call,
               [this, request = *request](const auto& call) {
                 core::QuarantineWorker event;
                 event.reason = protocol::cut(request.reason(), protocol::kMessageBytesMax);
                 post(views_, call, request.worker(), std::move(event));
               });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ReleaseWorker(
    Context*, const v1::ReleaseWorkerRequest* request, v1::ReleaseWorkerResponse* response) {
  return begin(reads_, "ReleaseWorker", response, options_.on_call,
               [this, request = *request](const auto& call) {
                 post(views_, call, request.worker(), core::ReleaseWorker{});
               });
}

}  // namespace tailor::rpc
