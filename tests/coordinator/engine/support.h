// Shared by the tests of engine, rpc and http: a small sweep file, a store whose commits can be
// held and refused, and waiting with a deadline.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/event.h"
#include "coordinator/engine/engine.h"
#include "storage/memory_store.h"
#include "sweep/spec.h"

namespace tailor::testing {

/// A sweep with two candidates, "plain" and "wide", and `seeds` seeds each.
inline std::string sweep_text(const std::string& name = "taper", int seeds = 2) {
  return "name = \"" + name + R"("
description = "plain < wide?"
objectives = ["validation_loss"]
baseline = "plain"
[data]
train = "train.tokens"
validation = "validation.tokens"
sequence_length = 16
[architecture]
family = "llama"
d_model = 32
layers = 2
head_dim = 16
vocab_size = 256
ffn = { kind = "swiglu", d_h = 64 }
[[candidate]]
name = "plain"
[[candidate]]
name = "wide"
"ffn.d_h" = 96
[train]
tokens = 1024
batch = 64
[seeds]
count = )" +
         std::to_string(seeds) + "\n";
}

inline core::SubmitSweep submit_event(const std::string& text) {
  core::SubmitSweep event;
  auto spec = sweep::parse(text, "sweep.toml", "/data");
  EXPECT_TRUE(spec.has_value()) << (spec.has_value() ? "" : spec.error().message());
  event.spec = std::make_shared<const sweep::Spec>(*spec);
  event.toml = text;
  event.base_dir = "/data";
  event.hash = sweep::spec_hash(text, "/data");
  return event;
}

inline protocol::Hello hello(const std::string& name, std::uint32_t slots = 1) {
  protocol::Hello hello;
  hello.worker_name = name;
  hello.instance = "instance-1";
  hello.version = "1.2.3";
  hello.host = "localhost";
  for (std::uint32_t i = 0; i < slots; ++i) {
    hello.slots.push_back({i, protocol::DeviceKind::kCpu, "cpu", 0, 1});
  }
  return hello;
}

/// True once `condition` holds; false after a minute.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 12'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

/// A MemoryStore whose commits wait while `hold` is in force. Everything else passes through.
class GatedStore final : public storage::Store {
 public:
  storage::MemoryStore inner;

  void hold(bool held) {
    const std::scoped_lock lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  /// Commits that were begun.
  int begun() const {
    const std::scoped_lock lock(mutex_);
    return static_cast<int>(sizes_.size());
  }
  /// Mutations of each commit that was begun.
  std::vector<std::size_t> sizes() const {
    const std::scoped_lock lock(mutex_);
    return sizes_;
  }

  Status commit(std::span<const storage::Mutation> batch) override {
    {
      std::unique_lock lock(mutex_);
      sizes_.push_back(batch.size());
      changed_.wait(lock, [this] { return !held_; });
    }
    return inner.commit(batch);
  }

  Result<storage::Snapshot> load() override { return inner.load(); }
  Result<storage::Snapshot> load_open() override { return inner.load_open(); }
  Result<bool> maintain() override { return inner.maintain(); }
  Result<storage::Pruned> prune(const storage::PruneRules& rules, WallMs now_ms) override {
    return inner.prune(rules, now_ms);
  }
  Status still_there() const override { return inner.still_there(); }
  storage::StoreHealth health() const override { return inner.health(); }
  Result<storage::TrialCounts> trial_counts(SweepId id) const override {
    return inner.trial_counts(id);
  }
  Result<storage::CurvePage> curves(const storage::CurveQuery& q) const override {
    return inner.curves(q);
  }
  Result<std::optional<storage::PrunedTrial>> pruned(TrialId id) const override {
    return inner.pruned(id);
  }
  Result<std::uint64_t> trials_without_points(SweepId id, TrialId after) const override {
    return inner.trials_without_points(id, after);
  }
  Result<std::optional<storage::MeasurementRow>> measurement(TrialId id) const override {
    return inner.measurement(id);
  }
  Result<std::optional<storage::Measured>> measured(std::string_view key) const override {
    return inner.measured(key);
  }
  Result<std::vector<storage::ScheduleRow>> schedules(SweepId id) const override {
    return inner.schedules(id);
  }
  Result<std::vector<storage::SweepRow>> sweeps() const override { return inner.sweeps(); }
  Result<storage::SweepRow> sweep(SweepId id) const override { return inner.sweep(id); }
  Result<storage::SweepRow> sweep_by_name(std::string_view name) const override {
    return inner.sweep_by_name(name);
  }
  Result<std::vector<storage::CandidateRow>> candidates(SweepId id) const override {
    return inner.candidates(id);
  }
  Result<storage::SweepPage> sweep_page(std::uint64_t offset, std::uint64_t limit) const override {
    return inner.sweep_page(offset, limit);
  }
  Result<storage::CandidatePage> candidate_page(SweepId id, std::uint64_t offset,
                                                std::uint64_t limit) const override {
    return inner.candidate_page(id, offset, limit);
  }
  Result<storage::CandidateRow> candidate(SweepId id, std::uint32_t number) const override {
    return inner.candidate(id, number);
  }
  Result<storage::TrialPage> trials(const storage::TrialQuery& q) const override {
    return inner.trials(q);
  }
  Result<storage::TrialRow> trial(TrialId id) const override { return inner.trial(id); }
  Result<std::vector<storage::AttemptRow>> attempts(TrialId id) const override {
    return inner.attempts(id);
  }
  Result<std::vector<storage::StartRow>> starts(SweepId id) const override {
    return inner.starts(id);
  }
  Result<std::vector<storage::WorkerRow>> workers() const override { return inner.workers(); }
  Result<std::vector<std::string>> metric_names(TrialId id) const override {
    return inner.metric_names(id);
  }
  Result<storage::Series> series(TrialId id, std::string_view metric,
                                 std::size_t points_max) const override {
    return inner.series(id, metric, points_max);
  }
  Result<std::vector<storage::CheckpointRow>> checkpoints(TrialId id) const override {
    return inner.checkpoints(id);
  }
  Result<std::vector<storage::ProfileRow>> profile(TrialId id) const override {
    return inner.profile(id);
  }
  Result<std::vector<storage::EventRow>> events(std::uint64_t after, std::size_t limit,
                                                std::optional<SweepId> sweep,
                                                std::optional<TrialId> trial) const override {
    return inner.events(after, limit, sweep, trial);
  }
  Result<std::string> log(AttemptId id, std::uint64_t offset,
                          std::size_t bytes_max) const override {
    return inner.log(id, offset, bytes_max);
  }
  Result<std::optional<std::uint64_t>> log_from(AttemptId id, std::uint64_t offset) const override {
    return inner.log_from(id, offset);
  }
  Result<storage::Table> query(std::string_view sql,
                               const storage::QueryLimits& limits) const override {
    return inner.query(sql, limits);
  }
  Status backup(const std::string& path) const override { return inner.backup(path); }

 private:
  mutable std::mutex mutex_;  // guards: held_, sizes_
  std::condition_variable changed_;
  bool held_ = false;
  std::vector<std::size_t> sizes_;
};

/// What a request was answered, and whether.
class Answer {
 public:
  engine::Engine::ReplyHandler handler() {
    return [this](const Status& status, const core::ReplyBody& body) {
      const std::scoped_lock lock(mutex_);
      status_ = status;
      body_ = body;
      ++times_;
    };
  }
  int times() const {
    const std::scoped_lock lock(mutex_);
    return times_;
  }
  Status status() const {
    const std::scoped_lock lock(mutex_);
    return status_;
  }
  core::SubmitOutcome submitted() const {
    const std::scoped_lock lock(mutex_);
    const auto* outcome = std::get_if<core::SubmitOutcome>(&body_);
    return outcome == nullptr ? core::SubmitOutcome{} : *outcome;
  }
  bool wait() const {
    return eventually([this] { return times() > 0; });
  }

 private:
  mutable std::mutex mutex_;  // guards: all below
  Status status_;
  core::ReplyBody body_;
  int times_ = 0;
};

/// Remembers what a worker would have received.
class RecordingSink final : public engine::SessionSink {
 public:
  void send(protocol::CoordinatorMessage message) override {
    const std::scoped_lock lock(mutex_);
    messages_.push_back(std::move(message));
  }
  void close(const Status& status) override {
    const std::scoped_lock lock(mutex_);
    closed_.push_back(status);
  }
  template <typename M>
  std::vector<M> received() const {
    const std::scoped_lock lock(mutex_);
    std::vector<M> found;
    for (const auto& message : messages_) {
      if (const auto* m = std::get_if<M>(&message)) found.push_back(*m);
    }
    return found;
  }
  std::size_t count() const {
    const std::scoped_lock lock(mutex_);
    return messages_.size();
  }
  std::vector<Status> closed() const {
    const std::scoped_lock lock(mutex_);
    return closed_;
  }

 private:
  mutable std::mutex mutex_;  // guards: all below
  std::vector<protocol::CoordinatorMessage> messages_;
  std::vector<Status> closed_;
};

}  // namespace tailor::testing
