// A backup that is put back: the coordinator goes on as of then, and what lived on after the backup
// clashes with nothing and is not taken for its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "storage/sqlite_store.h"
#include "tests/coordinator/engine/support.h"
#include "tests/support/temporary_folder.h"

namespace tailor::engine {
namespace {

using testing::Answer;
using testing::eventually;
using testing::hello;
using testing::RecordingSink;
using testing::submit_event;
using testing::sweep_text;

class Restore : public ::testing::Test {
 protected:
  void start() {
    storage::SqliteOptions options;
    options.allow_network_file_system = true;
    auto store = storage::open_sqlite(path_, options);
    ASSERT_TRUE(store.has_value()) << status_of(store).message();
    store_ = std::move(*store);
    auto engine = Engine::start(*store_, clock_, {}, {});
    ASSERT_TRUE(engine.has_value()) << status_of(engine).message();
    engine_ = std::move(*engine);
  }
  void stop() {
    engine_.reset();
    store_.reset();
  }
  SweepId submit(const std::string& name) {
    Answer answer;
    engine_->request(submit_event(sweep_text(name)), answer.handler());
    EXPECT_TRUE(answer.wait());
    EXPECT_TRUE(answer.status().is_ok()) << answer.status().message();
    return answer.submitted().sweep;
  }
  void complete(core::SessionId session, const protocol::TrialSpec& spec) {
    protocol::Reports reports;
    reports.ref = {{spec.trial, spec.attempt}, spec.token};
    reports.reports.push_back({1, 1, protocol::StartedReport{}});
    protocol::EndReport end;
    end.values = {{"validation_loss", 3.0}};
    reports.reports.push_back({2, 2, end});
    engine_->session_message(session, reports);
  }
  protocol::TrialSpec nth_order(const std::shared_ptr<RecordingSink>& sink, std::size_t n) {
    EXPECT_TRUE(eventually([&] { return sink->received<protocol::Assign>().size() > n; }));
    return sink->received<protocol::Assign>().at(n).spec;
  }

  const test::TemporaryFolder folder_;
  const std::string path_ = folder_.file("tailor.db");
  ManualClock clock_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(Restore, WhatLivedOnIsStoppedAndNewAttemptsHaveTokensOfTheirOwn) {
  start();
  submit("one");
  auto before = std::make_shared<RecordingSink>();
  const auto session = engine_->open_session(before, hello("node1"));
  const protocol::TrialSpec first = nth_order(before, 0);
  const std::string backup = folder_.file("backup.db");
  ASSERT_TRUE(store_->backup(backup).is_ok());
  // Life goes on after it: the first trial completes, the second one runs, another sweep comes.
  complete(session, first);
  const protocol::TrialSpec second = nth_order(before, 1);
  const SweepId lost = submit("lost");
  stop();
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + suffix);
  std::filesystem::copy_file(backup, path_);

  start();
  EXPECT_EQ(submit("another"), lost) << "numbers may come again";
  auto after = std::make_shared<RecordingSink>();
  protocol::Hello again = hello("node1");
  const protocol::AttemptRef lived{{second.trial, second.attempt}, second.token};
  again.held = {{lived, {0}, true, 0}};
  const auto session_after = engine_->open_session(after, again);
  ASSERT_TRUE(eventually([&] { return !after->received<protocol::Welcome>().empty(); }));
  const protocol::Welcome welcome = after->received<protocol::Welcome>().front();
  ASSERT_EQ(welcome.held.size(), 1u);
  EXPECT_FALSE(welcome.held[0].keep) << "the restored file knows nothing of it";

  // Its reports count for nothing, whatever its number.
  complete(session_after, second);
  ASSERT_TRUE(eventually([&] { return !after->received<protocol::Stop>().empty(); }));
  EXPECT_EQ(after->received<protocol::Stop>().front().ref, lived);
  EXPECT_TRUE(after->received<protocol::Stop>().front().discard);

  // The restored file thinks that the first trial was just given out; what became of that, it
  // cannot know: it is tried again. All orders have tokens above everything that lived.
  std::size_t orders = 0;
  bool second_again = false;
  ASSERT_TRUE(eventually([&] {
    const auto assigned = after->received<protocol::Assign>();
    for (; orders < assigned.size(); ++orders) {
      const protocol::TrialSpec& spec = assigned[orders].spec;
      EXPECT_GT(spec.token >> storage::kGenerationShift, 0u) << spec.trial.to_string();
      if (spec.trial == first.trial) {
        EXPECT_GE(spec.attempt, 2u);
      }
      second_again |= spec.trial == second.trial && spec.attempt == second.attempt;
      complete(session_after, spec);
    }
    clock_.advance(100);  // back-offs pass
    engine_->poke();
    const auto rows = store_->trials({});
    return std::all_of(rows->trials.begin(), rows->trials.end(), [](const auto& row) {
      return row.state == storage::TrialState::kCompleted;
    });
  }));
  EXPECT_TRUE(second_again) << "the same number, another token: another folder";
  stop();
}

}  // namespace
}  // namespace tailor::engine
