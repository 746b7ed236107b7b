// tailor watch: follows a sweep's events until it ends. On a terminal one status line is redrawn on
// stderr; in a pipe each event is a line on stdout (with --json: one JSON object a line).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

std::string status_line(const v1::Sweep& s, double best) {
  const auto total = trials_of(s);
  const auto done = total - s.queued() - s.running();
  const int width = 24;
  const int filled = total > 0 ? static_cast<int>(width * done / total) : 0;
  std::string bar(static_cast<std::size_t>(filled), '#');
  bar.resize(width, '.');
  return fmt::format("{} [{}] {}/{} done{}, {} running, {} queued, {} failed, best loss {}, {}",
                     s.name(), bar, done, total,
                     s.search_points() > 0 ? fmt::format(" ({} points tried)", search_text(s)) : "",
                     s.running(), s.queued(), s.failed(), std::isnan(best) ? "-" : fixed(best, 4),
                     duration(s.created_ms(), s.ended_ms()));
}

/// The events of one sweep as they come: read by a thread of its own, taken by the one that prints.
class EventStream {
 public:
  /// Opens the stream of events with an id above `after`. It has no deadline: a coordinator that is
  /// gone is noticed by the channel.
  EventStream(v1::CoordinatorService::Stub& stub, const v1::SweepRef& sweep, std::uint64_t after,
              bool follow) {
    v1::WatchEventsRequest request;
    *request.mutable_sweep() = sweep;
    request.set_after(after);
    request.set_follow(follow);
    reader_ = stub.WatchEvents(&call_, request);
    thread_ = std::jthread([this] { read(); });
  }
  ~EventStream() {
    {
      const std::scoped_lock lock(mutex_);
      leaving_ = true;
      changed_.notify_all();
    }
    call_.TryCancel();
  }

  /// Waits for events for at most `wait_ms` and takes those that are there.
  std::vector<v1::Event> take(std::int64_t wait_ms) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(wait_ms),
                      [this] { return !events_.empty() || ended_; });
    changed_.notify_all();
    return std::exchange(events_, {});
  }
  /// The stream has ended and every event was taken.
  bool over() const {
    const std::scoped_lock lock(mutex_);
    return ended_ && events_.empty();
  }
  /// Why. REQUIRES: over().
  grpc::Status status() const {
    const std::scoped_lock lock(mutex_);
    return status_;
  }

 private:
  void read() {
    v1::Event event;
    while (reader_->Read(&event)) {
      std::unique_lock lock(mutex_);
      // Whoever prints slowly is sent no more than it can hold: then gRPC holds up the stream.
      changed_.wait(lock, [this] { return events_.size() < kHeldMax || leaving_; });
      events_.push_back(event);
      changed_.notify_all();
    }
    const grpc::Status status = reader_->Finish();
    const std::scoped_lock lock(mutex_);
    status_ = status;
    ended_ = true;
    changed_.notify_all();
  }

  static constexpr std::size_t kHeldMax = 10'000;
  grpc::ClientContext call_;
  std::unique_ptr<grpc::ClientReader<v1::Event>> reader_;
  mutable std::mutex mutex_;  // guards: the members below, but for thread_
  std::condition_variable changed_;
  std::vector<v1::Event> events_;
  bool leaving_ = false;
  bool ended_ = false;
  grpc::Status status_;
  std::jthread thread_;  // last: it uses the others
};

/// A sweep that is followed. Whatever happens to the coordinator meanwhile, each event is printed
/// once, in order.
class Watcher {
 public:
  Watcher(Context& context, const v1::SweepRef& sweep, double interval_s)
      : context_(context),
        sweep_(sweep),
        interval_ms_(static_cast<std::int64_t>(interval_s * 1000)),
        out_(context.printer()),
        redraw_(::isatty(STDERR_FILENO) == 1 && !out_.json()) {}

  Exit run() {
    context_.follow_long([this](const std::function<void()>& heard) { return attempt(heard); });
    if (redraw_) std::fputc('\n', stderr);
    if (interrupted()) {
      out_.note(
          fmt::format("stopped watching; the sweep goes on. `tailor watch {}` follows it again, "
                      "`tailor cancel {}` ends it.",
                      sweep_text(now_.id()), sweep_text(now_.id())));
      return Exit::kInterrupted;
    }
    return report();
  }

 private:
  /// From where the last attempt broke to the sweep's end (or SIGINT). The status of what broke.
  grpc::Status attempt(const std::function<void()>& heard) {
    if (const grpc::Status status = look(); !status.ok()) return status;
    heard();
    // By id from here on: "last" may be another sweep by now.
    sweep_.set_id(now_.id());
    EventStream stream(context_.stub(), sweep_, after_, true);
    MonotonicMs looked_ms = clock_.now_ms();
    bool changed = false;
    while (!ended() && !interrupted()) {
      // An event may be long in coming: SIGINT and a reader that is gone are looked for meanwhile.
      const auto events = stream.take(kWakeMs);
      if (events.empty()) pause_for(0.001);
      changed = changed || !events.empty();
      print(events);
      if (!events.empty()) heard();
      if (stream.over()) return broken(stream.status());
      const MonotonicMs now_ms = clock_.now_ms();
      if (now_ms - looked_ms < (changed ? interval_ms_ : std::max(interval_ms_, kQuietMs)))
        continue;
      if (const grpc::Status status = look(); !status.ok()) return status;
      heard();
      looked_ms = now_ms;
      changed = false;
    }
    return interrupted() ? grpc::Status::OK : print_rest();
  }

  /// A stream that is followed has no good end.
  static grpc::Status broken(const grpc::Status& status) {
    return status.ok() ? grpc::Status(grpc::UNAVAILABLE, "the stream of events ended") : status;
  }

  /// What was committed before the sweep was seen to have ended.
  grpc::Status print_rest() {
    EventStream rest(context_.stub(), sweep_, after_, false);
    while (!rest.over() && !interrupted()) print(rest.take(kWakeMs));
    return interrupted() ? grpc::Status::OK : rest.status();
  }

  /// Asks how the sweep is, and shows it.
  grpc::Status look() {
    v1::GetSweepRequest request;
    *request.mutable_sweep() = sweep_;
    request.set_without_candidates(true);
    v1::GetSweepResponse answer;
    grpc::ClientContext call;
    call.set_deadline(context_.deadline());
    if (const auto status = context_.stub().GetSweep(&call, request, &answer); !status.ok()) {
      return status;
    }
    now_ = answer.sweep();
    if (!redraw_) return grpc::Status::OK;
    v1::ListTrialsRequest best;
    best.mutable_sweep()->set_id(now_.id());
    best.set_state(v1::TRIAL_STATE_COMPLETED);
    best.set_order("objective");
    best.set_limit(1);
    v1::ListTrialsResponse trials;
    grpc::ClientContext second;
    second.set_deadline(context_.deadline());
    if (const auto status = context_.stub().ListTrials(&second, best, &trials); !status.ok()) {
      return status;
    }
    const bool some = trials.trials_size() > 0 && trials.trials(0).has_objective();
    std::fprintf(stderr, "\r\033[K%s",
                 status_line(now_, some ? trials.trials(0).objective() : std::nan("")).c_str());
    std::fflush(stderr);
    return grpc::Status::OK;
  }

  void print(const std::vector<v1::Event>& events) {
    for (const v1::Event& event : events) {
      after_ = std::max(after_, event.id());
      if (redraw_ && out_.terminal()) continue;  // the status line says it
      if (out_.json()) {
        out_.line(to_json(event).dump());
        continue;
      }
      out_.line(fmt::format("{}  {:<18} {:<6} {}", local_time(event.wall_ms()), event.kind(),
                            event.trial() > 0 ? trial_text(event.trial()) : "", event.message()));
    }
    if (!events.empty()) flush_output();
  }

  bool ended() const {
    return now_.state() != v1::SWEEP_STATE_RUNNING && now_.state() != v1::SWEEP_STATE_PAUSED;
  }

  Exit report() const {
    const v1::Sweep& s = now_;
    const auto usable = s.completed() + s.stopped();
    const bool bad = s.failed() > 0 || usable == 0 || s.state() != v1::SWEEP_STATE_COMPLETED ||
                     s.search_points() > s.search_tried();  // the search gave up
    std::string text =
        fmt::format("{} {}: {} completed, {} failed, {} cancelled", sweep_text(s.id()),
                    state_name(s.state()), s.completed(), s.failed(), s.cancelled());
    if (s.stopped() > 0) text += fmt::format(", {} stopped", s.stopped());
    if (s.infeasible() > 0)
      text += fmt::format("; {} points of the space were infeasible", s.infeasible());
    if (!s.message().empty()) text += ". " + s.message();
    if (usable > 0) text += fmt::format(". `tailor compare {}` answers it.", sweep_text(s.id()));
    if (bad || !out_.json()) out_.note(text);
    return bad ? Exit::kSomeFailed : Exit::kOk;
  }

  static constexpr std::int64_t kWakeMs = 100;
  /// How often a sweep of which nothing is heard is looked at all the same.
  static constexpr std::int64_t kQuietMs = 10'000;

  Context& context_;
  v1::SweepRef sweep_;
  const std::int64_t interval_ms_;
  const Printer out_;
  const bool redraw_;
  const SystemClock clock_;
  v1::Sweep now_;
  std::uint64_t after_ = 0;  // the last event that was printed
};

}  // namespace

Exit watch_sweep(Context& context, const v1::SweepRef& sweep, double interval_s) {
  catch_interrupt();
  return Watcher(context, sweep, interval_s).run();
}

void add_watch(CLI::App& app, Context& context) {
  struct Options {
    std::string sweep;
    double interval_s = 1;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "watch",
                  "Follows a sweep until it ends (exit code 4 if trials failed, it was cancelled, "
                  "or nothing was trained).",
                  "  tailor watch last\n  tailor watch s3 --json    one event a line");
  command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
  command->add_option("--interval", options->interval_s, "seconds between looks")
      ->check(CLI::Range(0.1, 3600.0));
  command->callback([&context, options] {
    const Exit exit = watch_sweep(context, sweep_ref(options->sweep), options->interval_s);
    if (exit != Exit::kOk) throw Failure(exit, "");
  });
}

}  // namespace tailor::client
