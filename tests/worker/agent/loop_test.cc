// The real loop with real processes (fake_trainer) and real files;
// the coordinator is a Link in the test.
#include "worker/agent/loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "base/file.h"
#include "base/hash.h"
#include "model/shape/architecture.h"
#include "tests/worker/agent/agent_harness.h"
#include "tests/worker/agent/temporary_folder.h"
#include "worker/agent/checkpoint_files.h"
#include "worker/agent/process/cgroup.h"

namespace tailor::agent {
namespace {

using protocol::AttemptRef;
using protocol::EndClass;
using protocol::EndReport;
using testing::HasSubstr;
using testing::SizeIs;

const AttemptRef kA = attempt_ref(41, 1);
const AttemptRef kB = attempt_ref(41, 2);

/// Welcomes, stores and acknowledges, as a coordinator does.
class FakeCoordinator final : public Link {
 public:
  explicit FakeCoordinator(Mailbox& mailbox) : mailbox_(mailbox) {}
  void open(std::uint64_t session) override {
    session_ = session;
    mailbox_.post(SessionOpened{session});
  }
  void close(std::uint64_t session) override {
    mailbox_.post(SessionClosed{session, Status(Code::kCancelled, "closed")});
  }
  void send(std::uint64_t session, const protocol::WorkerMessage& message) override {
    if (const auto* hello = std::get_if<protocol::Hello>(&message)) {
      hellos.push_back(*hello);
      protocol::Welcome welcome{WorkerId{1}, 200, lease_ms, {}};
      for (const auto& held : hello->held) {
        welcome.held.push_back(
            {held.ref, !fenced, reports[held.ref].size(), logs[held.ref].size()});
      }
      mailbox_.post(Received{session, welcome});
    } else if (const auto* batch = std::get_if<protocol::Reports>(&message)) {
      auto& stored = reports[batch->ref];
      for (const auto& report : batch->reports) {
        if (report.sequence == stored.size() + 1) stored.push_back(report);
        EXPECT_LE(report.sequence, stored.size()) << "a report was left out";
      }
      if (acknowledges)
        mailbox_.post(Received{session, protocol::ReportsAck{batch->ref, stored.size()}});
    } else if (const auto* chunk = std::get_if<protocol::LogChunk>(&message)) {
      std::string& log = logs[chunk->ref];
      EXPECT_LE(chunk->offset, log.size()) << "a piece of the log was left out";
      if (chunk->offset <= log.size())
        log.replace(static_cast<std::size_t>(chunk->offset), std::string::npos, chunk->bytes);
      mailbox_.post(Received{session, protocol::LogAck{chunk->ref, log.size()}});
    } else if (const auto* refusal = std::get_if<protocol::Refused>(&message)) {
      refused.push_back(*refusal);
    } else if (const auto* address = std::get_if<protocol::Rendezvous>(&message)) {
      rendezvous.push_back(*address);
    } else if (const auto* member = std::get_if<protocol::MemberEnded>(&message)) {
      members_ended.push_back(*member);
    } else if (const auto* heartbeat = std::get_if<protocol::Heartbeat>(&message)) {
      beats.push_back(*heartbeat);
      mailbox_.post(Received{session, protocol::HeartbeatAck{heartbeat->serial}});
    }
  }
  void tell(protocol::CoordinatorMessage message) {
    mailbox_.post(Received{session_, std::move(message)});
  }
  const EndReport* end(const AttemptRef& ref) {
    const auto& stored = reports[ref];
    return stored.empty() ? nullptr : std::get_if<EndReport>(&stored.back().body);
  }
  std::map<std::int64_t, double> losses(const AttemptRef& ref) {
    std::map<std::int64_t, double> found;
    for (const auto& report : reports[ref]) {
      if (const auto* metric = std::get_if<protocol::MetricReport>(&report.body)) {
        found[metric->step] = metric->values.at("train_loss");
      }
    }
    return found;
  }

  bool has_refused(const AttemptRef& ref) const {
    return std::any_of(refused.begin(), refused.end(),
                       [&](const protocol::Refused& one) { return one.ref == ref; });
  }

  std::vector<protocol::Hello> hellos;
  std::vector<protocol::Refused> refused;
  std::vector<protocol::Rendezvous> rendezvous;
  std::vector<protocol::MemberEnded> members_ended;
  std::vector<protocol::Heartbeat> beats;
  std::map<AttemptRef, std::vector<protocol::Report>> reports;
  std::map<AttemptRef, std::string> logs;
  std::int64_t lease_ms = 60'000;
  bool fenced = false;
  bool acknowledges = true;

 private:
  Mailbox& mailbox_;
  std::uint64_t session_ = 0;
};

class LoopTest : public testing::Test {
 protected:
  LoopTest() {
    config_.options.worker_name = "node1";
    config_.options.instance = "i1";
    config_.options.slots = {{0, protocol::DeviceKind::kCpu, "cpu", 0, 1},
                             {1, protocol::DeviceKind::kCpu, "cpu", 0, 1}};
    config_.options.stop_grace_ms = 10'000;
    config_.options.backoff_first_ms = 20;
    config_.visible_devices = {"", ""};
    config_.trials_dir = folder_.file("trials");
    config_.trainer = std::string(TAILOR_BIN_DIR) + "/fake_trainer";
    config_.tick_ms = 10;
    start_daemon();
  }
  ~LoopTest() override {
    // Whatever a failed test left running is ours to end.
    std::vector<std::string> ignored;
    const auto notes = find_attempts(config_.trials_dir, "node1", &ignored);
    if (!notes) return;
    for (const AttemptNote& note : *notes) {
      if (is_alive(note.process)) ::kill(-note.process.pid, SIGKILL);
    }
  }

  void start_daemon() {
    loop_.reset();
    mailbox_ = std::make_unique<Mailbox>();
    auto before = std::move(coordinator_);
    coordinator_ = std::make_unique<FakeCoordinator>(*mailbox_);
    if (before) {
      coordinator_->reports = before->reports;
      coordinator_->logs = before->logs;
      coordinator_->lease_ms = before->lease_ms;
      coordinator_->fenced = before->fenced;
    }
    loop_ = std::make_unique<AgentLoop>(config_, clock_, *coordinator_, *mailbox_, -1);
    const Status started = loop_->start();
    ASSERT_TRUE(started.is_ok()) << started.message();
    ASSERT_TRUE(run_until([&] { return loop_->state().session_phase == SessionPhase::kWelcomed; }));
  }
  /// The daemon dies without a word; its trainers do not notice.
  void kill_daemon() { loop_.reset(); }

  bool run_until(const std::function<bool()>& condition, std::int64_t limit_ms = 60'000) {
    const MonotonicMs deadline = clock_.now_ms() + limit_ms;
    while (!condition()) {
      if (clock_.now_ms() > deadline) return false;
      loop_->run_once();
    }
    return true;
  }
  void assign(const AttemptRef& ref, const std::string& candidate,
              std::vector<std::uint32_t> slots = {0}, std::int64_t progress_limit_ms = 0) {
    protocol::Assign assign = assignment(ref, candidate);
    assign.slots = std::move(slots);
    assign.progress_limit_ms = progress_limit_ms;
    coordinator_->tell(assign);
  }
  static protocol::Assign assignment(const AttemptRef& ref, const std::string& candidate) {
    protocol::Assign assign = AgentHarness::assignment(ref);
    protocol::TrialSpec& spec = assign.spec;
    spec.sweep_name = "test";
    spec.candidate_name = candidate;
    spec.seed = 11;
    spec.data = {"train.tokens", "validation.tokens", 16};
    spec.train.tokens = 640;
    spec.train.batch_tokens = 64;
    shape::Architecture& a = spec.architecture;
    a.d_model = 16;
    a.heads = a.kv_heads = 2;
    a.head_dim = 8;
    a.vocab_size = 64;
    a.widths = shape::uniform_widths(1, 1, 32);
    return assign;
  }
  bool ended(const AttemptRef& ref) { return coordinator_->end(ref) != nullptr; }
  bool gone(const AttemptRef& ref) { return ended(ref) && !loop_->state().attempts.contains(ref); }
  std::string owner() const { return config_.trials_dir + ":" + config_.options.worker_name; }
  std::string file(const AttemptRef& ref, const std::string& name) {
    return AttemptDirectory::path_of(config_.trials_dir, ref) + "/" + name;
  }
  ProcessIdentity process(const AttemptRef& ref) {
    const auto note = AttemptDirectory(file(ref, "")).read_note();
    return note ? note->process : ProcessIdentity{};
  }
  bool steps_reached(const AttemptRef& ref, std::int64_t step) {
    const auto losses = coordinator_->losses(ref);
    return !losses.empty() && losses.rbegin()->first >= step;
  }

  TemporaryFolder folder_;
  SystemClock clock_;
  LoopConfig config_;
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<FakeCoordinator> coordinator_;
  std::unique_ptr<AgentLoop> loop_;
};

TEST_F(LoopTest, ATrialRunsToItsEndAndEverythingArrives) {
  assign(kA, "c;steps=10;step_ms=1");
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kCompleted);
  EXPECT_THAT(coordinator_->losses(kA), SizeIs(10));
  EXPECT_THAT(coordinator_->logs[kA], HasSubstr("from step 0 of 10"));
  EXPECT_TRUE(run_until([&] { return std::filesystem::exists(file(kA, "worker-done.json")); }));
  EXPECT_FALSE(std::filesystem::exists(file(kA, "worker.json")));
  start_daemon();
  EXPECT_THAT(coordinator_->hellos.back().held, testing::IsEmpty());
}

TEST_F(LoopTest, ARestartedDaemonTakesItsRunningTrainerOver) {
  config_.options.trainer_lease_ms = 60'000;
  start_daemon();
  assign(kA, "c;steps=60;step_ms=10");
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 5); }));
  const ProcessIdentity trainer = process(kA);
  kill_daemon();
  EXPECT_TRUE(is_alive(trainer));
  start_daemon();
  ASSERT_THAT(coordinator_->hellos.back().held, SizeIs(1));
  EXPECT_TRUE(coordinator_->hellos.back().held[0].running);
  EXPECT_EQ(process(kA), trainer) << "no second trainer was started";
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kCompleted);
  EXPECT_THAT(coordinator_->losses(kA), SizeIs(60)) << "nothing was lost in between";
}

TEST_F(LoopTest, ATrainerWhoseDaemonIsGoneStopsByItselfAndItsReportsAreSentLater) {
  config_.options.trainer_lease_ms = 500;
  start_daemon();
  assign(kA, "c;steps=100000;step_ms=10");
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 5); }));
  const ProcessIdentity trainer = process(kA);
  kill_daemon();
  ASSERT_TRUE(eventually([&] { return !is_alive(trainer); }, 10'000)) << "an orphan holds the slot";
  start_daemon();
  EXPECT_FALSE(coordinator_->hellos.back().held.at(0).running);
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kStopped);
  EXPECT_THAT(coordinator_->end(kA)->message, HasSubstr("lease"));
  EXPECT_GT(coordinator_->end(kA)->step, 0);
}

TEST_F(LoopTest, ALivingDaemonKeepsATrainerPastItsLease) {
  config_.options.trainer_lease_ms = 600;
  start_daemon();
  assign(kA, "c;steps=200;step_ms=10");
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kCompleted);
}

TEST_F(LoopTest, AKilledTrialResumesInItsNextAttemptWithTheSameValues) {
  assign(attempt_ref(40), "c;steps=40;step_ms=1");
  ASSERT_TRUE(run_until([&] { return gone(attempt_ref(40)); }));

  assign(kA, "c;steps=40;step_ms=10;checkpoint=5;fail=kill@23");
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kInfrastructure);
  EXPECT_THAT(coordinator_->end(kA)->message, HasSubstr("SIGKILL"));
  assign(kB, "c;steps=40;step_ms=1;checkpoint=5");
  ASSERT_TRUE(run_until([&] { return gone(kB); }));
  const auto& first = coordinator_->reports[kB].at(0).body;
  EXPECT_EQ(std::get<protocol::StartedReport>(first).resumed_step, 20);
  const auto whole = coordinator_->losses(attempt_ref(40));
  auto pieced = coordinator_->losses(kA);
  for (const auto& [step, loss] : coordinator_->losses(kB)) pieced[step] = loss;
  EXPECT_EQ(pieced, whole);
  EXPECT_EQ(coordinator_->end(kB)->values, coordinator_->end(attempt_ref(40))->values);
}

TEST_F(LoopTest, EveryWayToFailHasItsClass) {
  const std::pair<const char*, EndClass> cases[] = {{"nan", EndClass::kNan},
                                                    {"oom", EndClass::kOom},
                                                    {"data", EndClass::kData},
                                                    {"user", EndClass::kUser},
                                                    {"mute", EndClass::kNan},
                                                    {"exit0", EndClass::kInfrastructure},
                                                    {"crash", EndClass::kInfrastructure}};
  std::uint64_t trial = 100;
  for (const auto& [kind, end] : cases) {
    SCOPED_TRACE(kind);
    const AttemptRef ref = attempt_ref(++trial);
    assign(ref, std::string("c;steps=5;step_ms=1;fail=") + kind);
    ASSERT_TRUE(run_until([&] { return gone(ref); }));
    EXPECT_EQ(coordinator_->end(ref)->end, end);
  }
}

TEST_F(LoopTest, AStoppedTrainerSavesACheckpointAndReportsIt) {
  assign(kA, "c;steps=100000;step_ms=5");
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 3); }));
  coordinator_->tell(protocol::Stop{kA, protocol::StopReason::kPaused, false});
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kStopped);
  const auto& reports = coordinator_->reports[kA];
  EXPECT_TRUE(std::holds_alternative<protocol::CheckpointReport>(reports[reports.size() - 2].body));
}

TEST_F(LoopTest, ADeafTrainerIsKilledAfterTheGrace) {
  config_.options.stop_grace_ms = 200;
  start_daemon();
  assign(kA, "c;steps=5;step_ms=1;fail=hang");
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 2); }));
  const ProcessIdentity trainer = process(kA);
  coordinator_->tell(protocol::Stop{kA, protocol::StopReason::kCancelled, false});
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kStopped);
  EXPECT_FALSE(is_alive(trainer));
}

TEST_F(LoopTest, AStaleAttemptIsEndedAndTheDaemonTakesTheNext) {
  assign(kA, "c;steps=100000;step_ms=5");
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 3); }));
  const ProcessIdentity trainer = process(kA);
  kill_daemon();
  coordinator_->fenced = true;
  start_daemon();
  ASSERT_TRUE(run_until([&] { return loop_->state().attempts.empty(); }));
  EXPECT_FALSE(is_alive(trainer));
  EXPECT_FALSE(ended(kA));
  assign(kB, "c;steps=3;step_ms=1");
  ASSERT_TRUE(run_until([&] { return gone(kB); }));
  EXPECT_EQ(coordinator_->end(kB)->end, EndClass::kCompleted);
}

TEST_F(LoopTest, AnEndThatTheWorkerWroteSurvivesItsRestart) {
  coordinator_->acknowledges = false;
  assign(kA, "c;steps=5;step_ms=1;fail=kill");
  ASSERT_TRUE(run_until([&] { return ended(kA); }));
  const EndReport before = *coordinator_->end(kA);
  const auto wall = coordinator_->reports[kA].back().wall_ms;
  coordinator_->reports[kA].clear();  // it was never committed
  start_daemon();
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
  EXPECT_EQ(coordinator_->end(kA)->message, before.message);
  EXPECT_EQ(coordinator_->reports[kA].back().wall_ms, wall);
}

TEST_F(LoopTest, AFolderThatCannotBeMadeIsRefusedAndTheDaemonGoesOn) {
  std::ofstream(config_.trials_dir + "/t41") << "a file where a folder should be";
  assign(kA, "c;steps=3;step_ms=1");
  ASSERT_TRUE(run_until([&] { return coordinator_->has_refused(kA); }));
  EXPECT_EQ(coordinator_->refused[0].end, EndClass::kInfrastructure);
  EXPECT_THAT(coordinator_->refused[0].reason, HasSubstr("t41"));
  assign(attempt_ref(42), "c;steps=3;step_ms=1");
  ASSERT_TRUE(run_until([&] { return gone(attempt_ref(42)); }));
  EXPECT_EQ(coordinator_->end(attempt_ref(42))->end, EndClass::kCompleted);
}

TEST_F(LoopTest, ATrainerThatIsNoProgramIsRefusedAndLeavesNothingBehind) {
  config_.trainer = folder_.file("missing-trainer");
  start_daemon();
  assign(kA, "c");
  ASSERT_TRUE(run_until([&] { return coordinator_->has_refused(kA); }));
  EXPECT_EQ(coordinator_->refused[0].end, EndClass::kInfrastructure);
  EXPECT_THAT(coordinator_->refused[0].reason, HasSubstr("missing-trainer"));
  EXPECT_FALSE(std::filesystem::exists(file(kA, "")));
  EXPECT_FALSE(loop_->state().attempts.contains(kA));
}

TEST_F(LoopTest, AHungFileSystemCostsItsTrialAndNotTheHeartbeats) {
  auto open = std::make_shared<std::atomic<bool>>(false);
  auto inside = std::make_shared<std::atomic<int>>(0);
  config_.files_limit_ms = 100;
  config_.options.trainer_lease_ms = 2'000;
  config_.before_files = [open, inside](const AttemptRef& ref, std::string_view job) {
    if (ref != kA || job != "writing the lease") return;
    ++*inside;
    while (!*open) ::poll(nullptr, 0, 5);
  };
  start_daemon();
  assign(kA, "c;steps=100000;step_ms=5", {0});
  ASSERT_TRUE(run_until([&] { return *inside > 0; }));
  ASSERT_TRUE(run_until([&] {
    return !coordinator_->beats.empty() && coordinator_->beats.back().running.empty();
  })) << "it is not spoken for any more";
  const std::size_t beats = coordinator_->beats.size();
  assign(attempt_ref(42), "c;steps=3;step_ms=1", {1});
  ASSERT_TRUE(run_until([&] { return gone(attempt_ref(42)); })) << "another trial is not held up";
  ASSERT_TRUE(run_until([&] { return coordinator_->beats.size() >= beats + 3; }));
  *open = true;
  ASSERT_TRUE(run_until([&] {
    return ended(kA) || coordinator_->beats.back().running.size() == 1;
  })) << "and comes back when the files do";
  coordinator_->tell(protocol::Stop{kA, protocol::StopReason::kCancelled, false});
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
}

TEST_F(LoopTest, AFrozenTrainerIsEndedByTheProgressLimit) {
  config_.options.stop_grace_ms = 200;
  start_daemon();
  assign(kA, "c;steps=100000;step_ms=1;fail=freeze@5", {0}, /*progress_limit_ms=*/500);
  ASSERT_TRUE(run_until([&] { return gone(kA); }, 60'000));
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kTimeout);
  EXPECT_THAT(coordinator_->end(kA)->message, HasSubstr("no news since step"));
}

TEST_F(LoopTest, AGangOverTwoWorkersMeetsTrainsAndEnds) {
  config_.options.address = "127.0.0.1";
  start_daemon();
  // A second worker on the same trials folder, with its own coordinator's end.
  LoopConfig other = config_;
  other.options.worker_name = "node2";
  Mailbox mailbox;
  FakeCoordinator coordinator(mailbox);
  AgentLoop second(other, clock_, coordinator, mailbox, -1);
  ASSERT_TRUE(second.start().is_ok());
  const auto both = [&](const std::function<bool()>& condition) {
    return run_until([&] {
      second.run_once();
      return condition();
    });
  };
  ASSERT_TRUE(both([&] { return second.state().session_phase == SessionPhase::kWelcomed; }));
  protocol::Assign assign = assignment(kA, "c;steps=20;step_ms=1");
  assign.slots = {0, 1};
  assign.gang = {2, 2, 4};
  coordinator.tell(assign);
  assign.gang = {0, 2, 4};
  coordinator_->tell(assign);
  ASSERT_TRUE(both([&] { return !coordinator_->rendezvous.empty(); }));
  EXPECT_THAT(coordinator_->rendezvous[0].address, testing::StartsWith("127.0.0.1:"));
  coordinator.tell(coordinator_->rendezvous[0]);
  ASSERT_TRUE(both([&] { return ended(kA) && !coordinator.members_ended.empty(); }));
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kCompleted);
  EXPECT_EQ(coordinator.members_ended[0].end, EndClass::kCompleted);
  EXPECT_THAT(coordinator.reports, testing::IsEmpty()) << "rank 0's worker speaks for all";
  EXPECT_TRUE(std::filesystem::exists(config_.trials_dir + "/t41/1.r2"));

  // The other way round: a member is killed.
  assign = assignment(kB, "c;steps=100000;step_ms=5");
  assign.slots = {0, 1};
  assign.gang = {0, 2, 4};
  coordinator_->rendezvous.clear();
  coordinator_->tell(assign);
  assign.gang = {2, 2, 4};
  coordinator.tell(assign);
  ASSERT_TRUE(both([&] { return !coordinator_->rendezvous.empty(); }));
  coordinator.tell(coordinator_->rendezvous[0]);
  ASSERT_TRUE(both([&] { return steps_reached(kB, 3); }));
  const auto note =
      AttemptDirectory(AttemptDirectory::path_of(config_.trials_dir, kB, 2)).read_note();
  ASSERT_TRUE(note.has_value());
  ::kill(note->process.pid, SIGKILL);
  ASSERT_TRUE(both([&] { return ended(kB) && coordinator.members_ended.size() == 2; }));
  EXPECT_EQ(coordinator_->end(kB)->end, EndClass::kInfrastructure);
  EXPECT_THAT(coordinator_->end(kB)->message, HasSubstr("lost"));
  EXPECT_EQ(coordinator.members_ended[1].end, EndClass::kInfrastructure);
}

TEST_F(LoopTest, ASlotIsFreeWhenTheMemoryOfItsGpuIs) {
  auto bytes = std::make_shared<std::atomic<std::uint64_t>>(0);
  auto asked = std::make_shared<std::atomic<int>>(0);
  config_.options.slots[1].kind = protocol::DeviceKind::kGpu;
  config_.memory_limit_ms = 600'000;
  config_.memory_in_use = [bytes, asked](std::uint32_t) {
    ++*asked;
    return std::optional<std::uint64_t>(*bytes);
  };
  start_daemon();
  assign(kA, "c;steps=100000;step_ms=5", {1});
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 1); }));
  *bytes = 30ull << 30;
  const int before = *asked;
  coordinator_->tell(protocol::Stop{kA, protocol::StopReason::kCancelled, false});
  ASSERT_TRUE(run_until([&] { return *asked > before + 2; }));
  EXPECT_FALSE(ended(kA)) << "its process is gone, its memory is not";
  *bytes = 0;
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
}

TEST_F(LoopTest, GpuMemoryThatStaysInUseMakesTheNodeUnfitUntilItIsFree) {
  auto bytes = std::make_shared<std::atomic<std::uint64_t>>(0);
  config_.options.slots[1].kind = protocol::DeviceKind::kGpu;
  config_.memory_limit_ms = 50;
  config_.memory_in_use = [bytes](std::uint32_t) { return std::optional<std::uint64_t>(*bytes); };
  start_daemon();
  assign(kA, "c;steps=100000;step_ms=5", {1});
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 1); }));
  *bytes = 30ull << 30;
  coordinator_->tell(protocol::Stop{kA, protocol::StopReason::kCancelled, false});
  ASSERT_TRUE(run_until([&] { return gone(kA); })) << "a limit, not for ever";
  mailbox_->post(NodeHealth{});
  ASSERT_TRUE(run_until([&] { return !loop_->state().unfit.empty(); }));
  EXPECT_THAT(loop_->state().unfit, HasSubstr("slot 1 has 30720 MiB in use"));
  *bytes = 0;
  ASSERT_TRUE(run_until([&] {
    mailbox_->post(NodeHealth{});
    return loop_->state().unfit.empty();
  }));
}

/// Hands out one checkpoint of the fake trainer's kind.
class FakeCheckpoints final : public CheckpointStore {
 public:
  Status upload(const AttemptRef&, const protocol::CheckpointReport& report,
                const GiveUp&) override {
    uploaded = report.step;
    return Status::ok();
  }
  Status fetch(const AttemptRef&, const protocol::StoredCheckpoint& stored,
               const std::string& folder, const GiveUp& give_up) override {
    ++fetches;
    while (hangs && !give_up()) ::poll(nullptr, 0, 5);
    if (hangs) return {Code::kCancelled, "given up"};
    if (away > 0) {
      --away;
      return {Code::kUnavailable, "connection refused"};
    }
    if (stored.sha256 == "damaged") return {Code::kDataLoss, "damaged"};
    std::filesystem::create_directories(folder);
    const std::string state = "{\"step\": " + std::to_string(stored.step) + "}";
    std::ofstream(folder + "/state.json") << state;
    std::ofstream(folder + "/manifest.json")
        << "{\"files\": {\"state.json\": \"" << sha256_hex(state) << "\"}}";
    return Status::ok();
  }
  std::atomic<int> fetches{0};
  std::atomic<std::int64_t> uploaded{0};
  std::atomic<bool> hangs{false};
  std::atomic<int> away{0};  // so many fetches fail as if the coordinator were not there
};

TEST_F(LoopTest, ACheckpointThatIsNotHereIsFetchedBeforeTheTrainerStarts) {
  const auto shared = std::make_shared<FakeCheckpoints>();
  FakeCheckpoints& store = *shared;
  config_.checkpoints = shared;
  start_daemon();
  protocol::Assign assign = assignment(kB, "c;steps=40;step_ms=1");
  assign.stored = {{1, 30, "damaged", 10}, {1, 20, "good", 10}};
  coordinator_->tell(assign);
  ASSERT_TRUE(run_until([&] { return gone(kB); }));
  const auto& first = coordinator_->reports[kB].at(0).body;
  EXPECT_EQ(std::get<protocol::StartedReport>(first).resumed_step, 20)
      << "the older one, since the newest cannot be fetched";
  EXPECT_EQ(store.fetches, 2);
  ASSERT_TRUE(run_until([&] { return store.uploaded == 40; })) << "its own last one is brought";

  // The folder has step 40 by now: nothing is fetched.
  assign = assignment(attempt_ref(41, 3), "c;steps=50;step_ms=1");
  assign.stored = {{2, 40, "good", 10}};
  coordinator_->tell(assign);
  ASSERT_TRUE(run_until([&] { return gone(attempt_ref(41, 3)); }));
  EXPECT_EQ(store.fetches, 2);
  loop_.reset();  // before the store
}

TEST_F(LoopTest, ADamagedCheckpointHereDoesNotHideTheStoredOne) {
  const auto shared = std::make_shared<FakeCheckpoints>();
  FakeCheckpoints& store = *shared;
  config_.checkpoints = shared;
  start_daemon();
  protocol::Assign assign = assignment(kB, "c;steps=40;step_ms=1");
  assign.stored = {{1, 20, "good", 10}};
  coordinator_->tell(assign);
  ASSERT_TRUE(run_until([&] { return gone(kB); }));
  ASSERT_EQ(store.fetches, 1);
  const std::string folder = file(kB, "checkpoints/000000040");  // as the real trainer names it
  std::filesystem::rename(file(kB, "checkpoints/00000040"), folder);
  ASSERT_TRUE(verify_checkpoint_files(folder).is_ok());
  std::ofstream(folder + "/state.json") << "{\"step\": 41}";
  std::ofstream(file(kA, "checkpoints/000000020/manifest.json")) << "{";

  const AttemptRef third = attempt_ref(41, 3);
  assign = assignment(third, "c;steps=50;step_ms=1");
  assign.stored = {{2, 40, "good", 10}};
  coordinator_->tell(assign);
  ASSERT_TRUE(run_until([&] { return gone(third); }));
  EXPECT_EQ(store.fetches, 2);
  EXPECT_TRUE(verify_checkpoint_files(folder).is_ok()) << "the stored one is in its place";
  EXPECT_TRUE(std::filesystem::exists(folder + ".damaged"));
  const auto& first = coordinator_->reports[third].at(0).body;
  EXPECT_EQ(std::get<protocol::StartedReport>(first).resumed_step, 40);
  loop_.reset();
}

// A restored database gave the number to another trial.
TEST_F(LoopTest, ACheckpointOfAnotherGenerationDoesNotHideTheStoredOne) {
  const auto shared = std::make_shared<FakeCheckpoints>();
  FakeCheckpoints& store = *shared;
  config_.checkpoints = shared;
  start_daemon();
  assign(kA, "c;steps=60;step_ms=1");
  ASSERT_TRUE(run_until([&] { return gone(kA); }));
  const AttemptRef again = attempt_ref(41, 2, (FencingToken{0x3fa} << 40) + 7);
  protocol::Assign assign = assignment(again, "c;steps=70;step_ms=1");
  assign.stored = {{1, 20, "good", 10}};
  coordinator_->tell(assign);
  ASSERT_TRUE(run_until([&] { return gone(again); }));
  EXPECT_EQ(store.fetches, 1) << "step 60 lies here, but may be another trial's";
  loop_.reset();
}

TEST_F(LoopTest, ACoordinatorThatIsAwayDuringAFetchCostsATrialNothing) {
  const auto shared = std::make_shared<FakeCheckpoints>();
  FakeCheckpoints& store = *shared;
  store.away = 2;
  config_.checkpoints = shared;
  start_daemon();
  protocol::Assign assign = assignment(kB, "c;steps=40;step_ms=1");
  assign.stored = {{1, 20, "good", 10}};
  coordinator_->tell(assign);
  ASSERT_TRUE(run_until([&] { return gone(kB); }));
  const auto& first = coordinator_->reports[kB].at(0).body;
  EXPECT_EQ(std::get<protocol::StartedReport>(first).resumed_step, 20);
  EXPECT_EQ(store.fetches, 3);
  loop_.reset();  // before the store
}

TEST_F(LoopTest, AStopEndsTheWaitForACoordinatorThatIsAway) {
  const auto shared = std::make_shared<FakeCheckpoints>();
  FakeCheckpoints& store = *shared;
  store.away = 1'000'000;
  config_.checkpoints = shared;
  start_daemon();
  protocol::Assign assign = assignment(kB, "c;steps=40;step_ms=1");
  assign.stored = {{1, 20, "good", 10}};
  coordinator_->tell(assign);
  ASSERT_TRUE(run_until([&] { return store.fetches >= 2; }));
  coordinator_->tell(protocol::Stop{kB, protocol::StopReason::kPaused, false});
  ASSERT_TRUE(run_until([&] { return coordinator_->has_refused(kB); }));
  loop_.reset();
}

TEST_F(LoopTest, AStopEndsTheFetchingOfACheckpoint) {
  const auto shared = std::make_shared<FakeCheckpoints>();
  FakeCheckpoints& store = *shared;
  store.hangs = true;
  config_.checkpoints = shared;
  start_daemon();
  protocol::Assign assign = assignment(kB, "c;steps=40;step_ms=1");
  assign.stored = {{1, 20, "good", 10}};
  coordinator_->tell(assign);
  ASSERT_TRUE(run_until([&] { return store.fetches == 1; }));
  coordinator_->tell(protocol::Stop{kB, protocol::StopReason::kPaused, false});
  ASSERT_TRUE(run_until([&] { return coordinator_->has_refused(kB); }));
  EXPECT_EQ(coordinator_->refused[0].end, EndClass::kStopped);
  loop_.reset();
}

/// Processes of an attempt, by the mark in their environment, and sleepers without any.
std::vector<pid_t> processes_of(const std::string& owner, const AttemptRef& ref) {
  std::vector<pid_t> found;
  for_each_process([&](const ProcessLine& process) {
    if (!process.zombie && started_with(process.pid, Supervisor::mark(owner, ref)))
      found.push_back(process.pid);
    return true;
  });
  return found;
}

TEST_F(LoopTest, NothingOfAnAttemptOutlivesIt) {
  Supervisor::become_subreaper();
  assign(kA, "c;steps=100000;step_ms=5;leaves=child");
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 3); }));
  EXPECT_THAT(processes_of(owner(), kA), SizeIs(2))
      << "the trainer, and its child in its own session";
  coordinator_->tell(protocol::Stop{kA, protocol::StopReason::kCancelled, false});
  ASSERT_TRUE(run_until([&] { return ended(kA); }));
  EXPECT_THAT(processes_of(owner(), kA), SizeIs(0)) << "before its end was sent";
}

/// Children of this process that were started with an empty environment.
std::vector<pid_t> bare_children() {
  std::vector<pid_t> found;
  for_each_process([&](const ProcessLine& process) {
    const bool bare = process.parent == ::getpid() && started_with_entry(process.pid, "").empty();
    if (bare && !process.zombie) found.push_back(process.pid);
    return true;
  });
  return found;
}

TEST_F(LoopTest, NorDoesAProcessOfItThatHasNoEnvironment) {
  Supervisor::become_subreaper();
  assign(kA, "c;steps=100000;step_ms=5;leaves=bare", {0});
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 3); }));
  ASSERT_TRUE(run_until([&] { return bare_children().size() == 1; }));
  const pid_t first = bare_children().at(0);
  // Began later: it has nothing to do with it.
  assign(attempt_ref(42), "c;steps=100000;step_ms=5", {1});
  ASSERT_TRUE(run_until([&] { return steps_reached(attempt_ref(42), 1); }));
  coordinator_->tell(protocol::Stop{kA, protocol::StopReason::kCancelled, false});
  ASSERT_TRUE(run_until([&] { return ended(kA); }));
  EXPECT_NE(::kill(first, 0), 0) << "before its end was sent";

  // One that the other attempt may have started itself lives as long as that does.
  const AttemptRef third = attempt_ref(43);
  assign(third, "c;steps=100000;step_ms=5;leaves=bare", {0});
  ASSERT_TRUE(run_until([&] { return steps_reached(third, 3); }));
  ASSERT_TRUE(run_until([&] { return bare_children().size() == 1; }));
  const pid_t second = bare_children().at(0);
  coordinator_->tell(protocol::Stop{third, protocol::StopReason::kCancelled, false});
  ASSERT_TRUE(run_until([&] { return ended(third); }));
  EXPECT_EQ(::kill(second, 0), 0);
  coordinator_->tell(protocol::Stop{attempt_ref(42), protocol::StopReason::kCancelled, false});
  ASSERT_TRUE(run_until([&] { return ended(attempt_ref(42)); }));
  EXPECT_NE(::kill(second, 0), 0);
}

TEST_F(LoopTest, ARestartedDaemonEndsWhatItsDeadTrainersLeft) {
  config_.options.trainer_lease_ms = 500;
  start_daemon();
  assign(kA, "c;steps=100000;step_ms=5;leaves=child");
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 3); }));
  const ProcessIdentity trainer = process(kA);
  kill_daemon();
  ASSERT_TRUE(eventually([&] { return !is_alive(trainer); }, 60'000));
  EXPECT_THAT(processes_of(owner(), kA), SizeIs(1));
  start_daemon();
  ASSERT_TRUE(run_until([&] { return ended(kA); }));
  EXPECT_THAT(processes_of(owner(), kA), SizeIs(0));
}

TEST_F(LoopTest, AControlGroupHoldsEvenAProcessWithoutAnEnvironment) {
  const auto parent = Cgroup::parent();
  if (!parent) GTEST_SKIP() << "no cgroup v2 that this process may write";
  config_.cgroup_parent = *parent;
  start_daemon();
  assign(kA, "c;steps=100000;step_ms=5;leaves=bare");
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 3); }));
  const auto note = AttemptDirectory(file(kA, "")).read_note();
  ASSERT_TRUE(note.has_value());
  ASSERT_NE(note->cgroup, "");
  EXPECT_TRUE(note->cgroup.ends_with(fmt::format("-{}", note->process.pid)))
      << "another worker's attempt of this name would be killed with it: " << note->cgroup;
  const std::string inside = read_file(note->cgroup + "/cgroup.procs").value_or("");
  EXPECT_EQ(std::count(inside.begin(), inside.end(), '\n'), 2) << inside;
  coordinator_->tell(protocol::Stop{kA, protocol::StopReason::kCancelled, false});
  ASSERT_TRUE(run_until([&] { return ended(kA); }));
  EXPECT_FALSE(std::filesystem::exists(note->cgroup)) << "empty and removed before the end is sent";
}

TEST_F(LoopTest, TwoSlotsTrainAtOnce) {
  assign(kA, "c;steps=100000;step_ms=5", {0});
  assign(attempt_ref(42), "c;steps=100000;step_ms=5", {1});
  ASSERT_TRUE(run_until([&] { return steps_reached(kA, 3) && steps_reached(attempt_ref(42), 3); }));
  mailbox_->post(DrainRequested{"test"});
  mailbox_->post(DrainRequested{"test"});
  ASSERT_TRUE(run_until([&] { return loop_->exit_code().has_value(); }));
  EXPECT_EQ(loop_->exit_code(), 0);
  EXPECT_EQ(coordinator_->end(kA)->end, EndClass::kStopped);
  EXPECT_EQ(coordinator_->end(attempt_ref(42))->end, EndClass::kStopped);
}

}  // namespace
}  // namespace tailor::agent
