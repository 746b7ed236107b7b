// The coordinator itself: users' SQL, backups, what it is.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"

namespace tailor::rpc {
namespace {

/// A query that ran so long is stopped when others wait: a few without an end must not keep out
/// all.
constexpr std::int64_t kQueryFairMs = 3'000;
constexpr std::int64_t kQueryMsDefault = 10'000;
constexpr std::int64_t kQueryMsMax = 60'000;

}  // namespace

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Query(Context*, const v1::QueryRequest* request,
                                                        v1::QueryResponse* response) {
  auto [reactor, call] = Call<v1::QueryResponse>::make("Query", response, options_.on_call);
  storage::QueryLimits limits;
  if (request->rows_max() != 0) {
    limits.rows_max = std::min<std::uint64_t>(request->rows_max(), 1'000'000);
  }
  const std::int64_t time_ms =
      request->time_ms_max() == 0
          ? kQueryMsDefault
          : std::clamp<std::int64_t>(request->time_ms_max(), 1, kQueryMsMax);
  // The time is the caller's: what is spent on waiting is not there to run in.
  const MonotonicMs arrived = SystemClock().now_ms();
  const bool posted = queries_.post([this, call = call, limits, time_ms, arrived,
                                     sql = request->sql()]() mutable {
    if (call->over()) return;
    const SystemClock clock;
    const MonotonicMs begun = clock.now_ms();
    limits.time_ms_max = time_ms - (begun - arrived);
    if (limits.time_ms_max <= 0) {
      return call->finish(
          Status(Code::kResourceExhausted,
                 fmt::format("the query waited {} ms behind others and was not run; try again "
                             "when fewer run, or give it more time",
                             time_ms)));
    }
    limits.stop = [&]() -> Status {
      if (call->over()) return {Code::kCancelled, "the caller left"};
      const std::int64_t ran = clock.now_ms() - begun;
      if (ran < kQueryFairMs || queries_.waiting() == 0) return Status::ok();
      return {
          Code::kResourceExhausted,
          fmt::format(
              "the query was stopped after {} ms because others wait; narrow it, or try again when "
              "fewer run",
              ran)};
    };
    auto table = views_.store().query(sql, limits);
    if (!table.has_value()) return call->finish(from_storage(table.error()));
    v1::QueryResponse out = to_proto(*table);
    call->finish(Status::ok(), &out);
  });
  if (!posted) {
    call->finish(
        Status(Code::kResourceExhausted,
               fmt::format("{} queries are waiting already; try again later", kQueriesWaitingMax)));
  }
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Backup(Context*, const v1::BackupRequest* request,
                                                         v1::BackupResponse* response) {
  return answer(
      backups_, "Backup", response, options_.on_call,
      [this, path = request->path()]() -> Result<v1::BackupResponse> {
        if (!path.starts_with('/')) {
          return error(
              Code::kInvalidArgument,
              fmt::format("\"{}\": the backup's path must be absolute: it is a file on the "
                          "coordinator's machine",
                          path));
        }
        std::error_code failed;
        if (std::filesystem::exists(path, failed)) {
          return error(
              Code::kAlreadyExists,
              path + " exists on the coordinator's machine; a backup never replaces a file");
        }
        if (const Status copied = views_.store().backup(path); !copied.is_ok()) {
          return error(from_storage(copied).with_context("on the coordinator's machine"));
        }
        v1::BackupResponse out;
        const auto bytes = std::filesystem::file_size(path, failed);
        if (!failed) out.set_bytes(bytes);
        return out;
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetInfo(Context*, const v1::GetInfoRequest*,
                                                          v1::GetInfoResponse* response) {
  return answer(reads_, "GetInfo", response, options_.on_call,
                [this]() -> Result<v1::GetInfoResponse> {
                  TAILOR_ASSIGN_OR_RETURN(auto totals, views_.totals());
                  v1::GetInfoResponse out;
                  out.set_version(options_.version);
                  out.set_database(options_.database);
                  {
                    const std::scoped_lock lock(mutex_);
                    out.set_http_address(http_address_);
                  }
                  out.set_trials_queued(totals.trials[storage::TrialState::kQueued]);
                  out.set_trials_running(totals.trials[storage::TrialState::kRunning]);
                  out.set_workers_connected(totals.workers_connected);
                  return out;
                });
}

}  // namespace tailor::rpc
