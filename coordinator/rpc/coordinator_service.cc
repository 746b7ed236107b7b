#include "coordinator/rpc/coordinator_service.h"

#include <utility>

#include "coordinator/rpc/call.h"
#include "coordinator/rpc/watch_stream.h"

namespace tailor::rpc {
namespace {

constexpr std::size_t kReadThreads = 3;
constexpr std::size_t kQueryThreads = 4;
constexpr int kQueryNice = 10;
constexpr std::size_t kBackupsWaitingMax = 4;
constexpr std::size_t kQueueMax = 2'048;

}  // namespace

CoordinatorServiceImpl::CoordinatorServiceImpl(const engine::Views& views, Options options)
    : views_(views),
      options_(std::move(options)),
      reads_(kReadThreads, kQueueMax),
      comparisons_(1, kQueueMax),
      queries_(kQueryThreads, kQueriesWaitingMax, kQueryNice),
      backups_(1, kBackupsWaitingMax),
      unread_(options_.unread_bytes_max, options_.unread_ms_max, clock_),
      http_address_(options_.http_address) {}

CoordinatorServiceImpl::~CoordinatorServiceImpl() { stop(); }

void CoordinatorServiceImpl::set_http_address(std::string address) {
  const std::scoped_lock lock(mutex_);
  http_address_ = std::move(address);
}

void CoordinatorServiceImpl::close_streams() {
  std::vector<std::weak_ptr<WatchStream>> streams;
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    streams.swap(streams_);
  }
  for (const auto& weak : streams) {
    if (const auto stream = weak.lock()) {
      stream->end(Status(Code::kUnavailable, "the coordinator is shutting down"));
    }
  }
}

void CoordinatorServiceImpl::stop() {
  reads_.stop();
  comparisons_.stop();
  queries_.stop();
  backups_.stop();
}

Result<SweepId> CoordinatorServiceImpl::find(const v1::SweepRef& reference) const {
  if (reference.by_case() == v1::SweepRef::kId) {
    TAILOR_ASSIGN_OR_RETURN(const storage::SweepRow row,
                            views_.store().sweep(SweepId{reference.id()}));
    return row.id;
  }
  return views_.find_sweep(reference.name());
}

grpc::ServerWriteReactor<v1::Event>* CoordinatorServiceImpl::WatchEvents(
    Context* context, const v1::WatchEventsRequest* request) {
  auto stream = std::make_shared<WatchStream>(views_, reads_, request->after(), request->follow(),
                                              options_.on_call);
  auto* reactor = stream->start(context, unread_);
  bool closed = false;
  {
    const std::scoped_lock lock(mutex_);
    closed = closed_;
    std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
    if (!closed) streams_.push_back(stream);
  }
  if (closed) {
    stream->end(Status(Code::kUnavailable, "the coordinator is shutting down"));
    return reactor;
  }
  // Listening starts before the first read of the store, so no event falls between the two.
  if (request->follow()) {
    views_.engine().subscribe(std::weak_ptr<void>(stream), [weak = std::weak_ptr(stream)] {
      if (const auto alive = weak.lock()) alive->heard();
    });
  }
  stream->begin([this, sweep = request->sweep(),
                 has = request->has_sweep()]() -> Result<std::optional<SweepId>> {
    if (!has || sweep.by_case() == v1::SweepRef::BY_NOT_SET) return std::nullopt;
    TAILOR_ASSIGN_OR_RETURN(const SweepId id, find(sweep));
    return id;
  });
  return reactor;
}

}  // namespace tailor::rpc
