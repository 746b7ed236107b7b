// CoordinatorService by the callback API (private to coordinator/rpc). The handlers are in
// *_handlers.cc, by noun.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/engine/views.h"
#include "coordinator/engine/work_pool.h"
#include "coordinator/rpc/server.h"
#include "coordinator/rpc/unread_budget.h"
#include "tailor/v1/coordinator.grpc.pb.h"

namespace tailor::rpc {

class WatchStream;

/// Threads: gRPC's. `views` must outlive it.
class CoordinatorServiceImpl final : public v1::CoordinatorService::CallbackService {
 public:
  CoordinatorServiceImpl(const engine::Views& views, Options options);
  ~CoordinatorServiceImpl() override;

  void set_http_address(std::string address);
  /// Ends every WatchEvents stream with kUnavailable, and new ones at once.
  void close_streams();
  /// Runs out the pools. After the server has shut down.
  void stop();

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* SubmitSweep(Context*, const v1::SubmitSweepRequest*, v1::SubmitSweepResponse*) override;
  Reactor* ListSweeps(Context*, const v1::ListSweepsRequest*, v1::ListSweepsResponse*) override;
  Reactor* GetSweep(Context*, const v1::GetSweepRequest*, v1::GetSweepResponse*) override;
  Reactor* ListTrials(Context*, const v1::ListTrialsRequest*, v1::ListTrialsResponse*) override;
  Reactor* GetTrial(Context*, const v1::GetTrialRequest*, v1::GetTrialResponse*) override;
  Reactor* ListSchedules(Context*, const v1::ListSchedulesRequest*,
                         v1::ListSchedulesResponse*) override;
  Reactor* GetTrialSpec(Context*, const v1::GetTrialSpecRequest*,
                        v1::GetTrialSpecResponse*) override;
  Reactor* GetSeries(Context*, const v1::GetSeriesRequest*, v1::GetSeriesResponse*) override;
  grpc::ServerWriteReactor<v1::ExportCurvesResponse>* ExportCurves(
      Context*, const v1::ExportCurvesRequest*) override;
  Reactor* ControlSweep(Context*, const v1::ControlSweepRequest*,
                        v1::ControlSweepResponse*) override;
  Reactor* ControlTrials(Context*, const v1::ControlTrialsRequest*,
                         v1::ControlTrialsResponse*) override;
  Reactor* Explain(Context*, const v1::ExplainRequest*, v1::ExplainResponse*) override;
  Reactor* GetLog(Context*, const v1::GetLogRequest*, v1::GetLogResponse*) override;
  grpc::ServerWriteReactor<v1::Event>* WatchEvents(Context*,
                                                   const v1::WatchEventsRequest*) override;
  Reactor* Compare(Context*, const v1::CompareRequest*, v1::CompareResponse*) override;
  Reactor* CompareScaling(Context*, const v1::CompareScalingRequest*,
                          v1::CompareScalingResponse*) override;
  Reactor* Query(Context*, const v1::QueryRequest*, v1::QueryResponse*) override;
  grpc::ServerWriteReactor<v1::QueryResponse>* QueryRows(Context*,
                                                         const v1::QueryRequest*) override;
  Reactor* ListWorkers(Context*, const v1::ListWorkersRequest*, v1::ListWorkersResponse*) override;
  Reactor* DrainWorker(Context*, const v1::DrainWorkerRequest*, v1::DrainWorkerResponse*) override;
  Reactor* QuarantineWorker(Context*, const v1::QuarantineWorkerRequest*,
                            v1::QuarantineWorkerResponse*) override;
  Reactor* ReleaseWorker(Context*, const v1::ReleaseWorkerRequest*,
                         v1::ReleaseWorkerResponse*) override;
  Reactor* Backup(Context*, const v1::BackupRequest*, v1::BackupResponse*) override;
  Reactor* GetInfo(Context*, const v1::GetInfoRequest*, v1::GetInfoResponse*) override;

 private:
  Result<SweepId> find(const v1::SweepRef& reference) const;

  static constexpr std::size_t kQueriesWaitingMax = 64;

  const engine::Views& views_;
  const Options options_;
  engine::WorkPool reads_;  // short store reads, parsing, engine queries
  // A table may take as long as its sweep is large: reads do not wait for it.
  engine::WorkPool comparisons_;
  engine::WorkPool queries_;  // users' SQL: seconds, and whatever users think of
  engine::WorkPool backups_;  // apart, so that no query keeps the database from being saved
  const SystemClock clock_;
  UnreadBudget unread_;
  std::mutex mutex_;  // guards: http_address_, streams_, closed_
  std::string http_address_;
  std::vector<std::weak_ptr<WatchStream>> streams_;
  bool closed_ = false;
};

}  // namespace tailor::rpc
