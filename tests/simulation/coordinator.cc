#include "tests/simulation/coordinator.h"

#include <fmt/format.h>

namespace tailor::simulation {
namespace {

constexpr std::int64_t kRetryCommitMs = 500;
constexpr std::int64_t kStallMs = 1'000;
constexpr std::uint64_t kCheckedPerStep = 200;  // workers and trials that are looked at a step
constexpr std::size_t kRoundWeightMax = 200;    // small: rounds are cut by weight too

core::Options core_options() {
  core::Options options;
  options.heartbeat_ms = 1'000;
  options.lease_ms = 8'000;
  options.backoff_ms = 500;
  options.queue_ahead = 5;
  options.draws_per_step = 3;
  options.reserve_after_ms = 5'000;
  options.holder_wait_ms = 4'000;
  options.worker_pause_ms = 500;
  options.probe_after_ms = 4'000;
  return options;
}

/// A search algorithm with a witness: no candidate may be heard of twice.
class Witnessed final : public search::Algorithm {
 public:
  Witnessed(std::unique_ptr<search::Algorithm> inner, std::string sweep,
            std::set<std::string>* heard, Context* c)
      : inner_(std::move(inner)), sweep_(std::move(sweep)), heard_(heard), c_(c) {}

  void update(std::span<const search::Observation> finished) override {
    for (const search::Observation& observation : finished) {
      const std::string key = sweep_ + ": " + sweep::point_name(observation.point);
      if (!heard_->insert(key).second) c_->fail("the search heard twice of " + key);
      c_->count("search updates");
    }
    inner_->update(finished);
  }
  std::vector<sweep::Point> suggest(std::size_t count) override { return inner_->suggest(count); }
  void refuse() override { inner_->refuse(); }
  bool exhausts_space() const override { return inner_->exhausts_space(); }
  std::optional<std::uint64_t> remaining() const override { return inner_->remaining(); }
  std::string save() const override { return inner_->save(); }
  Status load(std::string_view text) override { return inner_->load(text); }

 private:
  std::unique_ptr<search::Algorithm> inner_;
  const std::string sweep_;
  std::set<std::string>* heard_;
  Context* c_;
};

}  // namespace

Coordinator::Coordinator(Context& context, CheckedStore& store, Ledger& ledger)
    : c_(context), store_(store), ledger_(ledger), leases_(context, core_options().lease_ms) {}

core::Now Coordinator::read_clock() const { return {c_.now() + clock_offset_, c_.clock.wall_ms()}; }

void Coordinator::start() {
  const auto snapshot = store_.load();
  if (!snapshot) return c_.fail("the store does not load: " + snapshot.error().to_string());
  clock_offset_ = c_.up_to(1'000'000'000);  // another boot, another origin
  auto loaded = core::load(*snapshot, core_options(), read_clock());
  if (!loaded) return c_.fail("the state does not load: " + loaded.error().to_string());
  heard_ = heard_committed_;
  wrap_searches(*loaded);
  driver_ = std::make_unique<core::Driver>(std::move(*loaded));
  driver_->set_witness(
      [this](core::State& state, const core::Event& event, std::span<const core::Outward> outward) {
        witness(state, event, outward);
      });
  c_.trace("C", "starts");
  set_timer();
}

void Coordinator::crash() {
  if (!up()) return;
  c_.count("coordinator crash");
  c_.trace("C", "crashes");
  const std::string before = busy_ ? "" : core::durable_text(state());
  if (std::exchange(committing_, false) && !store_.full && c_.chance(0.5)) {
    // The disk had written it, all of it, and nobody ever heard.
    c_.count("coordinator crash: after a commit that nobody heard of");
    (void)store_.commit(transaction_.writes);
    heard_committed_ = heard_;
  }
  driver_.reset();
  leases_.forget();
  inbox_ = {};
  asked_.clear();
  transaction_ = {};
  busy_ = false;
  deaf_ms_ = 0;
  ++life_;
  ++timer_;
  if (before.empty()) return c_.count("coordinator crash: before a commit");
  // Nothing was under way, so the disk must give back the very state that was there.
  const auto loaded = core::load(store_.load().value(), core_options(), read_clock());
  if (!loaded) return c_.fail("the state does not load: " + loaded.error().to_string());
  const std::string after = core::durable_text(*loaded);
  if (after != before) {
    std::size_t at = 0;
    while (at < before.size() && at < after.size() && before[at] == after[at]) ++at;
    const std::size_t from = at < 100 ? 0 : at - 100;
    c_.fail(fmt::format("a restart changes the state: '{}' became '{}'", before.substr(from, 300),
                        after.substr(from, 300)));
  }
}

void Coordinator::post(core::Event event) {
  if (!up()) return;
  const core::Now at = read_clock();
  leases_.arrived(event, at.mono_ms);
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { e.recalled; }) asked_.insert_or_assign(e.request, event);
      },
      event);
  inbox_.post(std::move(event), at, Nothing{});
  pump();
}

void Coordinator::pump() {
  if (!up() || busy_) return;
  busy_ = true;
  round_began_ = c_.now();
  c_.after(0, [this, life = life_] {
    if (life == life_) run_round();
  });
}

void Coordinator::run_round() {
  core::Round round;
  // Any number of events, so that every cut of the queue is met.
  const std::size_t size = 1 + c_.rng.below(c_.faults.batch_max);
  for (auto& entry : inbox_.take(size, kRoundWeightMax, read_clock(), &round.heard)) {
    round.arrivals.push_back(std::move(entry.arrival));
  }
  heard_ms_ = round.heard.mono_ms;
  round.deaf_ms = std::exchange(deaf_ms_, 0);
  transaction_ = driver_->run(std::move(round));
  if (!c_.failure().empty()) return;
  c_.trace("C", fmt::format("round -> {} rows, {} messages", transaction_.writes.size(),
                            transaction_.release.size()));
  std::int64_t commit_ms = 0;
  if (!transaction_.writes.empty()) {
    committing_ = true;
    commit_ms = c_.up_to(c_.healed ? 5 : c_.faults.commit_ms_max) + std::exchange(hang_ms_, 0);
  }
  c_.after(commit_ms, [this, life = life_] {
    if (life == life_) finish_commit();
  });
}

void Coordinator::finish_commit() {
  if (!transaction_.writes.empty()) {
    if (!store_.commit(transaction_.writes).is_ok()) {
      return c_.after(kRetryCommitMs, [this, life = life_] {
        if (life == life_) finish_commit();
      });
    }
    committing_ = false;
    leases_.committed(transaction_.writes, heard_ms_);
    transaction_.writes.clear();
  }
  heard_committed_ = heard_;
  // Durable. A crash may still come before anybody hears of it.
  c_.after(0, [this, life = life_] {
    if (life != life_) return;
    std::vector<core::Outward> outward = std::move(transaction_.release);
    busy_ = false;
    const std::int64_t gap = c_.now() - round_began_;
    if (gap >= kStallMs) {
      c_.count("stall");
      deaf_ms_ += gap;
    }
    set_timer();
    release(std::move(outward));
    if (!inbox_.empty()) pump();
  });
}

void Coordinator::release(std::vector<core::Outward> outward) {
  for (core::Outward& out : outward) {
    if (auto* message = std::get_if<core::SendTo>(&out)) {
      ledger_.released(message->message);
      send(message->session, std::move(message->message));
    } else if (auto* ended = std::get_if<core::CloseSession>(&out)) {
      close(ended->session, ended->status);
    } else if (auto* answer = std::get_if<core::Reply>(&out)) {
      answered(*answer);
    }
  }
}

/// An answer goes to who asked; but rows that are wanted are read, some time later, and the request
/// comes again with them.
void Coordinator::answered(const core::Reply& answer) {
  const auto* wanted = std::get_if<core::RowsWanted>(&answer.body);
  if (wanted == nullptr) {
    asked_.erase(answer.request);
    return reply(answer);
  }
  c_.count("request: rows wanted");
  c_.after(c_.up_to(50), [this, life = life_, request = answer.request, wanted = *wanted] {
    if (life != life_) return;
    auto rows = store_.rows(wanted);
    if (!rows) return c_.fail("rows cannot be read: " + rows.error().to_string());
    core::Event event = asked_.at(request);
    engine::attach_rows(event, std::move(*rows));
    post(std::move(event));
  });
}

void Coordinator::witness(core::State& state, const core::Event& event,
                          std::span<const core::Outward> outward) {
  c_.count("core steps");
  // Each look costs as much as the state is large: of a large one, looks are rarer.
  if (++steps_unchecked_ * kCheckedPerStep >= state.workers.size() + state.trials.size()) {
    steps_unchecked_ = 0;
    const Status sound = core::check_invariants(state);
    if (!sound.is_ok()) return c_.fail("invariant: " + sound.message());
  }
  leases_.dealt_with(state, event);
  check_outward(state, outward);
  wrap_searches(state);
  c_.trace("C", fmt::format("event {} -> {} messages", event.index(), outward.size()));
}

/// No effect names what is not there.
void Coordinator::check_outward(const core::State& state, std::span<const core::Outward> outward) {
  for (const core::Outward& out : outward) {
    const auto* message = std::get_if<core::SendTo>(&out);
    if (message == nullptr) continue;
    if (!state.worker_by_session.contains(message->session)) {
      c_.fail(fmt::format("a message goes to session {}, which is not open", message->session));
    }
    const auto* assign = std::get_if<protocol::Assign>(&message->message);
    if (assign == nullptr) continue;
    const auto trial = state.trials.find(assign->spec.trial);
    if (trial == state.trials.end() || !trial->second.live ||
        trial->second.live->row.token != assign->spec.token) {
      c_.fail(fmt::format("{} is sent out without being live", assign->spec.trial.to_string()));
    }
  }
}

void Coordinator::wrap_searches(core::State& state) {
  for (auto& [id, sweep] : state.sweeps) {
    if (!sweep.algorithm || dynamic_cast<Witnessed*>(sweep.algorithm.get()) != nullptr) continue;
    sweep.algorithm =
        std::make_unique<Witnessed>(std::move(sweep.algorithm), sweep.row.name, &heard_, &c_);
  }
}

void Coordinator::set_timer() {
  const std::uint64_t timer = ++timer_;
  const auto call_at_ms = driver_->call_at_ms();
  for (std::size_t i = 0; i < core::kDeadlineKinds; ++i) {
    const auto& all = state().deadlines.all(static_cast<core::DeadlineKind>(i));
    if (!all.empty() && call_at_ms.value_or(all.begin()->first + 1) > all.begin()->first) {
      c_.fail(
          fmt::format("something of kind {} is due at {} ms, and the driver does not ask to be "
                      "called for it",
                      i, all.begin()->first));
    }
  }
  if (!call_at_ms) return;
  c_.after(*call_at_ms - read_clock().mono_ms, [this, timer] {
    if (timer == timer_) pump();
  });
}

}  // namespace tailor::simulation
