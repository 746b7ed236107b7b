// The seam of unary calls (private to coordinator/rpc): from a call's arrival on one of gRPC's
// threads to its single Finish, by way of a pool.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "coordinator/engine/work_pool.h"
#include "coordinator/rpc/convert_rows.h"

namespace tailor::rpc {

using CallHook = std::function<void(std::string_view, Code)>;

/// One unary call from its arrival to its single Finish, whoever gets there first: the handler, the
/// client's deadline or a cancellation. Lives until both gRPC and the handler have let go of it.
template <typename Response>
class Call {
 public:
  Call(std::string_view method, Response* response, const CallHook& hook)
      : method_(method), response_(response), hook_(hook) {}

  void finish(const Status& status, Response* filled = nullptr) {
    {
      const std::scoped_lock lock(mutex_);
      if (reactor_ == nullptr) return;
      if (filled != nullptr) response_->Swap(filled);
      std::exchange(reactor_, nullptr)->Finish(to_grpc(status));
    }
    if (hook_) hook_(method_, status.code());
  }
  void finish(Result<Response> result) {
    if (result.has_value()) {
      finish(Status::ok(), &*result);
    } else {
      finish(result.error());
    }
  }
  bool over() const {
    const std::scoped_lock lock(mutex_);
    return reactor_ == nullptr;
  }

  /// The reactor that gRPC owns until OnDone; it keeps the call alive.
  static std::pair<grpc::ServerUnaryReactor*, std::shared_ptr<Call>> make(std::string_view method,
                                                                          Response* response,
                                                                          const CallHook& hook) {
    auto call = std::make_shared<Call>(method, response, hook);
    auto* reactor = new Reactor(call);  // deleted in OnDone, as the callback API wants it
    call->reactor_ = reactor;
    return {reactor, std::move(call)};
  }

 private:
  class Reactor final : public grpc::ServerUnaryReactor {
   public:
    explicit Reactor(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    void OnCancel() override {
      call_->finish(Status(Code::kCancelled, "the caller gave up or its deadline passed"));
    }
    void OnDone() override { delete this; }

   private:
    std::shared_ptr<Call> call_;
  };

  const std::string_view method_;
  mutable std::mutex mutex_;  // guards: reactor_, response_
  grpc::ServerUnaryReactor* reactor_ = nullptr;
  Response* response_;
  const CallHook& hook_;
};

/// Runs `work(call)` in `pool`; it finishes the call, or hands it on to who will.
template <typename Response, typename Work>
grpc::ServerUnaryReactor* begin(engine::WorkPool& pool, std::string_view method, Response* response,
                                const CallHook& hook, Work work) {
  auto [reactor, call] = Call<Response>::make(method, response, hook);
  const bool posted = pool.post([call = call, work = std::move(work)]() mutable {
    if (!call->over()) work(call);
  });
  if (!posted) {
    call->finish(Status(Code::kResourceExhausted, "too many calls are waiting; try again later"));
  }
  return reactor;
}

/// Runs `work() -> Result<Response>` in `pool` and finishes the call with it. `work` owns whatever
/// it needs of the request: gRPC frees that as soon as the call is finished, and the caller's
/// leaving finishes it while `work` still runs.
template <typename Response, typename Work>
grpc::ServerUnaryReactor* answer(engine::WorkPool& pool, std::string_view method,
                                 Response* response, const CallHook& hook, Work work) {
  return begin(pool, method, response, hook,
               [work = std::move(work)](const std::shared_ptr<Call<Response>>& call) mutable {
                 call->finish(work());
               });
}

/// A file that cannot be read or written is no coordinator that cannot be reached.
inline Status from_storage(const Status& status) {
  return status.code() == Code::kUnavailable ? Status(Code::kInternal, status.message()) : status;
}

}  // namespace tailor::rpc
