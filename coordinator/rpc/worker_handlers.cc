// Workers.
#include <algorithm>
#include <utility>

#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/paging.h"

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

grpc::ServerUnaryReactor* CoordinatorServiceImpl::DrainWorker(Context*,
                                                              const v1::DrainWorkerRequest* request,
                                                              v1::DrainWorkerResponse* response) {
  return begin(
      reads_, "DrainWorker", response, options_.on_call,
      [this, name = request->worker()](const std::shared_ptr<Call<v1::DrainWorkerResponse>>& call) {
        const auto id = views_.find_worker(name);
        if (!id.has_value()) return call->finish(id.error());
        core::DrainWorker event;
        event.worker = *id;
        views_.engine().request(std::move(event),
                                [call](const Status& status, const core::ReplyBody&) {
                                  v1::DrainWorkerResponse out;
                                  call->finish(status, &out);
                                });
      });
}

}  // namespace tailor::rpc
