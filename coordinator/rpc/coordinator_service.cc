#include "coordinator/rpc/coordinator_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "coordinator/rpc/convert_rows.h"
#include "sweep/spec.h"

namespace tailor::rpc {
namespace {

constexpr std::size_t kReadThreads = 3;
constexpr std::size_t kQueryThreads = 4;
constexpr std::size_t kQueriesWaitingMax = 64;
constexpr int kQueryNice = 10;
/// A query that ran so long is stopped when others wait: a few without an end must not keep out
/// all.
constexpr std::int64_t kQueryFairMs = 3'000;
constexpr std::int64_t kQueryMsDefault = 10'000;
constexpr std::int64_t kQueryMsMax = 60'000;
constexpr std::size_t kBackupsWaitingMax = 4;
constexpr std::size_t kQueueMax = 2'048;
constexpr std::uint64_t kPageDefault = 100;
constexpr std::uint64_t kPageMax = 10'000;
constexpr std::uint64_t kLogBytesMax = 1u << 20;
constexpr std::size_t kWatchBatch = 256;

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

/// Runs `work() -> Result<Response>` in `pool` and finishes the call with it.
template <typename Response, typename Work>
grpc::ServerUnaryReactor* answer(engine::WorkPool& pool, std::string_view method,
                                 Response* response, const CallHook& hook, Work work) {
  auto [reactor, call] = Call<Response>::make(method, response, hook);
  const bool posted = pool.post([call, work = std::move(work)] {
    if (!call->over()) call->finish(work());
  });
  if (!posted) {
    call->finish(Status(Code::kResourceExhausted, "too many calls are waiting; try again later"));
  }
  return reactor;
}

/// A file that cannot be read or written is no coordinator that cannot be reached.
Status from_storage(const Status& status) {
  return status.code() == Code::kUnavailable ? Status(Code::kInternal, status.message()) : status;
}

std::string_view sweep_reference(const v1::SweepRef& reference, std::string& scratch) {
  if (reference.by_case() == v1::SweepRef::kId) {
    scratch = std::to_string(reference.id());
    return scratch;
  }
  return reference.name();
}

}  // namespace

// ---- WatchEvents

/// One WatchEvents stream. Reads the store from its cursor whenever the engine says that there is
/// more, so nothing is missed and nothing comes twice, whatever the client's speed.
class WatchStream : public std::enable_shared_from_this<WatchStream> {
 public:
  WatchStream(const engine::Views& views, engine::WorkPool& pool, std::uint64_t after, bool follow,
              const CallHook& hook)
      : views_(views), pool_(pool), after_(after), follow_(follow), hook_(hook) {}

  grpc::ServerWriteReactor<v1::Event>* start() {
    auto* reactor = new Reactor(shared_from_this());  // deleted in OnDone
    reactor_ = reactor;
    return reactor;
  }

  /// Resolves the sweep (in the pool) and begins.
  void begin(std::function<Result<std::optional<SweepId>>()> resolve) {
    const bool posted = pool_.post([self = shared_from_this(), resolve = std::move(resolve)] {
      auto sweep = resolve();
      if (!sweep.has_value()) return self->end(sweep.error());
      const std::scoped_lock lock(self->mutex_);
      self->sweep_ = *sweep;
      self->started_ = true;
      self->pump();
    });
    if (!posted) end(Status(Code::kResourceExhausted, "too many calls are waiting"));
  }

  void heard() {
    const std::scoped_lock lock(mutex_);
    more_ = true;
    pump();
  }

  void end(const Status& status) {
    const std::scoped_lock lock(mutex_);
    if (!ending_.has_value()) ending_ = status;
    pump();
  }

 private:
  class Reactor final : public grpc::ServerWriteReactor<v1::Event> {
   public:
    explicit Reactor(std::shared_ptr<WatchStream> stream) : stream_(std::move(stream)) {}
    void OnWriteDone(bool ok) override { stream_->written(ok); }
    void OnCancel() override { stream_->end(Status(Code::kCancelled, "the caller left")); }
    void OnDone() override { delete this; }

   private:
    std::shared_ptr<WatchStream> stream_;
  };

  void written(bool ok) {
    const std::scoped_lock lock(mutex_);
    writing_ = false;
    buffer_.pop_front();
    if (!ok && !ending_.has_value()) ending_ = Status(Code::kCancelled, "the caller left");
    pump();
  }

  /// Starts whatever comes next. Only one of: a write, a fetch, the end. REQUIRES: mutex_ held.
  void pump() {
    if (reactor_ == nullptr || writing_) return;
    if (ending_.has_value()) {
      std::exchange(reactor_, nullptr)->Finish(to_grpc(*ending_));
      if (hook_) hook_("WatchEvents", ending_->code());
      return;
    }
    if (!started_ || fetching_) return;
    if (!buffer_.empty()) {
      writing_ = true;
      reactor_->StartWrite(&buffer_.front());
      return;
    }
    if (more_) {
      more_ = false;
      fetching_ = pool_.post([self = shared_from_this()] { self->fetch(); });
      if (fetching_) return;
      ending_ = Status(Code::kResourceExhausted, "too many calls are waiting");
      return pump();
    }
    if (!follow_) {
      ending_ = Status::ok();
      pump();
    }
  }

  void fetch() {
    auto rows = views_.store().events(after_, kWatchBatch, sweep_);
    const std::scoped_lock lock(mutex_);
    fetching_ = false;
    if (!rows.has_value()) {
      if (!ending_.has_value()) ending_ = rows.error();
    } else {
      for (const storage::EventRow& row : *rows) buffer_.push_back(to_proto(row));
      if (!rows->empty()) after_ = rows->back().id;
      if (rows->size() == kWatchBatch) more_ = true;
    }
    pump();
  }

  const engine::Views& views_;
  engine::WorkPool& pool_;
  std::mutex
      mutex_;  // guards: all below (after_ and sweep_ are also read by the one fetch in flight)
  std::optional<SweepId> sweep_;
  std::uint64_t after_;
  const bool follow_;
  const CallHook& hook_;
  grpc::ServerWriteReactor<v1::Event>* reactor_ = nullptr;
  std::deque<v1::Event> buffer_;
  bool started_ = false;
  bool more_ = true;
  bool fetching_ = false;
  bool writing_ = false;
  std::optional<Status> ending_;
};

// ---- the service

CoordinatorServiceImpl::CoordinatorServiceImpl(const engine::Views& views, Options options)
    : views_(views),
      options_(std::move(options)),
      reads_(kReadThreads, kQueueMax),
      queries_(kQueryThreads, kQueriesWaitingMax, kQueryNice),
      backups_(1, kBackupsWaitingMax),
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
  queries_.stop();
  backups_.stop();
}

Result<SweepId> CoordinatorServiceImpl::find(const v1::SweepRef& reference) const {
  std::string scratch;
  if (reference.by_case() == v1::SweepRef::kId) {
    TAILOR_ASSIGN_OR_RETURN(const storage::SweepRow row,
                            views_.store().sweep(SweepId{reference.id()}));
    return row.id;
  }
  return views_.find_sweep(sweep_reference(reference, scratch));
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::SubmitSweep(Context*,
                                                              const v1::SubmitSweepRequest* request,
                                                              v1::SubmitSweepResponse* response) {
  auto [reactor, call] =
      Call<v1::SubmitSweepResponse>::make("SubmitSweep", response, options_.on_call);
  const bool posted = reads_.post([this, call = call, request = *request] {
    if (call->over()) return;
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
  if (!posted) {
    call->finish(Status(Code::kResourceExhausted, "too many calls are waiting; try again later"));
  }
  return reactor;
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

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ListTrials(Context*,
                                                             const v1::ListTrialsRequest* request,
                                                             v1::ListTrialsResponse* response) {
  return answer(
      reads_, "ListTrials", response, options_.on_call,
      [this, request = *request]() -> Result<v1::ListTrialsResponse> {
        storage::TrialQuery query;
        if (request.has_sweep() && request.sweep().by_case() != v1::SweepRef::BY_NOT_SET) {
          TAILOR_ASSIGN_OR_RETURN(query.sweep, find(request.sweep()));
        }
        TAILOR_ASSIGN_OR_RETURN(query.state, from_proto(request.state()));
        if (!request.order().empty()) query.order = request.order();
        if (query.order != "id" && query.order != "objective" && query.order != "state" &&
            query.order != "candidate") {
          return error(Code::kInvalidArgument,
                       fmt::format("cannot order trials by \"{}\"; allowed: id, objective, state, "
                                   "candidate",
                                   query.order));
        }
        query.descending = request.descending();
        query.offset = request.offset();
        query.limit = request.limit() == 0 ? kPageDefault : std::min(request.limit(), kPageMax);
        TAILOR_ASSIGN_OR_RETURN(const auto page, views_.trials(query));
        v1::ListTrialsResponse out;
        for (const auto& view : page.trials) *out.add_trials() = to_proto(view);
        out.set_total(page.total);
        return out;
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetTrial(Context*,
                                                           const v1::GetTrialRequest* request,
                                                           v1::GetTrialResponse* response) {
  return answer(reads_, "GetTrial", response, options_.on_call,
                [this, id = TrialId{request->trial()}]() -> Result<v1::GetTrialResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const auto detail, views_.trial(id));
                  return to_proto(detail);
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetSeries(Context*,
                                                            const v1::GetSeriesRequest* request,
                                                            v1::GetSeriesResponse* response) {
  return answer(reads_, "GetSeries", response, options_.on_call,
                [this, request = *request]() -> Result<v1::GetSeriesResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const auto series,
                                          views_.series(TrialId{request.trial()}, request.metric(),
                                                        request.points_max()));
                  v1::GetSeriesResponse out;
                  *out.mutable_series() = to_proto(series);
                  return out;
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ControlSweep(
    Context*, const v1::ControlSweepRequest* request, v1::ControlSweepResponse* response) {
  auto [reactor, call] =
      Call<v1::ControlSweepResponse>::make("ControlSweep", response, options_.on_call);
  const bool posted = reads_.post([this, call = call, request = *request] {
    if (call->over()) return;
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
        return call->finish(
            Status(Code::kInvalidArgument, "no action; allowed: pause, resume, cancel, priority"));
    }
    views_.engine().request(
        std::move(event), [this, call, sweep = *id](const Status& status, const core::ReplyBody&) {
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
  if (!posted) {
    call->finish(Status(Code::kResourceExhausted, "too many calls are waiting; try again later"));
  }
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ControlTrials(
    Context*, const v1::ControlTrialsRequest* request, v1::ControlTrialsResponse* response) {
  auto [reactor, call] =
      Call<v1::ControlTrialsResponse>::make("ControlTrials", response, options_.on_call);
  const bool posted = reads_.post([this, call = call, request = *request] {
    if (call->over()) return;
    core::ControlTrials event;
    switch (request.action()) {
      case v1::ControlTrialsRequest::ACTION_CANCEL:
        event.action = core::TrialAction::kCancel;
        break;
      case v1::ControlTrialsRequest::ACTION_RETRY:
        event.action = core::TrialAction::kRetry;
        break;
      default:
        return call->finish(Status(Code::kInvalidArgument, "no action; allowed: cancel, retry"));
    }
    for (const std::uint64_t trial : request.trials()) event.trials.push_back(TrialId{trial});
    if (request.has_failed_of()) {
      const auto id = find(request.failed_of());
      if (!id.has_value()) return call->finish(id.error());
      event.failed_of = *id;
    }
    if (event.trials.empty() && !event.failed_of.valid()) {
      return call->finish(
          Status(Code::kInvalidArgument, "name trials, or a sweep whose failed trials are meant"));
    }
    event.dry_run = request.dry_run();
    views_.engine().request(std::move(event),
                            [call](const Status& status, const core::ReplyBody& body) {
                              if (!status.is_ok()) return call->finish(status);
                              v1::ControlTrialsResponse out;
                              if (const auto* done = std::get_if<core::TrialsOutcome>(&body)) {
                                for (const TrialId id : done->trials) out.add_trials(id.value);
                                for (const auto& [sweep, hit] : done->targets) {
                                  auto& target = *out.add_targets();
                                  target.set_sweep(sweep.value);
                                  target.set_sweep_name(hit.sweep_name);
                                  target.set_trials(hit.trials);
                                  target.set_running(hit.running);
                                }
                              }
                              call->finish(Status::ok(), &out);
                            });
  });
  if (!posted) {
    call->finish(Status(Code::kResourceExhausted, "too many calls are waiting; try again later"));
  }
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Explain(Context*,
                                                          const v1::ExplainRequest* request,
                                                          v1::ExplainResponse* response) {
  return answer(reads_, "Explain", response, options_.on_call,
                [this, id = TrialId{request->trial()}]() -> Result<v1::ExplainResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const std::string text, views_.explain(id));
                  v1::ExplainResponse out;
                  out.set_text(text);
                  return out;
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetLog(Context*, const v1::GetLogRequest* request,
                                                         v1::GetLogResponse* response) {
  return answer(
      reads_, "GetLog", response, options_.on_call,
      [this, request = *request]() -> Result<v1::GetLogResponse> {
        const std::uint64_t bytes =
            request.bytes_max() == 0 ? kLogBytesMax : std::min(request.bytes_max(), kLogBytesMax);
        TAILOR_ASSIGN_OR_RETURN(auto piece, views_.log(TrialId{request.trial()}, request.attempt(),
                                                       request.offset(), bytes));
        v1::GetLogResponse out;
        out.set_data(std::move(piece.bytes));
        out.set_next_offset(piece.next_offset);
        out.set_attempt(piece.attempt);
        out.set_ended(piece.ended);
        out.set_offset(piece.offset);
        out.set_trial_ended(piece.trial_ended);
        out.set_attempts(piece.attempts);
        out.set_worker(piece.worker_name);
        out.set_end_class(piece.end_class);
        return out;
      });
}

grpc::ServerWriteReactor<v1::Event>* CoordinatorServiceImpl::WatchEvents(
    Context*, const v1::WatchEventsRequest* request) {
  auto stream = std::make_shared<WatchStream>(views_, reads_, request->after(), request->follow(),
                                              options_.on_call);
  auto* reactor = stream->start();
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

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Compare(Context*,
                                                          const v1::CompareRequest* request,
                                                          v1::CompareResponse* response) {
  return answer(reads_, "Compare", response, options_.on_call,
                [this, request = *request]() -> Result<v1::CompareResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const SweepId id, find(request.sweep()));
                  TAILOR_ASSIGN_OR_RETURN(const auto table, views_.compare(id, request.baseline(),
                                                                           request.objective()));
                  return to_proto(table);
                });
}

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

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ListWorkers(Context*,
                                                              const v1::ListWorkersRequest*,
                                                              v1::ListWorkersResponse* response) {
  return answer(reads_, "ListWorkers", response, options_.on_call,
                [this]() -> Result<v1::ListWorkersResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const auto workers, views_.workers());
                  v1::ListWorkersResponse out;
                  for (const auto& view : workers) *out.add_workers() = to_proto(view);
                  return out;
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::DrainWorker(Context*,
                                                              const v1::DrainWorkerRequest* request,
                                                              v1::DrainWorkerResponse* response) {
  auto [reactor, call] =
      Call<v1::DrainWorkerResponse>::make("DrainWorker", response, options_.on_call);
  const bool posted = reads_.post([this, call = call, name = request->worker()] {
    if (call->over()) return;
    const auto id = views_.find_worker(name);
    if (!id.has_value()) return call->finish(id.error());
    core::DrainWorker event;
    event.worker = *id;
    views_.engine().request(std::move(event), [call](const Status& status, const core::ReplyBody&) {
      v1::DrainWorkerResponse out;
      call->finish(status, &out);
    });
  });
  if (!posted) {
    call->finish(Status(Code::kResourceExhausted, "too many calls are waiting; try again later"));
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
