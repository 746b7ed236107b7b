// WatchEvents: one stream of events to one client (private to coordinator/rpc).
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/status.h"
#include "coordinator/engine/views.h"
#include "coordinator/engine/work_pool.h"
#include "coordinator/rpc/call.h"
#include "coordinator/rpc/unread_budget.h"
#include "tailor/v1/coordinator.pb.h"

namespace tailor::rpc {

/// Reads the store from its cursor whenever the engine says that there is more, so nothing is
/// missed and nothing comes twice, whatever the client's speed. Lives until gRPC and the pool have
/// let go of it. Threads: any. `views`, `pool`, `hook` and the budget must outlive it.
class WatchStream : public std::enable_shared_from_this<WatchStream> {
 public:
  /// Events with an id above `after`; without `follow` it ends with the last one there is.
  WatchStream(const engine::Views& views, engine::WorkPool& pool, std::uint64_t after, bool follow,
              const CallHook& hook)
      : views_(views), pool_(pool), after_(after), follow_(follow), hook_(hook) {}

  /// The reactor that gRPC owns until OnDone. Once.
  grpc::ServerWriteReactor<v1::Event>* start(grpc::CallbackServerContext* context,
                                             UnreadBudget& budget);
  /// Resolves the sweep (in the pool; nullopt = of all) and begins. Once, after `start`.
  void begin(std::function<Result<std::optional<SweepId>>()> resolve);
  /// The engine has committed more events.
  void heard();
  /// Ends the stream; the first end counts.
  void end(const Status& status);

 private:
  class Reactor;
  void written(bool ok);
  /// Starts whatever comes next. Only one of: a write, a fetch, the end. REQUIRES: mutex_ held.
  void pump();
  void fetch();
  /// Its client reads nothing while others need the room.
  void cut_off();

  const engine::Views& views_;
  engine::WorkPool& pool_;
  std::mutex
      mutex_;  // guards: all below (after_ and sweep_ are also read by the one fetch in flight)
  std::optional<SweepId> sweep_;
  std::uint64_t after_;
  const bool follow_;
  const CallHook& hook_;
  std::optional<UnreadBudget::Share> share_;  // constant once started
  std::size_t held_ = 0;                      // of the batch; of the one fetch or write in flight
  grpc::CallbackServerContext* context_ = nullptr;  // there as long as reactor_ is
  grpc::ServerWriteReactor<v1::Event>* reactor_ = nullptr;
  std::deque<v1::Event> buffer_;
  bool started_ = false;
  bool more_ = true;
  bool fetching_ = false;
  bool writing_ = false;
  std::optional<Status> ending_;
};

}  // namespace tailor::rpc
