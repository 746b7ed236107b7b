// The coordinator itself: users' SQL, backups, what it is.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/paging.h"
#include "coordinator/rpc/pull_stream.h"

namespace tailor::rpc {
namespace {

/// A query that ran so long is stopped when others wait: a few without an end must not keep out
/// all.
constexpr std::int64_t kQueryFairMs = 3'000;
constexpr std::int64_t kQueryMsDefault = 10'000;
constexpr std::int64_t kQueryMsMax = 60'000;
constexpr std::uint64_t kQueryRowsMax = 1'000'000;
constexpr std::size_t kQueryRowBytesMax = 3 << 20;  // what a message of 4 MiB carries with columns

/// A user's query: run once, then given out in pages.
class UserQuery {
 public:
  /// The time is the caller's and begins now: what is spent on waiting is not there to run in.
  UserQuery(const storage::Store& store, const engine::WorkPool& pool,
            const v1::QueryRequest& request)
      : store_(store), pool_(pool), sql_(request.sql()), arrived_(SystemClock().now_ms()) {
    if (request.rows_max() != 0) {
      limits_.rows_max = std::min<std::uint64_t>(request.rows_max(), kQueryRowsMax);
    }
    time_ms_ = request.time_ms_max() == 0
                   ? kQueryMsDefault
                   : std::clamp<std::int64_t>(request.time_ms_max(), 1, kQueryMsMax);
  }

  /// `over`: the caller has left. Once, on a thread of the pool.
  Status run(const std::function<bool()>& over) {
    ran_ = true;
    const SystemClock clock;
    const MonotonicMs begun = clock.now_ms();
    limits_.time_ms_max = time_ms_ - (begun - arrived_);
    if (limits_.time_ms_max <= 0) {
      return {Code::kResourceExhausted,
              fmt::format("the query waited {} ms behind others and was not run; try again when "
                          "fewer run, or give it more time",
                          time_ms_)};
    }
    limits_.stop = [&]() -> Status {
      if (over()) return {Code::kCancelled, "the caller left"};
      const std::int64_t ran_ms = clock.now_ms() - begun;
      if (ran_ms < kQueryFairMs || pool_.waiting() == 0) return Status::ok();
      return {Code::kResourceExhausted,
              fmt::format("the query was stopped after {} ms because others wait; narrow it, or "
                          "try again when fewer run",
                          ran_ms)};
    };
    auto table = store_.query(sql_, limits_);
    if (!table.has_value()) return from_storage(table.error());
    table_ = std::move(*table);
    for (const std::vector<storage::Cell>& row : table_.rows) bytes_ += bytes_of(row);
    return Status::ok();
  }

  bool has_run() const { return ran_; }
  /// About as much memory as the rows take that were not given yet.
  std::size_t bytes() const { return bytes_; }
  /// Every row was given.
  bool done() const { return given_ == table_.rows.size(); }

  /// Errors: kInvalidArgument for a row that no message can carry.
  Result<v1::QueryResponse> next_page() {
    v1::QueryResponse out;
    PageBudget budget;
    if (given_ == 0) {
      for (const std::string& column : table_.columns) out.add_columns(utf8(column));
    }
    for (; given_ < table_.rows.size(); ++given_) {
      v1::QueryRow row = to_proto(table_.rows[given_]);
      if (row.ByteSizeLong() > kQueryRowBytesMax) {
        return error(Code::kInvalidArgument,
                     fmt::format("SQL: row {} alone has {} bytes, more than {}; take substr() of "
                                 "long values",
                                 given_ + 1, row.ByteSizeLong(), kQueryRowBytesMax));
      }
      if (!budget.take(row)) return out;
      out.add_rows()->Swap(&row);
      bytes_ -= bytes_of(table_.rows[given_]);
      table_.rows[given_] = {};
    }
    out.set_truncated(table_.truncated);
    return out;
  }

 private:
  static std::size_t bytes_of(const std::vector<storage::Cell>& row) {
    std::size_t bytes = sizeof row;
    for (const storage::Cell& cell : row) bytes += sizeof cell + cell.text.capacity();
    return bytes;
  }

  const storage::Store& store_;
  const engine::WorkPool& pool_;
  const std::string sql_;
  const MonotonicMs arrived_;
  std::int64_t time_ms_ = 0;
  storage::QueryLimits limits_;
  bool ran_ = false;
  storage::Table table_;
  std::size_t bytes_ = 0;
  std::size_t given_ = 0;
};

Status too_many_queries(std::size_t most) {
  return {Code::kResourceExhausted,
          fmt::format("{} queries are waiting already; try again later", most)};
}

}  // namespace

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Query(Context*, const v1::QueryRequest* request,
                                                        v1::QueryResponse* response) {
  auto [reactor, call] = Call<v1::QueryResponse>::make("Query", response, options_.on_call);
  auto query = std::make_shared<UserQuery>(views_.store(), queries_, *request);
  const bool posted = queries_.post([call = call, query] {
    if (call->over()) return;
    if (const Status ran = query->run([&] { return call->over(); }); !ran.is_ok()) {
      return call->finish(ran);
    }
    auto page = query->next_page();
    if (page.has_value() && !query->done()) page->set_truncated(true);
    call->finish(std::move(page));
  });
  if (!posted) call->finish(too_many_queries(kQueriesWaitingMax));
  return reactor;
}

grpc::ServerWriteReactor<v1::QueryResponse>* CoordinatorServiceImpl::QueryRows(
    Context* context, const v1::QueryRequest* request) {
  using Stream = PullStream<v1::QueryResponse>;
  auto query = std::make_shared<UserQuery>(views_.store(), queries_, *request);
  return Stream::start(context, queries_, unread_, "QueryRows", options_.on_call,
                       [query](Stream& stream) -> Result<std::optional<v1::QueryResponse>> {
                         if (!query->has_run()) {
                           TAILOR_RETURN_IF_ERROR(query->run([&] { return stream.over(); }));
                         } else if (query->done()) {
                           return std::optional<v1::QueryResponse>();
                         }
                         TAILOR_ASSIGN_OR_RETURN(auto page, query->next_page());
                         TAILOR_RETURN_IF_ERROR(stream.keep(query->bytes()));
                         return std::optional(std::move(page));
                       });
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
                  auto totals = views_.totals();
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
