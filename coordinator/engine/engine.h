// Engine: the shell of core::Driver (design.md 4): threads, the store and the waiting callers
// around the one loop that owns core::State.
//
//   mailbox --round--> core::Driver::run --transaction--> Store::commit (once)
//     --ok--> replies, messages, queries
//
// Everything is stamped with its time as it is posted; what order and time decide stands in
// core/driver.h. Acknowledged means committed: nothing leaves the engine (a reply, a message to a
// worker, an answer to a query) before the transaction of its batch is durable. A batch whose
// commit fails for want of space is kept and tried again until it goes through; meanwhile new
// requests are refused, worker messages wait (nobody's lease runs out for that), and health() says
// why. A corrupt database ends the engine with the reason.
//
// Threads: every public function may be called from any thread, unless it says otherwise. Handlers,
// sinks, queries and hooks run on the engine thread and must be short; none may call stop() or wait
// for the engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/core/driver.h"
#include "coordinator/core/effect.h"
#include "coordinator/core/event.h"
#include "coordinator/core/state.h"
#include "coordinator/engine/published.h"
#include "coordinator/engine/recall.h"
#include "coordinator/engine/scribe.h"
#include "coordinator/engine/store_watch.h"
#include "storage/store.h"

namespace tailor::engine {

struct Options {
  std::size_t batch_max = 1024;  ///< events of one transaction
  /// So long heartbeats wait for others of their kind where many come; 0 = not at all.
  std::int64_t gather_ms = 5;
  /// Rows of one transaction, about: a backlog is taken in rounds that commit in a few hundredths
  /// of a second, so that nobody's acknowledgement waits for all of it.
  std::size_t batch_weight_max = 16'384;
  /// Requests waiting at once; more are refused with kResourceExhausted.
  std::size_t requests_max = 4096;
  std::int64_t retry_ms = 1'000;  ///< between two tries of a commit that failed
  /// A time of at least so long in which the engine took nothing in (a commit that hung, a
  /// suspended machine) extends every lease by it: streams are not read on while their messages
  /// wait, so the heartbeats of that time may not even have arrived. 0 = only failed commits do.
  std::int64_t stall_ms = 0;
  /// A commit that lasts so long hangs: health() says so and requests are refused. 0 = never.
  std::int64_t hung_ms = 0;
  /// Published views are renewed at most so often, but always before a request that changed
  /// something is answered. Subscribers hear of events after that. 0 = after every commit.
  std::int64_t publish_ms = 0;
};

/// The coordinator's end of one worker stream. `send` and `close` are called on the engine thread,
/// must not block, and may be called after the stream has ended.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void send(protocol::CoordinatorMessage message) = 0;
  virtual void close(const Status& status) = 0;
};

/// How the engine is doing.
struct Health {
  bool running = false;  ///< false before start and after stop or a fatal error
  /// Nothing can be stored: a commit fails and is being retried, or hangs, or the database's file
  /// is gone. Nothing new is acknowledged.
  bool stalled = false;
  Status last_error;    ///< why, or the fatal one
  WallMs since_ms = 0;  ///< when it began
};

/// What others may hear of, on the engine thread.
struct Hooks {
  /// After each durable batch: its mutations and how long the commit took.
  std::function<void(std::span<const storage::Mutation>, double seconds)> on_commit;
  /// The engine has ended by itself (corrupt database, a write that can never succeed).
  std::function<void(const Status&)> on_fatal;
  /// Storing began to fail, or works again, or the engine has ended. Also on the thread that
  /// watches the store, but never twice at once.
  std::function<void(const Health&)> on_health;
};

class Engine {
 public:
  using ReplyHandler = std::function<void(const Status&, const core::ReplyBody&)>;
  /// Gets the state, or null with the reason when there is no committed state to see.
  using Query = std::function<void(const core::State*, core::Now, const Status&)>;
  using Done = std::function<void()>;

  /// Loads the store and starts the thread. `store` and `clock` must outlive the engine.
  /// Errors: as Store::load and core::load.
  static Result<std::unique_ptr<Engine>> start(storage::Store& store, const Clock& clock,
                                               const core::Options& core_options, Options options,
                                               Hooks hooks = {});
  /// Stops as `stop` does.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Posts a request event (SubmitSweep, ControlSweep, ControlTrials, DrainWorker,
  /// ArtifactsChanged); its `request` is filled in. `reply` is called exactly once: after the
  /// commit, or at once (on the calling thread) with kResourceExhausted while the disk is full or
  /// too many wait, kUnavailable while shutting down.
  void request(core::Event event, ReplyHandler reply);

  /// Opens a session for a worker whose Hello arrived; answers come through `sink`. `done` (here
  /// and below) is called once the message has been dealt with and committed: the caller may then
  /// read the next one, which bounds what a worker can make the coordinator hold.
  core::SessionId open_session(std::shared_ptr<SessionSink> sink, protocol::Hello hello,
                               Done done = {});
  void session_message(core::SessionId session, protocol::WorkerMessage message, Done done = {});
  /// The stream has ended. Idempotent.
  void close_session(core::SessionId session);

  /// Runs `query` on the engine thread when everything posted before is committed. While commits
  /// fail it is called with null and kResourceExhausted, because the state in memory is ahead of
  /// the stored one.
  void query(Query query);

  /// `query` for callers that can wait (never on the engine thread): f(const State&, Now) -> T.
  /// Errors: as `query`; kDeadlineExceeded after `timeout_ms`.
  template <typename F>
  auto ask(F f, std::int64_t timeout_ms = 5'000)
      -> Result<std::invoke_result_t<F, const core::State&, core::Now>> {
    using T = std::invoke_result_t<F, const core::State&, core::Now>;
    auto promise = std::make_shared<std::promise<Result<T>>>();
    auto future = promise->get_future();
    query([promise, f = std::move(f)](const core::State* state, core::Now now, const Status& why) {
      promise->set_value(state != nullptr ? Result<T>(f(*state, now)) : Result<T>(error(why)));
    });
    if (future.wait_for(std::chrono::milliseconds(timeout_ms)) != std::future_status::ready) {
      return error(Code::kDeadlineExceeded, "the coordinator's engine did not answer in time");
    }
    return future.get();
  }

  /// `heard` is called on the engine thread after commits that added event rows; the rows are then
  /// in the store (read them by id: nothing is missed or seen twice) and what they changed is
  /// published.
  /// Lives while `owner` does.
  void subscribe(std::weak_ptr<void> owner, Done heard);

  /// Waits for nothing, as do the next two.
  Health health() const;
  /// Never null.
  std::shared_ptr<const Published> published() const;
  /// Events and queries that wait.
  std::size_t queue_depth() const;
  /// Makes the engine look at its clock now. For tests with a ManualClock.
  void poke();
  /// Deals with everything in the mailbox, commits, closes every session and ends the thread.
  /// Requests that could not be committed are answered kUnavailable. Idempotent.
  void stop();

 private:
  /// What hangs on a posted event.
  struct Extra {
    core::RequestId request = 0;  // 0 = none
    ReplyHandler reply;
    core::SessionId opens = 0;  // 0 = none
    std::shared_ptr<SessionSink> sink;
    Done done;
  };
  using Item = core::Inbox<Extra>::Entry;
  /// Sees the first `after` events that were ever posted.
  struct WaitingQuery {
    std::uint64_t after = 0;
    Query query;
  };
  struct Subscriber {
    std::weak_ptr<void> owner;
    Done heard;
  };

  Engine(core::State state, storage::Store& store, const Clock& clock, Options options,
         Hooks hooks);
  void run();
  /// `again`: with rows that it had to wait for; it was posted before the end, if that has come.
  void post_request(core::Event event, ReplyHandler reply, bool again);
  /// REQUIRES: mutex_ held, so that times are in the order of the mailbox.
  void post(core::Event event, Extra extra);
  /// After a round of heartbeats alone: lets more of them come, so that thousands of workers do not
  /// wake the thread thousands of times a second. Anything else ends the wait.
  void gather(std::unique_lock<std::mutex>& lock);
  /// Waits for work or time, and takes a round. False when it is time to end.
  bool take(core::Round& round, std::vector<Extra>& extras, std::vector<Query>& queries);
  Status try_commit(const core::Transaction& transaction);
  /// True when the transaction is durable; false when the engine must end with it unwritten.
  bool commit(const core::Transaction& transaction);
  /// The loop of a failing commit: tries again, refuses requests, answers queries with the reason.
  bool retry(const core::Transaction& transaction, Status failure);
  void release(core::Transaction& transaction);
  /// Renews the published views when it is time, or when somebody is about to be answered.
  void publish(const core::Transaction& transaction);
  /// When `publish` has something to do; of steady_seconds().
  std::optional<double> publish_at_s() const;
  void tell_subscribers();
  void refuse_all(const Status& why);
  void set_health(bool running, bool stalled, const Status& error);
  /// REQUIRES: mutex_ held.
  Health health_now() const;
  void tell_health();
  core::Now now() const { return {clock_.now_ms(), clock_.wall_ms()}; }

  storage::Store& store_;
  const Clock& clock_;
  const Options options_;
  const Hooks hooks_;

  // Engine thread only.
  core::Driver driver_;
  MonotonicMs taken_ms_;        // when the round under way was taken
  bool commit_failed_ = false;  // ... and its commit did at first
  Publisher publisher_;
  double published_s_ = 0;      // when the views were renewed
  bool events_untold_ = false;  // subscribers have not heard of the newest ones
  Scribe scribe_;
  std::unordered_map<core::RequestId, ReplyHandler> replies_;
  std::unordered_map<core::SessionId, std::shared_ptr<SessionSink>> sinks_;

  mutable std::mutex mutex_;  // guards: the members below
  std::condition_variable wake_;
  core::Inbox<Extra> mailbox_;
  std::deque<WaitingQuery> queries_;
  std::uint64_t posted_ = 0;  // events so far
  std::uint64_t taken_ = 0;   // ... of which so many left the mailbox
  std::size_t requests_waiting_ = 0;
  bool urgent_ = false;      // something that is no heartbeat was posted since the last round
  bool only_beats_ = false;  // the last round was heartbeats
  bool gathering_ = false;   // the thread needs no waking for heartbeats
  bool poked_ = false;
  bool stopping_ = false;
  bool ended_ = false;  // nobody takes from the mailbox any more
  Health health_;       // without what the watch sees
  std::vector<Subscriber> subscribers_;
  std::shared_ptr<const Published> published_;

  std::mutex telling_;  // held while on_health is called
  StoreWatch watch_;

  std::atomic<core::RequestId> next_request_{1};
  std::atomic<core::SessionId> next_session_{1};
  std::once_flag stopped_;
  Recaller recaller_{store_,
                     [this](core::Event event, ReplyHandler reply) {
                       post_request(std::move(event), std::move(reply), true);
                     },
                     [this] { poke(); }};
  std::jthread thread_;
};

}  // namespace tailor::engine
