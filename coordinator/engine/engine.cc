#include "coordinator/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/logging.h"
#include "coordinator/core/step.h"

namespace tailor::engine {
namespace {

// How long the loop sleeps at most before it looks around.
constexpr std::int64_t kIdleSliceMs = 1'000;

/// What needs no answer at once.
bool is_beat(const core::Event& event) {
  const auto* message = std::get_if<core::SessionMessage>(&event);
  return message != nullptr && std::holds_alternative<protocol::Heartbeat>(message->message);
}

const Status kShuttingDown(Code::kUnavailable, "the coordinator is shutting down; try again later");

void set_request(core::Event& event, core::RequestId id) {
  std::visit(
      [id](auto& e) {
        if constexpr (requires { e.request; }) e.request = id;
      },
      event);
}

/// Failures that time can heal. Anything else means that memory and file no longer agree for good.
bool worth_retrying(const Status& status) {
  return status.code() == Code::kResourceExhausted || status.code() == Code::kUnavailable ||
         status.code() == Code::kDeadlineExceeded;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(storage::Store& store, const Clock& clock,
                                              const core::Options& core_options, Options options,
                                              Hooks hooks) {
  TAILOR_ASSIGN_OR_RETURN(const storage::Snapshot snapshot, store.load_open());
  TAILOR_ASSIGN_OR_RETURN(
      core::State state,
      core::load(snapshot, core_options, core::Now{clock.now_ms(), clock.wall_ms()}));
  for (const auto& [id, sweep] : state.unreadable) {
    log_warn("engine", "a sweep cannot be read by this version; nothing of it is scheduled",
             {{"sweep", id.to_string()}, {"name", sweep.row.name}, {"reason", sweep.reason}});
  }
  std::unique_ptr<Engine> engine(
      new Engine(std::move(state), store, clock, options, std::move(hooks)));
  engine->set_health(true, false, Status::ok());
  engine->thread_ = std::jthread([raw = engine.get()] { raw->run(); });
  return engine;
}

Engine::Engine(core::State state, storage::Store& store, const Clock& clock, Options options,
               Hooks hooks)
    : store_(store),
      clock_(clock),
      options_(options),
      hooks_(std::move(hooks)),
      driver_(std::move(state)),
      taken_ms_(clock.now_ms()),
      publisher_(driver_.state()),
      published_(publisher_.publish(driver_.state())),
      watch_(store, clock, options.hung_ms, [this] { tell_health(); }) {}

Engine::~Engine() { stop(); }

void Engine::request(core::Event event, ReplyHandler reply) {
  post_request(std::move(event), std::move(reply), false);
}

void Engine::post_request(core::Event event, ReplyHandler reply, bool again) {
  reply = recaller_.wrap(event, std::move(reply));
  Status refused;
  {
    const std::scoped_lock lock(mutex_);
    if (ended_ || (stopping_ && !again)) {
      refused = kShuttingDown;
    } else if (const Health health = health_now(); health.stalled) {
      refused = health.last_error.with_context("nothing can be stored at the moment");
    } else if (requests_waiting_ >= options_.requests_max) {
      refused = Status(
          Code::kResourceExhausted,
          fmt::format("{} requests are waiting already; try again later", requests_waiting_));
    } else {
      const core::RequestId id = next_request_++;
      set_request(event, id);
      ++requests_waiting_;
      post(std::move(event), {id, std::move(reply), 0, nullptr, {}});
      return;
    }
  }
  reply(refused, {});
}

void Engine::post(core::Event event, Extra extra) {
  const bool beat = is_beat(event);
  mailbox_.post(std::move(event), now(), std::move(extra));
  ++posted_;
  if (!beat) urgent_ = true;
  if (!beat || !gathering_) wake_.notify_one();
}

core::SessionId Engine::open_session(std::shared_ptr<SessionSink> sink, protocol::Hello hello,
                                     Done done) {
  const core::SessionId id = next_session_++;
  {
    const std::scoped_lock lock(mutex_);
    if (!ended_ && !stopping_) {
      post(core::SessionOpened{id, std::move(hello)},
           {0, {}, id, std::move(sink), std::move(done)});
      return id;
    }
  }
  sink->close(kShuttingDown);
  return id;
}

void Engine::session_message(core::SessionId session, protocol::WorkerMessage message, Done done) {
  const std::scoped_lock lock(mutex_);
  if (ended_) return;
  post(core::SessionMessage{session, std::move(message)}, {0, {}, 0, nullptr, std::move(done)});
}

void Engine::close_session(core::SessionId session) {
  const std::scoped_lock lock(mutex_);
  if (ended_) return;
  post(core::SessionClosed{session}, {});
}

void Engine::query(Query query) {
  Status refused;
  {
    const std::scoped_lock lock(mutex_);
    if (ended_) {
      refused = health_.last_error.is_ok() ? kShuttingDown : health_.last_error;
    } else if (const Health health = health_now(); health.stalled) {
      refused = health.last_error;
    } else {
      queries_.push_back({posted_, std::move(query)});
      wake_.notify_one();
      return;
    }
  }
  query(nullptr, now(), refused);
}

void Engine::subscribe(std::weak_ptr<void> owner, Done heard) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(subscribers_, [](const Subscriber& s) { return s.owner.expired(); });
  subscribers_.push_back({std::move(owner), std::move(heard)});
}

Health Engine::health() const {
  const std::scoped_lock lock(mutex_);
  return health_now();
}

Health Engine::health_now() const {
  if (!health_.running || health_.stalled) return health_;
  const StoreWatch::Trouble trouble = watch_.trouble();
  if (trouble.reason.is_ok()) return health_;
  return {true, true, trouble.reason, trouble.since_ms};
}

std::shared_ptr<const Published> Engine::published() const {
  const std::scoped_lock lock(mutex_);
  return published_;
}

std::size_t Engine::queue_depth() const {
  const std::scoped_lock lock(mutex_);
  return mailbox_.size() + queries_.size();
}

void Engine::poke() {
  const std::scoped_lock lock(mutex_);
  poked_ = true;
  wake_.notify_one();
}

void Engine::stop() {
  std::call_once(stopped_, [this] {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      wake_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    watch_.stop();
    recaller_.stop();
  });
}

void Engine::set_health(bool running, bool stalled, const Status& error) {
  const Health health{running, stalled, error, clock_.wall_ms()};
  {
    const std::scoped_lock lock(mutex_);
    health_ = health;
  }
  tell_health();
}

void Engine::tell_health() {
  if (!hooks_.on_health) return;
  const std::scoped_lock lock(telling_);
  hooks_.on_health(health());
}

void Engine::gather(std::unique_lock<std::mutex>& lock) {
  if (!std::exchange(only_beats_, false) || options_.gather_ms <= 0) return;
  gathering_ = true;
  wake_.wait_for(lock, std::chrono::milliseconds(options_.gather_ms),
                 [this] { return urgent_ || poked_ || stopping_ || !queries_.empty(); });
  gathering_ = false;
}

bool Engine::take(core::Round& round, std::vector<Extra>& extras, std::vector<Query>& queries) {
  const auto call_at_ms = driver_.call_at_ms();
  const auto publish_s = publish_at_s();
  std::unique_lock lock(mutex_);
  // From one round to the next nothing was taken in, whatever it was that took so long.
  const std::int64_t busy_ms = clock_.now_ms() - taken_ms_;
  if (std::exchange(commit_failed_, false) ||
      (options_.stall_ms > 0 && busy_ms >= options_.stall_ms)) {
    round.deaf_ms += busy_ms;
  }
  gather(lock);
  for (;;) {
    const MonotonicMs before = clock_.now_ms();
    const std::int64_t unpublished_ms =
        publish_s.has_value()
            ? static_cast<std::int64_t>(std::ceil((*publish_s - steady_seconds()) * 1e3))
            : kIdleSliceMs;
    const bool due = (call_at_ms.has_value() && before >= *call_at_ms) || unpublished_ms <= 0;
    if (!mailbox_.empty() || !queries_.empty() || due || poked_ ||
        (stopping_ && recaller_.idle())) {
      break;
    }
    std::int64_t slice = std::min(kIdleSliceMs, unpublished_ms);
    if (call_at_ms.has_value()) slice = std::clamp<std::int64_t>(*call_at_ms - before, 1, slice);
    wake_.wait_for(lock, std::chrono::milliseconds(slice));
    const std::int64_t over = clock_.now_ms() - before - slice;
    if (options_.stall_ms > 0 && over >= options_.stall_ms) round.deaf_ms += over;
  }
  poked_ = false;
  const core::Now taken = now();
  taken_ms_ = taken.mono_ms;
  only_beats_ = !urgent_ && !mailbox_.empty();
  urgent_ = false;
  for (Item& item :
       mailbox_.take(options_.batch_max, options_.batch_weight_max, taken, &round.heard)) {
    ++taken_;
    if (item.extra.request != 0) --requests_waiting_;
    round.arrivals.push_back(std::move(item.arrival));
    extras.push_back(std::move(item.extra));
  }
  // A query sees everything posted before it, and waits for nothing that came later.
  while (!queries_.empty() && queries_.front().after <= taken_) {
    queries.push_back(std::move(queries_.front().query));
    queries_.pop_front();
  }
  // What was posted before the end and waits for its rows is still dealt with.
  return !(stopping_ && extras.empty() && queries.empty() && recaller_.idle());
}

Status Engine::try_commit(const core::Transaction& transaction) {
  // A file that was removed takes everything and keeps nothing.
  if (const Status lost = watch_.lost(); !lost.is_ok()) return lost;
  watch_.commit_begins();
  const Status status = store_.commit(transaction.writes);
  watch_.commit_ended();
  return status;
}

bool Engine::commit(const core::Transaction& transaction) {
  if (transaction.writes.empty()) return true;
  const double begin_s = steady_seconds();
  const Status status = try_commit(transaction);
  if (!status.is_ok()) return retry(transaction, status);
  if (hooks_.on_commit) hooks_.on_commit(transaction.writes, steady_seconds() - begin_s);
  return true;
}

bool Engine::retry(const core::Transaction& transaction, Status failure) {
  const MonotonicMs begin_ms = clock_.now_ms();
  commit_failed_ = true;
  if (worth_retrying(failure)) {
    scribe_.say([reason = failure.to_string()] {
      log_warn("engine", "cannot store; nothing is acknowledged until it works again",
               {{"reason", reason}});
    });
    set_health(true, true, failure);
  }
  while (worth_retrying(failure)) {
    // Refuse what arrived in the meantime; what workers sent waits in the mailbox.
    std::deque<Item> refused;
    std::deque<WaitingQuery> blind;
    bool stopping = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::milliseconds(options_.retry_ms),
                     [this] { return stopping_; });
      auto& entries = mailbox_.entries();
      const auto requests = std::stable_partition(
          entries.begin(), entries.end(), [](const Item& item) { return item.extra.request == 0; });
      refused.assign(std::make_move_iterator(requests), std::make_move_iterator(entries.end()));
      entries.erase(requests, entries.end());
      requests_waiting_ -= refused.size();
      taken_ += refused.size();
      blind.swap(queries_);
      stopping = stopping_;
    }
    for (const Item& item : refused) item.extra.reply(failure, {});
    for (const WaitingQuery& waiting : blind) waiting.query(nullptr, now(), failure);

    const double try_s = steady_seconds();
    const Status status = try_commit(transaction);
    if (status.is_ok()) {
      set_health(true, false, Status::ok());
      scribe_.say([ms = std::to_string(clock_.now_ms() - begin_ms)] {
        log_info("engine", "storing works again", {{"after_ms", ms}});
      });
      if (hooks_.on_commit) hooks_.on_commit(transaction.writes, steady_seconds() - try_s);
      return true;
    }
    failure = status;
    if (stopping) {
      scribe_.say([reason = failure.to_string()] {
        log_error("engine", "shutting down with an unwritten batch; nothing of it was acknowledged",
                  {{"reason", reason}});
      });
      return false;
    }
  }
  scribe_.say([reason = failure.to_string()] {
    log_error("engine", "cannot go on", {{"reason", reason}});
  });
  set_health(false, false, failure);
  if (hooks_.on_fatal) hooks_.on_fatal(failure);
  return false;
}

void Engine::release(core::Transaction& transaction) {
  for (core::Outward& outward : transaction.release) {
    if (auto* reply = std::get_if<core::Reply>(&outward)) {
      const auto found = replies_.find(reply->request);
      if (found == replies_.end()) continue;
      const ReplyHandler handler = std::move(found->second);
      replies_.erase(found);
      handler(reply->status, reply->body);
    } else if (auto* message = std::get_if<core::SendTo>(&outward)) {
      const auto found = sinks_.find(message->session);
      if (found != sinks_.end()) found->second->send(std::move(message->message));
    } else if (auto* closing = std::get_if<core::CloseSession>(&outward)) {
      const auto found = sinks_.find(closing->session);
      if (found != sinks_.end()) found->second->close(closing->status);
    }
  }
}

std::optional<double> Engine::publish_at_s() const {
  if (!publisher_.stale() && !events_untold_) return std::nullopt;
  return published_s_ + static_cast<double>(options_.publish_ms) / 1e3;
}

void Engine::publish(const core::Transaction& transaction) {
  const auto at_s = publish_at_s();
  if (!at_s.has_value()) return;
  const bool answers = std::any_of(
      transaction.release.begin(), transaction.release.end(),
      [](const core::Outward& outward) { return std::holds_alternative<core::Reply>(outward); });
  const double now_s = steady_seconds();
  if (!answers && now_s < *at_s) return;
  published_s_ = now_s;
  if (!publisher_.stale()) return;
  auto views = publisher_.publish(driver_.state());
  const std::scoped_lock lock(mutex_);
  published_.swap(views);
}

void Engine::tell_subscribers() {
  // What they will look at must be there first.
  if (!events_untold_ || publisher_.stale()) return;
  events_untold_ = false;
  std::vector<std::pair<std::shared_ptr<void>, Done>> listeners;
  {
    const std::scoped_lock lock(mutex_);
    for (const Subscriber& s : subscribers_) {
      if (auto owner = s.owner.lock()) listeners.emplace_back(std::move(owner), s.heard);
    }
  }
  for (const auto& [owner, heard] : listeners) heard();
}

void Engine::refuse_all(const Status& why) {
  std::deque<Item> items;
  std::deque<WaitingQuery> queries;
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
    items.swap(mailbox_.entries());
    queries.swap(queries_);
    requests_waiting_ = 0;
  }
  for (auto& [id, reply] : replies_) reply(why, {});
  replies_.clear();
  for (Item& item : items) {
    if (item.extra.reply) item.extra.reply(why, {});
    if (item.extra.sink) item.extra.sink->close(why);
  }
  for (const WaitingQuery& waiting : queries) waiting.query(nullptr, now(), why);
  for (auto& [session, sink] : sinks_) sink->close(why);
  sinks_.clear();
}

void Engine::run() {
  for (;;) {
    core::Round round;
    std::vector<Extra> extras;
    std::vector<Query> queries;
    if (!take(round, extras, queries)) break;
    if (round.deaf_ms > 0) {
      scribe_.say([ms = std::to_string(round.deaf_ms)] {
        log_warn("engine", "leases extended: the coordinator could not listen", {{"ms", ms}});
      });
    }
    std::vector<core::SessionId> closed;
    for (std::size_t i = 0; i < extras.size(); ++i) {
      Extra& extra = extras[i];
      if (extra.request != 0) replies_.emplace(extra.request, std::move(extra.reply));
      if (extra.opens != 0) sinks_.emplace(extra.opens, std::move(extra.sink));
      if (const auto* end = std::get_if<core::SessionClosed>(&round.arrivals[i].event)) {
        closed.push_back(end->session);
      }
    }
    core::Transaction transaction = driver_.run(std::move(round));
    if (!commit(transaction)) {
      for (const Query& query : queries) query(nullptr, now(), health().last_error);
      break;
    }
    publisher_.note(transaction.writes);
    if (scribe_.events(transaction.writes)) events_untold_ = true;
    publish(transaction);
    release(transaction);
    for (const Extra& extra : extras) {
      if (extra.done) extra.done();
    }
    tell_subscribers();
    for (const core::SessionId session : closed) sinks_.erase(session);
    for (const Query& query : queries) query(&driver_.state(), now(), Status::ok());
  }
  Status last = health().last_error;
  if (const Status lost = watch_.lost(); !lost.is_ok()) {
    last = lost;
    if (hooks_.on_fatal) hooks_.on_fatal(lost);  // nothing of this must look like a success
  }
  refuse_all(last.is_ok()
                 ? kShuttingDown
                 : Status(Code::kUnavailable, "the coordinator stopped: " + last.message()));
  set_health(false, false, last);
}

}  // namespace tailor::engine
