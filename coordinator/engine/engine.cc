#include "coordinator/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/logging.h"
#include "coordinator/core/step.h"

namespace tailor::engine {
namespace {

// How long the loop sleeps at most before it looks around.
constexpr std::int64_t kIdleSliceMs = 1'000;

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

void log_event(const storage::EventRow& row) {
  std::string ids;
  const auto add = [&ids](std::string_view key, const std::string& id) {
    ids += fmt::format("{}{}={}", ids.empty() ? "" : " ", key, id);
  };
  if (row.sweep.valid()) add("sweep", row.sweep.to_string());
  if (row.trial.valid()) add("trial", row.trial.to_string());
  if (row.attempt != 0) add("attempt", AttemptId{row.trial, row.attempt}.to_string());
  if (row.worker.valid()) add("worker", row.worker.to_string());
  const std::string text = ids.empty() ? row.kind : row.kind + " " + ids;
  if (row.message.empty()) {
    log_info("engine", text);
  } else {
    log_info("engine", text, {{"message", row.message}});
  }
}

/// True when there were any.
bool log_events(std::span<const storage::Mutation> writes) {
  bool any = false;
  for (const storage::Mutation& mutation : writes) {
    const auto* row = std::get_if<storage::EventRow>(&mutation);
    if (row == nullptr) continue;
    any = true;
    log_event(*row);
  }
  return any;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::start(storage::Store& store, const Clock& clock,
                                              const core::Options& core_options, Options options,
                                              Hooks hooks) {
  TAILOR_ASSIGN_OR_RETURN(const storage::Snapshot snapshot, store.load());
  TAILOR_ASSIGN_OR_RETURN(
      core::State state,
      core::load(snapshot, core_options, core::Now{clock.now_ms(), clock.wall_ms()}));
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
      taken_ms_(clock.now_ms()) {}

Engine::~Engine() { stop(); }

void Engine::request(core::Event event, ReplyHandler reply) {
  Status refused;
  {
    const std::scoped_lock lock(mutex_);
    if (ended_ || stopping_) {
      refused = kShuttingDown;
    } else if (health_.stalled) {
      refused = health_.last_error.with_context("nothing can be stored at the moment");
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
  mailbox_.post(std::move(event), now(), std::move(extra));
  wake_.notify_one();
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
    } else if (health_.stalled) {
      refused = health_.last_error;
    } else {
      queries_.push_back(std::move(query));
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
  return health_;
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
  });
}

void Engine::set_health(bool running, bool stalled, const Status& error) {
  const Health health{running, stalled, error, clock_.wall_ms()};
  {
    const std::scoped_lock lock(mutex_);
    health_ = health;
  }
  if (hooks_.on_health) hooks_.on_health(health);
}

bool Engine::take(core::Round& round, std::vector<Extra>& extras, std::vector<Query>& queries) {
  const auto call_at_ms = driver_.call_at_ms();
  std::unique_lock lock(mutex_);
  // From one round to the next nothing was taken in, whatever it was that took so long.
  const std::int64_t busy_ms = clock_.now_ms() - taken_ms_;
  if (std::exchange(commit_failed_, false) ||
      (options_.stall_ms > 0 && busy_ms >= options_.stall_ms)) {
    round.deaf_ms += busy_ms;
  }
  for (;;) {
    const MonotonicMs before = clock_.now_ms();
    const bool due = call_at_ms.has_value() && before >= *call_at_ms;
    if (!mailbox_.empty() || !queries_.empty() || due || poked_ || stopping_) break;
    std::int64_t slice = kIdleSliceMs;
    if (call_at_ms.has_value()) slice = std::clamp<std::int64_t>(*call_at_ms - before, 1, slice);
    wake_.wait_for(lock, std::chrono::milliseconds(slice));
    const std::int64_t over = clock_.now_ms() - before - slice;
    if (options_.stall_ms > 0 && over >= options_.stall_ms) round.deaf_ms += over;
  }
  poked_ = false;
  const core::Now taken = now();
  taken_ms_ = taken.mono_ms;
  for (Item& item :
       mailbox_.take(options_.batch_max, options_.batch_weight_max, taken, &round.heard)) {
    if (item.extra.request != 0) --requests_waiting_;
    round.arrivals.push_back(std::move(item.arrival));
    extras.push_back(std::move(item.extra));
  }
  // A query sees everything posted before it, so it waits until the mailbox is empty.
  if (mailbox_.empty()) {
    queries.assign(std::make_move_iterator(queries_.begin()),
                   std::make_move_iterator(queries_.end()));
    queries_.clear();
  }
  return !(stopping_ && extras.empty() && queries.empty());
}

bool Engine::commit(const core::Transaction& transaction) {
  if (transaction.writes.empty()) return true;
  const double begin_s = steady_seconds();
  const Status status = store_.commit(transaction.writes);
  if (!status.is_ok()) return retry(transaction, status);
  if (hooks_.on_commit) hooks_.on_commit(transaction.writes, steady_seconds() - begin_s);
  return true;
}

bool Engine::retry(const core::Transaction& transaction, Status failure) {
  const MonotonicMs begin_ms = clock_.now_ms();
  commit_failed_ = true;
  if (worth_retrying(failure)) {
    log_warn("engine", "cannot store; nothing is acknowledged until it works again",
             {{"reason", failure.to_string()}});
    set_health(true, true, failure);
  }
  while (worth_retrying(failure)) {
    // Refuse what arrived in the meantime; what workers sent waits in the mailbox.
    std::deque<Item> refused;
    std::deque<Query> blind;
    bool stopping = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::milliseconds(options_.retry_ms),
                     [this] { return stopping_; });
      auto& waiting = mailbox_.entries();
      const auto requests = std::stable_partition(
          waiting.begin(), waiting.end(), [](const Item& item) { return item.extra.request == 0; });
      refused.assign(std::make_move_iterator(requests), std::make_move_iterator(waiting.end()));
      waiting.erase(requests, waiting.end());
      requests_waiting_ -= refused.size();
      blind.swap(queries_);
      stopping = stopping_;
    }
    for (const Item& item : refused) item.extra.reply(failure, {});
    for (const Query& query : blind) query(nullptr, now(), failure);

    const double try_s = steady_seconds();
    const Status status = store_.commit(transaction.writes);
    if (status.is_ok()) {
      set_health(true, false, Status::ok());
      log_info("engine", "storing works again",
               {{"after_ms", std::to_string(clock_.now_ms() - begin_ms)}});
      if (hooks_.on_commit) hooks_.on_commit(transaction.writes, steady_seconds() - try_s);
      return true;
    }
    failure = status;
    if (stopping) {
      log_error("engine", "shutting down with an unwritten batch; nothing of it was acknowledged",
                {{"reason", failure.to_string()}});
      return false;
    }
  }
  log_error("engine", "cannot go on", {{"reason", failure.to_string()}});
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

void Engine::tell_subscribers() {
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
  std::deque<Query> queries;
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
  for (const Query& query : queries) query(nullptr, now(), why);
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
      log_warn("engine", "leases extended: the coordinator could not listen",
               {{"ms", std::to_string(round.deaf_ms)}});
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
    release(transaction);
    for (const Extra& extra : extras) {
      if (extra.done) extra.done();
    }
    if (log_events(transaction.writes)) tell_subscribers();
    for (const core::SessionId session : closed) sinks_.erase(session);
    for (const Query& query : queries) query(&driver_.state(), now(), Status::ok());
  }
  const Status last = health().last_error;
  refuse_all(last.is_ok()
                 ? kShuttingDown
                 : Status(Code::kUnavailable, "the coordinator stopped: " + last.message()));
  set_health(false, false, last);
}

}  // namespace tailor::engine
