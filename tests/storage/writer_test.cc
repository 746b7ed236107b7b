// Group commit: order, grouping, back-pressure, failures, shutdown.
#include "storage/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "rows.h"
#include "storage/memory_store.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;

// A memory store whose commits wait at a gate, so that tests decide what arrives meanwhile.
class GatedStore final : public Store {
 public:
  Status commit(std::span<const Mutation> batch) override {
    {
      std::unique_lock lock(mutex_);
      ++entered_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_; });
      sizes_.push_back(batch.size());
    }
    return inner.commit(batch);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait_entered(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return entered_ >= count; });
  }
  std::vector<std::size_t> sizes() {
    const std::lock_guard lock(mutex_);
    return sizes_;
  }

  Result<Snapshot> load() override { return inner.load(); }
  Result<std::vector<SweepRow>> sweeps() const override { return inner.sweeps(); }
  Result<SweepRow> sweep(SweepId id) const override { return inner.sweep(id); }
  Result<SweepRow> sweep_by_name(std::string_view name) const override {
    return inner.sweep_by_name(name);
  }
  Result<std::vector<CandidateRow>> candidates(SweepId id) const override {
    return inner.candidates(id);
  }
  Result<TrialPage> trials(const TrialQuery& query) const override { return inner.trials(query); }
  Result<TrialRow> trial(TrialId id) const override { return inner.trial(id); }
  Result<std::vector<AttemptRow>> attempts(TrialId id) const override { return inner.attempts(id); }
  Result<std::vector<WorkerRow>> workers() const override { return inner.workers(); }
  Result<std::vector<std::string>> metric_names(TrialId id) const override {
    return inner.metric_names(id);
  }
  Result<Series> series(TrialId id, std::string_view metric,
                        std::size_t points_max) const override {
    return inner.series(id, metric, points_max);
  }
  Result<std::vector<CheckpointRow>> checkpoints(TrialId id) const override {
    return inner.checkpoints(id);
  }
  Result<std::vector<ProfileRow>> profile(TrialId id) const override { return inner.profile(id); }
  Result<std::vector<EventRow>> events(std::uint64_t after, std::size_t limit,
                                       std::optional<SweepId> sweep,
                                       std::optional<TrialId> trial) const override {
    return inner.events(after, limit, sweep, trial);
  }
  Result<std::string> log(AttemptId id, std::uint64_t offset,
                          std::size_t bytes_max) const override {
    return inner.log(id, offset, bytes_max);
  }
  Result<Table> query(std::string_view sql, const QueryLimits& limits) const override {
    return inner.query(sql, limits);
  }
  Status backup(const std::string& path) const override { return inner.backup(path); }

  MemoryStore inner;

 private:
  std::mutex mutex_;  // guards: everything below
  std::condition_variable changed_;
  bool open_ = true;
  int entered_ = 0;
  std::vector<std::size_t> sizes_;
};

std::vector<Mutation> event(std::uint64_t number) {
  return {EventRow{0, 1, "e", {}, {}, 0, {}, std::to_string(number)}};
}

TEST(Writer, WhatArrivesDuringACommitSharesTheNext) {
  GatedStore store;
  store.close();
  std::vector<std::uint64_t> order;  // written by the writer's thread, read after flush
  {
    Writer writer(store);
    const auto submit = [&](std::uint64_t number) {
      ASSERT_TRUE(writer
                      .submit(event(number),
                              [&order, number](const Status& status) {
                                EXPECT_TRUE(status.is_ok());
                                order.push_back(number);
                              })
                      .is_ok());
    };
    submit(0);
    store.wait_entered(1);
    for (std::uint64_t number = 1; number <= 9; ++number) submit(number);
    EXPECT_EQ(writer.stats().queued_batches, 10u);
    store.open();
    writer.flush();
    EXPECT_THAT(store.sizes(), ::testing::ElementsAre(1, 9));
    EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    const WriterStats stats = writer.stats();
    EXPECT_EQ(stats.commits, 2u);
    EXPECT_EQ(stats.batches, 10u);
    EXPECT_EQ(stats.mutations, 10u);
    EXPECT_EQ(stats.queued_batches, 0u);
    EXPECT_EQ(stats.queued_mutations, 0u);
  }
  const auto events = store.events(0, 100, {}, {});
  ASSERT_EQ(events->size(), 10u);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ((*events)[i].message, std::to_string(i));
}

TEST(Writer, ATransactionDoesNotGrowWithoutLimit) {
  GatedStore store;
  store.close();
  Writer writer(store, {.queued_mutations_max = 1000, .commit_mutations_max = 4});
  for (std::uint64_t number = 0; number < 10; ++number)
    ASSERT_TRUE(writer.submit(event(number), {}).is_ok());
  store.open();
  writer.flush();
  for (const std::size_t size : store.sizes()) EXPECT_LE(size, 4u);
  EXPECT_EQ(store.events(0, 100, {}, {})->size(), 10u);
}

TEST(Writer, AFullQueueRefusesAndTakesAgainLater) {
  GatedStore store;
  store.close();
  Writer writer(store, {.queued_mutations_max = 3, .commit_mutations_max = 100});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(writer.submit(event(1), {}).is_ok());
  std::atomic<bool> called = false;
  const Status refused = writer.submit(event(2), [&](const Status&) { called = true; });
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_EQ(writer.stats().refused_batches, 1u);
  store.open();
  writer.flush();
  EXPECT_FALSE(called);
  // A batch over the limit is taken when nothing waits: it could never be otherwise.
  std::vector<Mutation> large;
  for (int i = 0; i < 10; ++i) large.push_back(event(3).front());
  EXPECT_TRUE(writer.submit(large, {}).is_ok());
  writer.flush();
  EXPECT_EQ(store.events(0, 100, {}, {})->size(), 13u);
}

TEST(Writer, AFullDiskFailsAllBatchesOfTheTransactionAndIsRemembered) {
  GatedStore store;
  store.close();
  Writer writer(store);
  std::vector<Code> codes;
  const auto note = [&](const Status& status) { codes.push_back(status.code()); };
  ASSERT_TRUE(writer.submit(event(0), note).is_ok());
  store.wait_entered(1);
  ASSERT_TRUE(writer.submit(event(1), note).is_ok());
  ASSERT_TRUE(writer.submit(event(2), note).is_ok());
  store.inner.set_fault(Status(Code::kResourceExhausted, "disk full"));
  store.open();
  writer.flush();
  EXPECT_THAT(codes, ::testing::Each(Code::kResourceExhausted));
  EXPECT_EQ(codes.size(), 3u);
  EXPECT_EQ(writer.stats().failed_commits, 2u);
  EXPECT_THAT(writer.stats().last_error.message(), HasSubstr("disk full"));
  store.inner.set_fault({});
  ASSERT_TRUE(writer.submit(event(3), note).is_ok());
  writer.flush();
  EXPECT_EQ(codes.back(), Code::kOk);
  EXPECT_TRUE(writer.stats().last_error.is_ok());
  EXPECT_EQ(store.events(0, 100, {}, {})->size(), 1u);
}

TEST(Writer, AWrongBatchDoesNotTakeItsNeighboursWithIt) {
  GatedStore store;
  store.close();
  Writer writer(store);
  std::vector<Code> codes;
  const auto note = [&](const Status& status) { codes.push_back(status.code()); };
  ASSERT_TRUE(writer.submit(event(0), note).is_ok());
  store.wait_entered(1);
  ASSERT_TRUE(writer.submit(event(1), note).is_ok());
  ASSERT_TRUE(writer.submit({make_candidate(7, 0)}, note).is_ok());  // its sweep does not exist
  ASSERT_TRUE(writer.submit(event(2), note).is_ok());
  store.open();
  writer.flush();
  EXPECT_THAT(codes,
              ::testing::ElementsAre(Code::kOk, Code::kOk, Code::kFailedPrecondition, Code::kOk));
  EXPECT_EQ(store.events(0, 100, {}, {})->size(), 3u);
}

TEST(Writer, DestructionCommitsWhatWaits) {
  GatedStore store;
  store.close();
  std::atomic<int> done = 0;
  {
    Writer writer(store);
    for (std::uint64_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(
          writer.submit(event(i), [&](const Status& status) { done += status.is_ok() ? 1 : 0; })
              .is_ok());
    }
    store.open();
  }
  EXPECT_EQ(done, 5);
  EXPECT_EQ(store.events(0, 100, {}, {})->size(), 5u);
}

TEST(Writer, ManyThreadsSubmitAndEachSeesItsOwnOrder) {
  MemoryStore store;
  std::mutex mutex;  // guards: seen
  std::vector<std::vector<std::uint64_t>> seen(4);
  {
    Writer writer(store);
    std::vector<std::jthread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint64_t i = 0; i < 200; ++i) {
          ASSERT_TRUE(writer
                          .submit(event(i),
                                  [&, thread, i](const Status& status) {
                                    EXPECT_TRUE(status.is_ok());
                                    const std::lock_guard lock(mutex);
                                    seen[thread].push_back(i);
                                  })
                          .is_ok());
        }
      });
    }
    threads.clear();
    writer.flush();
    EXPECT_EQ(writer.stats().batches, 800u);
  }
  for (const auto& order : seen) {
    ASSERT_EQ(order.size(), 200u);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
  EXPECT_EQ(store.events(0, 1000)->size(), 800u);
}

}  // namespace
}  // namespace tailor::storage
