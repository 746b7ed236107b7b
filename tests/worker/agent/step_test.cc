// The worker's decisions: tables of event -> effects.
#include "worker/agent/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/agent/agent_harness.h"

namespace tailor::agent {
namespace {

using protocol::AttemptRef;
using protocol::EndClass;
using protocol::EndReport;
using protocol::Report;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const AttemptRef kA = attempt_ref(41);
const AttemptRef kB = attempt_ref(42);

std::vector<std::uint64_t> range(std::uint64_t first, std::uint64_t last) {
  std::vector<std::uint64_t> values;
  for (std::uint64_t i = first; i <= last; ++i) values.push_back(i);
  return values;
}

const EndReport& end_of(const Report& report) { return std::get<EndReport>(report.body); }

// ---- the stream

TEST(AgentSession, HelloComesFirstAndNamesWhatIsHeld) {
  AgentHarness agent;
  agent.start({{kA, {0}, true, 7, {}}, {kB, {1}, false, 3, {}}});
  EXPECT_THAT(of<OpenSession>(agent.tick()), SizeIs(1));
  const Effects effects = agent.apply(SessionOpened{agent.state.session});
  ASSERT_THAT(of<Send>(effects), SizeIs(1));
  const auto hello = sent<protocol::Hello>(effects);
  ASSERT_THAT(hello, SizeIs(1));
  EXPECT_EQ(hello[0].worker_name, "node1");
  EXPECT_THAT(hello[0].held, ElementsAre(protocol::HeldAttempt{kA, {0}, true, 7},
                                         protocol::HeldAttempt{kB, {1}, false, 3}));
}

TEST(AgentSession, NothingButHelloIsSentBeforeWelcome) {
  AgentHarness agent;
  agent.files[kA] = {metric(1), metric(2)};
  agent.start({{kA, {0}, true, 0, {}}});
  agent.tick();
  EXPECT_THAT(of<Send>(agent.apply(SessionOpened{agent.state.session})), SizeIs(1));
  EXPECT_THAT(of<Send>(agent.wait(3000)), IsEmpty());
  EXPECT_EQ(sent_sequences(agent.welcome({{kA, true, 0, 0}})), range(1, 2));
}

TEST(AgentSession, NewsOfAnOldStreamIsIgnored) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  const std::uint64_t old = agent.state.session;
  agent.lose_session();
  agent.wait(1000);
  agent.apply(SessionOpened{agent.state.session});
  agent.welcome();
  ASSERT_GT(agent.state.session, old);
  agent.apply(Received{old, AgentHarness::assignment(kA)});
  EXPECT_FALSE(agent.holds(kA));
  agent.apply(SessionClosed{old, Status(Code::kUnavailable, "late")});
  EXPECT_EQ(agent.state.session_phase, SessionPhase::kWelcomed);
}

TEST(AgentSession, BackOffGrowsToItsCapAndIsTheSameForTheSameSeed) {
  const auto delays = [](std::uint64_t seed) {
    AgentOptions options = AgentHarness::default_options();
    options.seed = seed;
    options.backoff_first_ms = 100;
    options.backoff_max_ms = 1600;
    AgentHarness agent(options);
    agent.start();
    std::vector<std::int64_t> found;
    for (int i = 0; i < 8; ++i) {
      agent.now = std::max(agent.now, agent.state.open_at_ms);
      agent.tick();
      agent.lose_session();
      found.push_back(agent.state.open_at_ms - agent.now);
    }
    return found;
  };
  const auto first = delays(5);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::int64_t full = std::min<std::int64_t>(1600, 100ll << i);
    EXPECT_GE(first[i], full / 2) << i;
    EXPECT_LE(first[i], full) << i;
  }
  EXPECT_EQ(first, delays(5));
  EXPECT_NE(first, delays(6));
}

TEST(AgentSession, ASilentStreamIsGivenUpAndReopened) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  const std::uint64_t session = agent.state.session;
  EXPECT_THAT(of<CloseSession>(agent.wait(19'000)), IsEmpty());
  const Effects effects = agent.wait(5'000);
  ASSERT_THAT(of<CloseSession>(effects), SizeIs(1));
  EXPECT_EQ(of<CloseSession>(effects)[0].session, session);
  EXPECT_THAT(of<OpenSession>(effects), SizeIs(1));
}

TEST(AgentSession, AStreamWithoutWelcomeIsGivenUp) {
  AgentHarness agent;
  agent.start();
  agent.open();
  EXPECT_THAT(of<CloseSession>(agent.wait(21'000)), SizeIs(1));
}

TEST(AgentSession, HeartbeatsNameEveryWantedAttempt) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA, {0});
  agent.run_trainer(kB, {1});
  const auto first = sent<protocol::Heartbeat>(agent.wait(1000));
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_THAT(first[0].running, ElementsAre(kA, kB));
  agent.receive(protocol::Stop{kA, protocol::StopReason::kFenced, true});
  const auto second = sent<protocol::Heartbeat>(agent.wait(1000));
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_THAT(second[0].running, ElementsAre(kB));
  EXPECT_GT(second[0].serial, first[0].serial);
}

TEST(AgentSession, ARefusedTokenEndsAnIdleWorkerWithTheDocumentedCode) {
  AgentHarness agent;
  agent.start();
  agent.tick();
  const Effects effects = agent.apply(
      SessionClosed{agent.state.session, Status(Code::kUnauthenticated, "unknown token")});
  ASSERT_THAT(of<Exit>(effects), SizeIs(1));
  EXPECT_EQ(of<Exit>(effects)[0].code, 6);
}

TEST(AgentSession, ANameInUseElsewhereIsSaidAndTriedAgainWhileTheTrialsGoOn) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.lose_session();
  Effects all;
  for (int i = 0; i < 300; ++i) {
    Effects effects = agent.tick(100);
    if (!of<OpenSession>(effects).empty()) {
      for (AgentEffect& effect : agent.apply(SessionClosed{
               agent.state.session, Status(Code::kAlreadyExists, "another worker named node1")}))
        effects.push_back(std::move(effect));
    }
    for (AgentEffect& effect : effects) all.push_back(std::move(effect));
  }
  EXPECT_THAT(of<Exit>(all), IsEmpty());
  EXPECT_THAT(of<SignalTrainer>(all), IsEmpty());
  EXPECT_THAT(of<WriteLease>(all), testing::Not(IsEmpty())) << "its lease goes on";
  const std::size_t tries = of<OpenSession>(all).size();
  EXPECT_GE(tries, 3u);
  EXPECT_LE(tries, 20u) << "under back-off";
  const auto lines = of<LogLine>(all);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const LogLine& line) {
    return line.level == LogLevel::kError && line.detail.find("--name") != std::string::npos;
  }));
}

// ---- starting

TEST(AgentAssign, StartsATrainerWithTheSlotsDeviceAndThreads) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  const auto cpu = of<StartTrainer>(agent.assign(kA, {0}));
  ASSERT_THAT(cpu, SizeIs(1));
  EXPECT_EQ(cpu[0].assign.spec.device, "cpu");
  EXPECT_EQ(cpu[0].assign.spec.threads, 2);
  EXPECT_EQ(cpu[0].lease_deadline_ms, agent.now + 10'000);
  const auto gpu = of<StartTrainer>(agent.assign(kB, {1}));
  ASSERT_THAT(gpu, SizeIs(1));
  EXPECT_EQ(gpu[0].assign.spec.device, "cuda:0");
  EXPECT_EQ(gpu[0].assign.spec.threads, 4);
}

TEST(AgentAssign, ARepeatedAssignmentChangesNothing) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  EXPECT_THAT(of<StartTrainer>(agent.assign(kA)), IsEmpty());
  agent.files[kA] = {end_report(1)};
  agent.apply(TrainerExited{kA, {0, {}}});
  agent.acknowledge(kA, 1);
  ASSERT_FALSE(agent.holds(kA));
  EXPECT_THAT(of<StartTrainer>(agent.assign(kA)), IsEmpty()) << "it was forgotten, not unknown";
}

// The coordinator's database was restored: it gives out numbers again that this worker has seen.
TEST(AgentAssign, AnAttemptOfAnotherGenerationIsAnotherAttempt) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {end_report(1)};
  agent.apply(TrainerExited{kA, {0, {}}});
  agent.acknowledge(kA, 1);
  ASSERT_FALSE(agent.holds(kA));
  AttemptRef again = kA;
  again.token += FencingToken{0x3fa} << 40;
  EXPECT_THAT(of<StartTrainer>(agent.assign(again)), SizeIs(1)) << "it was never here";
  AttemptRef later = kA;
  later.token += FencingToken{0x4fa} << 40;
  EXPECT_THAT(of<StartTrainer>(agent.assign(later, {1})), SizeIs(1)) << "beside the other";
}

TEST(AgentAssign, ASecondTokenForAnAttemptOfThisGenerationIsRefusedAtOnce) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  AttemptRef other = kA;
  other.token += 1;
  const auto held = sent<protocol::Refused>(agent.assign(other, {1}));
  ASSERT_THAT(held, SizeIs(1));
  EXPECT_EQ(held[0].ref, other);
  EXPECT_THAT(held[0].reason, HasSubstr("holds t"));
  agent.files[kA] = {end_report(1)};
  agent.apply(TrainerExited{kA, {0, {}}});
  agent.acknowledge(kA, 1);
  ASSERT_FALSE(agent.holds(kA));
  other.token += 1;
  EXPECT_THAT(sent<protocol::Refused>(agent.assign(other, {1})), SizeIs(1))
      << "its folder is taken";
}

TEST(AgentAssign, ASlotInUseOrUnknownIsNotAssigned) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA, {0});
  for (const std::vector<std::uint32_t>& slots :
       std::vector<std::vector<std::uint32_t>>{{0}, {0, 1}, {7}, {1, 1}, {}}) {
    const Effects effects = agent.assign(kB, slots);
    EXPECT_THAT(of<StartTrainer>(effects), IsEmpty());
    EXPECT_FALSE(agent.holds(kB));
    EXPECT_THAT(of<LogLine>(effects), SizeIs(1));
    const auto refused = sent<protocol::Refused>(effects);
    ASSERT_THAT(refused, SizeIs(1)) << "at once, not when its lease runs out";
    EXPECT_EQ(refused[0].ref, kB);
    EXPECT_EQ(refused[0].end, EndClass::kInfrastructure);
    EXPECT_NE(refused[0].reason, "");
    agent.state.refused.clear();
  }
}

TEST(AgentAssign, ARefusalIsRepeatedInTheSameWords) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  const auto first = sent<protocol::Refused>(agent.assign(kB, {7}));
  ASSERT_THAT(first, SizeIs(1));
  agent.lose_session();
  agent.wait(1000);
  agent.apply(SessionOpened{agent.state.session});
  agent.welcome();
  const auto second = sent<protocol::Refused>(agent.assign(kB, {7}));
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].reason, first[0].reason);
}

TEST(AgentAssign, ASlotBeingVacatedIsWaitedFor) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA, {0});
  agent.receive(protocol::Stop{kA, protocol::StopReason::kFenced, true});
  EXPECT_THAT(of<StartTrainer>(agent.assign(kB, {0})), IsEmpty());
  EXPECT_TRUE(agent.holds(kB));
  EXPECT_THAT(of<StartTrainer>(agent.wait(2000)), IsEmpty());
  EXPECT_THAT(of<StartTrainer>(agent.apply(TrainerExited{kA, {{}, 15}})), SizeIs(1));
}

TEST(AgentAssign, ATrainerThatCannotBeStartedIsRefusedWithTheReason) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.assign(kA);
  Effects effects = agent.apply(SpawnFailed{kA, "cannot write spec.json: No space left on device"});
  for (AgentEffect& effect : agent.wait(200)) effects.push_back(std::move(effect));
  const auto refused = sent<protocol::Refused>(effects);
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(refused[0].ref, kA);
  EXPECT_EQ(refused[0].end, EndClass::kInfrastructure);
  EXPECT_THAT(refused[0].reason, HasSubstr("No space left"));
  EXPECT_THAT(sent<protocol::Reports>(effects), IsEmpty());
  EXPECT_THAT(of<Exit>(effects), IsEmpty()) << "the daemon lives on";
  EXPECT_FALSE(agent.holds(kA));
  EXPECT_THAT(of<StartTrainer>(agent.assign(kB, {0})), SizeIs(1)) << "its slot is free";
}

TEST(AgentAssign, ADroppedAttemptThatCannotBeStartedIsNotRefusedToo) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.assign(kA);
  agent.receive(protocol::Stop{kA, protocol::StopReason::kFenced, true});
  EXPECT_THAT(sent<protocol::Refused>(agent.apply(SpawnFailed{kA, "no process"})), IsEmpty());
  EXPECT_FALSE(agent.holds(kA));
}

// ---- fit for work

NodeHealth disk(std::uint64_t free_bytes, std::uint64_t total_bytes) {
  return {"", free_bytes, total_bytes};
}
constexpr std::uint64_t kGiB = 1ull << 30;

TEST(AgentHealth, AFullDiskMakesTheNodeUnfitUntilThereIsSpaceAgain) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.apply(disk(20 * kGiB, 100 * kGiB));
  EXPECT_EQ(agent.state.unfit, "");
  agent.apply(disk(kGiB / 2, 100 * kGiB));
  const auto told = sent<protocol::Heartbeat>(agent.tick());
  ASSERT_THAT(told, SizeIs(1)) << "at once";
  EXPECT_THAT(told[0].unfit, HasSubstr("512 MiB free"));
  EXPECT_EQ(told[0].disk_free_bytes, kGiB / 2);
  EXPECT_THAT(told[0].running, ElementsAre(kA)) << "what runs goes on";
  const auto refused = sent<protocol::Refused>(agent.assign(kB, {1}));
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_THAT(refused[0].reason, HasSubstr("512 MiB free"));
  agent.apply(disk(kGiB + 1, 100 * kGiB));
  EXPECT_NE(agent.state.unfit, "") << "barely above the mark";
  agent.apply(disk(2 * kGiB, 100 * kGiB));
  const auto fit = sent<protocol::Heartbeat>(agent.tick());
  ASSERT_THAT(fit, SizeIs(1));
  EXPECT_EQ(fit[0].unfit, "");
  EXPECT_THAT(of<StartTrainer>(agent.assign(attempt_ref(43), {1})), SizeIs(1));
}

TEST(AgentHealth, ASmallDiskIsJudgedByItsOwnSize) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.apply(disk(50 << 20, 100 << 20));
  EXPECT_EQ(agent.state.unfit, "");
  agent.apply(disk(1 << 20, 100 << 20));
  EXPECT_NE(agent.state.unfit, "");
}

TEST(AgentHealth, ADeviceOrASilentFileSystemMakesTheNodeUnfitToo) {
  AgentOptions options = AgentHarness::default_options();
  options.health_limit_ms = 60'000;
  AgentHarness agent(options);
  agent.start();
  agent.connect();
  agent.apply(NodeHealth{"GPU 0 reports 3 uncorrectable memory errors", 0, 0});
  EXPECT_THAT(agent.state.unfit, HasSubstr("uncorrectable"));
  agent.apply(NodeHealth{});
  EXPECT_EQ(agent.state.unfit, "");
  agent.now += 61'000;
  agent.tick();
  EXPECT_THAT(agent.state.unfit, HasSubstr("does not answer"));
}

TEST(AgentHealth, FilesThatDoNotAnswerCostTheirAttemptAlone) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA, {0});
  agent.run_trainer(kB, {1});
  agent.apply(FilesAnswer{kA, "writing the lease has taken 12 s"});
  const auto beats = sent<protocol::Heartbeat>(agent.wait(1000));
  ASSERT_THAT(beats, SizeIs(1));
  EXPECT_THAT(beats[0].running, ElementsAre(kB));
  agent.apply(FilesAnswer{kA, ""});
  const auto again = sent<protocol::Heartbeat>(agent.wait(1000));
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_THAT(again[0].running, ElementsAre(kA, kB));
}

// ---- limits

TEST(AgentLimits, ATrainerWithoutAStepIsEndedWithClassTimeout) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  protocol::Assign assign = AgentHarness::assignment(kA);
  assign.progress_limit_ms = 60'000;
  agent.receive(assign);
  agent.apply(TrainerStarted{kA});
  const auto wait = [&](std::int64_t ms) {
    Effects all;
    for (std::int64_t i = 0; i < ms; i += 1000) {
      agent.receive(protocol::HeartbeatAck{1});
      for (AgentEffect& effect : agent.tick(1000)) all.push_back(std::move(effect));
    }
    return of<SignalTrainer>(all);
  };
  EXPECT_THAT(wait(50'000), IsEmpty());
  agent.files[kA] = {metric(1)};
  EXPECT_THAT(wait(50'000), IsEmpty()) << "a step gives it the whole time again";
  agent.files[kA].push_back({2, 0, protocol::MetricReport{1, 0, {{"train_loss", 1.0}}}});
  const auto term = wait(12'000);
  ASSERT_THAT(term, SizeIs(1)) << "the same step once more is no progress";
  EXPECT_EQ(term[0].signal, TrainerSignal::kTerm);
  const auto kill = wait(31'000);
  ASSERT_FALSE(kill.empty());
  EXPECT_EQ(kill[0].signal, TrainerSignal::kKill);
  agent.apply(TrainerExited{kA, {{}, 9}});
  ASSERT_TRUE(agent.ends.contains(kA));
  EXPECT_EQ(end_of(agent.ends[kA]).end, EndClass::kTimeout);
  EXPECT_THAT(end_of(agent.ends[kA]).message, HasSubstr("no news since step 1 for 60 s"));
}

TEST(AgentLimits, ATrainerThatSavesWhenItsTimeIsOverHasClassTimeoutToo) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  protocol::Assign assign = AgentHarness::assignment(kA);
  assign.time_limit_ms = 10'000;
  agent.receive(assign);
  agent.apply(TrainerStarted{kA});
  EXPECT_THAT(of<SignalTrainer>(agent.wait(9'000)), IsEmpty());
  EXPECT_THAT(of<SignalTrainer>(agent.wait(2'000)), SizeIs(1));
  agent.files[kA] = {metric(1), end_report(2, EndClass::kStopped)};
  const auto reports = sent<protocol::Reports>(agent.apply(TrainerExited{kA, {6, {}}}));
  ASSERT_FALSE(reports.empty());
  const EndReport end = end_of(reports.back().reports.back());
  EXPECT_EQ(end.end, EndClass::kTimeout);
  EXPECT_THAT(end.message, HasSubstr("10 s, its time limit"));
}

TEST(AgentLimits, AReportThatCannotBeSentYetIsNoLackOfProgress) {
  AgentOptions options = AgentHarness::default_options();
  options.reports_window = 4;
  AgentHarness agent(options);
  agent.start();
  agent.connect();
  protocol::Assign assign = AgentHarness::assignment(kA);
  assign.progress_limit_ms = 5'000;
  agent.receive(assign);
  agent.apply(TrainerStarted{kA});
  for (std::uint64_t i = 1; i <= 50; ++i) agent.files[kA].push_back(metric(i));
  EXPECT_THAT(of<SignalTrainer>(agent.wait(15'000)), IsEmpty())
      << "nothing is acknowledged, so the window is full and its news are not read";
}

// ---- gangs

protocol::Assign member(const AttemptRef& ref, protocol::Gang gang,
                        std::vector<std::uint32_t> slots = {0}) {
  protocol::Assign assign = AgentHarness::assignment(ref, std::move(slots));
  assign.gang = gang;
  return assign;
}

TEST(AgentGang, RankZerosWorkerTellsWhereItListensAndTheOthersWaitForIt) {
  AgentHarness first;
  first.start();
  first.connect();
  EXPECT_THAT(of<StartTrainer>(first.receive(member(kA, {0, 2, 4}))), SizeIs(1));
  first.apply(TrainerStarted{kA});
  const auto told = sent<protocol::Rendezvous>(first.apply(RendezvousFound{kA, "10.0.0.1:4321"}));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].address, "10.0.0.1:4321");
  first.lose_session();
  first.wait(1000);
  first.apply(SessionOpened{first.state.session});
  EXPECT_THAT(sent<protocol::Rendezvous>(first.welcome({{kA, true, 0, 0}})), SizeIs(1))
      << "it may have been lost with the stream";

  AgentHarness second;
  second.start();
  second.connect();
  EXPECT_THAT(of<StartTrainer>(second.receive(member(kA, {2, 2, 4}))), IsEmpty());
  EXPECT_TRUE(second.holds(kA));
  const auto started = of<StartTrainer>(second.receive(told[0]));
  ASSERT_THAT(started, SizeIs(1));
  EXPECT_EQ(started[0].rendezvous, "10.0.0.1:4321");
  EXPECT_THAT(of<StartTrainer>(second.receive(told[0])), IsEmpty());
}

TEST(AgentGang, AMemberSaysThatItEndedSendsNoReportsAndIsForgottenWhenTold) {
  AgentHarness agent;
  agent.files[kA] = {metric(1)};
  agent.logs[kA] = "words";
  agent.start();
  agent.connect();
  agent.receive(member(kA, {2, 2, 4}));
  agent.receive(protocol::Rendezvous{kA, "h:1"});
  agent.apply(TrainerStarted{kA});
  Effects effects = agent.wait(500);
  for (AgentEffect& effect : agent.apply(TrainerExited{kA, {8, {}}}))
    effects.push_back(std::move(effect));
  EXPECT_THAT(sent<protocol::Reports>(effects), IsEmpty());
  EXPECT_THAT(sent<protocol::LogChunk>(effects), IsEmpty());
  const auto ended = sent<protocol::MemberEnded>(effects);
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_THAT(ended[0].message, HasSubstr("code 8"));
  EXPECT_THAT(of<StartTrainer>(agent.assign(kB, {0})), SizeIs(1)) << "its slot is free";
  agent.lose_session();
  agent.wait(1000);
  agent.apply(SessionOpened{agent.state.session});
  EXPECT_THAT(sent<protocol::MemberEnded>(agent.welcome({{kA, true, 0, 0}, {kB, true, 0, 0}})),
              SizeIs(1));
  EXPECT_THAT(
      of<ForgetAttempt>(agent.receive(protocol::Stop{kA, protocol::StopReason::kFenced, true})),
      SizeIs(1));
}

TEST(AgentGang, RanksThatDoNotAddUpAreRefused) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  for (const protocol::Gang gang : {protocol::Gang{0, 0, 1}, protocol::Gang{0, 3, 2},
                                    protocol::Gang{3, 2, 4}, protocol::Gang{0xffffffff, 2, 4}}) {
    agent.state.refused.clear();
    EXPECT_THAT(sent<protocol::Refused>(agent.receive(member(kA, gang))), SizeIs(1));
  }
}

// ---- reports

TEST(AgentReports, AreSentInOrderWithinTheWindowAndGoOnWithAcknowledgements) {
  AgentOptions options = AgentHarness::default_options();
  options.reports_window = 10;
  options.reports_batch = 4;
  AgentHarness agent(options);
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  for (std::uint64_t i = 1; i <= 25; ++i) agent.files[kA].push_back(metric(i));
  const Effects first = agent.wait(500);
  EXPECT_EQ(sent_sequences(first), range(1, 10)) << "no more than the window without an answer";
  EXPECT_THAT(sent<protocol::Reports>(first), SizeIs(3)) << "4 + 4 + 2";
  EXPECT_EQ(sent_sequences(agent.acknowledge(kA, 6)), range(11, 16));
  EXPECT_EQ(sent_sequences(agent.acknowledge(kA, 16)), range(17, 25));
  EXPECT_THAT(sent_sequences(agent.wait(1000)), IsEmpty());
}

TEST(AgentReports, AreResentAfterEveryWelcomeFromTheLastAcknowledged) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  for (std::uint64_t i = 1; i <= 6; ++i) agent.files[kA].push_back(metric(i));
  EXPECT_EQ(sent_sequences(agent.wait(200)), range(1, 6));
  agent.acknowledge(kA, 2);
  agent.lose_session();
  agent.files[kA].push_back(metric(7));
  EXPECT_THAT(sent_sequences(agent.wait(1000)), IsEmpty());
  agent.apply(SessionOpened{agent.state.session});
  EXPECT_EQ(sent_sequences(agent.welcome({{kA, true, 4, 0}})), range(5, 7))
      << "the coordinator committed two more than its acknowledgements told";
}

TEST(AgentReports, ACoordinatorRestoredFromABackupGetsEverythingAgain) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  for (std::uint64_t i = 1; i <= 6; ++i) agent.files[kA].push_back(metric(i));
  agent.wait(200);
  agent.acknowledge(kA, 6);
  agent.lose_session();
  agent.wait(1000);
  agent.apply(SessionOpened{agent.state.session});
  EXPECT_EQ(sent_sequences(agent.welcome({{kA, true, 1, 0}})), range(2, 6));
}

TEST(AgentReports, UnacknowledgedForTooLongAreSentAgainOnALiveStream) {
  AgentOptions options = AgentHarness::default_options();
  options.resend_ms = 3000;
  AgentHarness agent(options);
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {metric(1), metric(2)};
  EXPECT_EQ(sent_sequences(agent.wait(1000)), range(1, 2));
  agent.receive(protocol::HeartbeatAck{1});
  EXPECT_EQ(sent_sequences(agent.wait(3000)), range(1, 2));
}

TEST(AgentReports, TheEndIsHeldBackUntilTheProcessIsGone) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {metric(1), end_report(2)};
  agent.logs[kA] = "bye\n";
  EXPECT_EQ(sent_sequences(agent.wait(1000)), range(1, 1));
  const Effects effects = agent.apply(TrainerExited{kA, {0, {}}});
  EXPECT_EQ(sent_sequences(effects), range(2, 2));
  EXPECT_THAT(of<PersistEnd>(effects), IsEmpty()) << "it has an end of its own";
}

TEST(AgentReports, TheLogGoesBeforeTheEndAndBothAreWaitedFor) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {end_report(1)};
  agent.logs[kA] = "the last words";
  const Effects effects = agent.apply(TrainerExited{kA, {0, {}}});
  const auto messages = of<Send>(effects);
  ASSERT_THAT(messages, SizeIs(2));
  ASSERT_TRUE(std::holds_alternative<protocol::LogChunk>(messages[0].message));
  EXPECT_EQ(std::get<protocol::LogChunk>(messages[0].message).bytes, "the last words");
  EXPECT_TRUE(std::holds_alternative<protocol::Reports>(messages[1].message));
  EXPECT_THAT(of<ForgetAttempt>(agent.acknowledge(kA, 1)), IsEmpty());
  EXPECT_THAT(of<ForgetAttempt>(agent.receive(protocol::LogAck{kA, 14})), SizeIs(1));
}

TEST(AgentReports, AnUnansweredLogDoesNotHoldAnAcknowledgedEndForEver) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {end_report(1)};
  agent.logs[kA] = "the last words";
  agent.apply(TrainerExited{kA, {0, {}}});
  agent.acknowledge(kA, 1);
  EXPECT_THAT(of<ForgetAttempt>(agent.wait(11'000)), SizeIs(1));
}

TEST(AgentReports, UnreadableReportsEndTheAttemptWithTheReason) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {metric(1), metric(2)};
  agent.damages[kA] = "line 3 is no report";
  const Effects effects = agent.wait(200);
  ASSERT_THAT(of<SignalTrainer>(effects), SizeIs(1));
  EXPECT_EQ(of<SignalTrainer>(effects)[0].signal, TrainerSignal::kTerm);
  EXPECT_EQ(sent_sequences(effects), range(1, 2));
  const Effects after = agent.apply(TrainerExited{kA, {6, {}}});
  ASSERT_EQ(sent_sequences(after), range(3, 3));
  const EndReport end = end_of(sent<protocol::Reports>(after)[0].reports[0]);
  EXPECT_EQ(end.end, EndClass::kInfrastructure);
  EXPECT_THAT(end.message, HasSubstr("line 3 is no report"));
}

// ---- ends

TEST(AgentEnd, ATrainerWithoutAnEndGetsOneFromItsExitStatus) {
  struct Case {
    ExitStatus status;
    EndClass end;
    const char* text;
  };
  const Case cases[] = {
      {{0, {}}, EndClass::kInfrastructure, "code 0"},  // no objective is no success
      {{1, {}}, EndClass::kInfrastructure, "code 1"},
      {{2, {}}, EndClass::kUser, "code 2"},
      {{3, {}}, EndClass::kData, "code 3"},
      {{4, {}}, EndClass::kOom, "code 4"},
      {{5, {}}, EndClass::kNan, "code 5"},
      {{6, {}}, EndClass::kStopped, "code 6"},
      {{127, {}}, EndClass::kInfrastructure, "code 127"},
      {{{}, 9}, EndClass::kInfrastructure, "SIGKILL"},
      {{{}, 11}, EndClass::kInfrastructure, "SIGSEGV"},
      {{{}, {}}, EndClass::kInfrastructure, "while its worker was not running"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    AgentHarness agent;
    agent.start();
    agent.connect();
    agent.run_trainer(kA);
    agent.files[kA] = {metric(1), metric(2), metric(3)};
    agent.wait(200);
    const Effects effects = agent.apply(TrainerExited{kA, c.status});
    ASSERT_THAT(of<PersistEnd>(effects), SizeIs(1));
    const Report end = of<PersistEnd>(effects)[0].report;
    EXPECT_EQ(end.sequence, 4u);
    EXPECT_EQ(end_of(end).end, c.end);
    EXPECT_THAT(end_of(end).message, HasSubstr(c.text));
    // Stored before it is sent.
    std::size_t persisted = 0, told = 0;
    for (std::size_t i = 0; i < effects.size(); ++i) {
      if (std::holds_alternative<PersistEnd>(effects[i])) persisted = i;
      if (const auto* send = std::get_if<Send>(&effects[i])) {
        if (std::holds_alternative<protocol::Reports>(send->message)) told = i;
      }
    }
    EXPECT_LT(persisted, told);
    agent.acknowledge(kA, 4);
    EXPECT_FALSE(agent.holds(kA));
  }
}

TEST(AgentEnd, EveryReportIsReadBeforeAnEndIsWritten) {
  AgentOptions options = AgentHarness::default_options();
  options.reports_window = 4;
  AgentHarness agent(options);
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  for (std::uint64_t i = 1; i <= 9; ++i) agent.files[kA].push_back(metric(i));
  agent.apply(TrainerExited{kA, {{}, 9}});
  EXPECT_THAT(agent.ends, IsEmpty());
  agent.acknowledge(kA, 4);
  EXPECT_THAT(agent.ends, IsEmpty());
  agent.acknowledge(kA, 8);
  ASSERT_TRUE(agent.ends.contains(kA));
  EXPECT_EQ(agent.ends[kA].sequence, 10u);
}

TEST(AgentEnd, ARestartedDaemonSendsTheSameEnd) {
  AgentHarness before;
  before.start();
  before.connect();
  before.run_trainer(kA);
  before.files[kA] = {metric(1), metric(2)};
  before.apply(TrainerExited{kA, {{}, 11}});
  ASSERT_TRUE(before.ends.contains(kA));

  AgentHarness after;
  after.now = 77;
  after.files = before.files;
  after.start({{kA, {0}, false, 1, before.ends[kA]}});
  const Effects effects = after.connect({{kA, true, 1, 0}});
  EXPECT_THAT(of<PersistEnd>(effects), IsEmpty());
  ASSERT_EQ(sent_sequences(effects), range(2, 3));
  std::vector<Report> reports;
  for (const auto& message : sent<protocol::Reports>(effects)) {
    reports.insert(reports.end(), message.reports.begin(), message.reports.end());
  }
  EXPECT_EQ(end_of(reports.back()).message, end_of(before.ends[kA]).message);
  EXPECT_EQ(reports.back().wall_ms, before.ends[kA].wall_ms);
}

TEST(AgentEnd, AnAcknowledgedEndInTheFileIsNotFollowedByAnother) {
  AgentHarness agent;
  agent.files[kA] = {metric(1), end_report(2)};
  agent.start({{kA, {0}, false, 2, {}}});
  const Effects effects = agent.connect({{kA, true, 2, 0}});
  EXPECT_THAT(agent.ends, IsEmpty());
  EXPECT_THAT(sent_sequences(effects), IsEmpty());
  EXPECT_FALSE(agent.holds(kA));
}

TEST(AgentEnd, AProcessThatHangsAfterItsLastWordIsKilled) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {end_report(1)};
  EXPECT_THAT(of<SignalTrainer>(agent.wait(29'000)), IsEmpty());
  const auto signals = of<SignalTrainer>(agent.wait(2'000));
  ASSERT_THAT(signals, SizeIs(1));
  EXPECT_EQ(signals[0].signal, TrainerSignal::kKill);
}

// ---- stopping

TEST(AgentStop, IsTermThenKillAndTheEndIsForwarded) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {metric(1)};
  const auto term =
      of<SignalTrainer>(agent.receive(protocol::Stop{kA, protocol::StopReason::kCancelled, false}));
  ASSERT_THAT(term, SizeIs(1));
  EXPECT_EQ(term[0].signal, TrainerSignal::kTerm);
  EXPECT_THAT(
      of<SignalTrainer>(agent.receive(protocol::Stop{kA, protocol::StopReason::kCancelled, false})),
      IsEmpty());
  const auto kill = of<SignalTrainer>(agent.wait(30'000));
  ASSERT_THAT(kill, SizeIs(1));
  EXPECT_EQ(kill[0].signal, TrainerSignal::kKill);
  agent.wait(2'000);
  agent.apply(TrainerExited{kA, {{}, 9}});
  ASSERT_TRUE(agent.ends.contains(kA));
  EXPECT_EQ(end_of(agent.ends[kA]).end, EndClass::kStopped);
  EXPECT_THAT(end_of(agent.ends[kA]).message, HasSubstr("cancelled"));
}

TEST(AgentStop, AStaleVerdictEndsTheTrainerAndDropsItsReports) {
  AgentHarness agent;
  agent.files[kA] = {metric(1), metric(2)};
  agent.start({{kA, {0}, true, 0, {}}});
  const Effects effects = agent.connect({{kA, false, 0, 0}});
  ASSERT_THAT(of<SignalTrainer>(effects), SizeIs(1));
  EXPECT_THAT(sent_sequences(effects), IsEmpty());
  agent.files[kA].push_back(end_report(3, EndClass::kStopped));
  const Effects after = agent.apply(TrainerExited{kA, {6, {}}});
  EXPECT_THAT(sent_sequences(after), IsEmpty());
  EXPECT_THAT(of<ForgetAttempt>(after), SizeIs(1));
  EXPECT_FALSE(agent.state.exited) << "the worker itself lives on";
}

TEST(AgentStop, AnotherTokenIsAnotherAttempt) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  const AttemptRef stale{kA.attempt, kA.token + 1};
  EXPECT_THAT(
      of<SignalTrainer>(agent.receive(protocol::Stop{stale, protocol::StopReason::kFenced, true})),
      IsEmpty());
}

TEST(AgentStop, WhileStartingIsSignalledOnceTheProcessIsThere) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.assign(kA);
  EXPECT_THAT(
      of<SignalTrainer>(agent.receive(protocol::Stop{kA, protocol::StopReason::kPaused, false})),
      IsEmpty());
  EXPECT_THAT(of<SignalTrainer>(agent.apply(TrainerStarted{kA})), SizeIs(1));
}

TEST(AgentStop, AnAttemptWaitingForItsSlotNeverStarts) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA, {0});
  agent.receive(protocol::Stop{kA, protocol::StopReason::kFenced, true});
  agent.assign(kB, {0});
  agent.receive(protocol::Stop{kB, protocol::StopReason::kCancelled, false});
  EXPECT_EQ(sent_sequences(agent.wait(200)), range(1, 1));
  EXPECT_THAT(of<StartTrainer>(agent.apply(TrainerExited{kA, {6, {}}})), IsEmpty());
  EXPECT_EQ(end_of(agent.ends[kB]).end, EndClass::kStopped);
}

// ---- leases and life without a coordinator

TEST(AgentLease, IsRenewedWhileTheAttemptIsWantedAndNoLonger) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  MonotonicMs deadline = agent.now + 10'000;
  for (int i = 0; i < 300; ++i) {
    for (const WriteLease& lease : of<WriteLease>(agent.tick(100))) deadline = lease.deadline_ms;
    agent.receive(protocol::HeartbeatAck{1});
    ASSERT_GE(deadline - agent.now, 6'000) << "renewed at a third of its length";
    ASSERT_LE(deadline - agent.now, 10'000);
  }
  agent.receive(protocol::Stop{kA, protocol::StopReason::kCancelled, false});
  EXPECT_THAT(of<WriteLease>(agent.wait(20'000)), IsEmpty());
}

TEST(AgentLease, IsShorterThanTheLeaseOfTheAttempt) {
  AgentHarness agent;
  agent.start();
  agent.open();
  agent.receive(protocol::Welcome{WorkerId{1}, 500, 4'000, {}});
  const auto started = of<StartTrainer>(agent.assign(kA));
  ASSERT_THAT(started, SizeIs(1));
  EXPECT_EQ(started[0].lease_deadline_ms, agent.now + 3'000);
}

TEST(AgentOffline, TrainersGoOnUntilTheLimitThenStop) {
  AgentOptions options = AgentHarness::default_options();
  options.offline_limit_ms = 60'000;
  AgentHarness agent(options);
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {metric(1)};
  agent.lose_session();
  const auto fail_for = [&](std::int64_t ms) {
    Effects all;
    for (std::int64_t i = 0; i < ms; i += 100) {
      Effects effects = agent.tick(100);
      if (!of<OpenSession>(effects).empty()) agent.lose_session();
      for (AgentEffect& effect : effects) all.push_back(std::move(effect));
    }
    return all;
  };
  const Effects training = fail_for(59'000);
  EXPECT_THAT(of<SignalTrainer>(training), IsEmpty());
  EXPECT_THAT(of<WriteLease>(training), testing::Not(IsEmpty()))
      << "its lease is the worker's, not the stream's";
  EXPECT_THAT(of<SignalTrainer>(fail_for(2'000)), SizeIs(1));
  agent.files[kA].push_back(end_report(2, EndClass::kStopped));
  agent.apply(TrainerExited{kA, {6, {}}});
  fail_for(1'000);
  agent.now = std::max(agent.now, agent.state.open_at_ms);
  EXPECT_EQ(sent_sequences(agent.connect({{kA, true, 0, 0}})), range(1, 2)) << "nothing is lost";
}

// ---- checkpoints for the coordinator's store

Report checkpoint_report(std::uint64_t sequence, std::int64_t step) {
  return {sequence, 0, protocol::CheckpointReport{step, "checkpoints/x", "sum", 5}};
}

TEST(AgentUpload, ACheckpointTravelsWhenItsReportIsStored) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {metric(1), checkpoint_report(2, 10), metric(3), checkpoint_report(4, 20),
                     metric(5)};
  EXPECT_THAT(of<UploadCheckpoint>(agent.wait(200)), IsEmpty());
  EXPECT_THAT(of<UploadCheckpoint>(agent.acknowledge(kA, 1)), IsEmpty());
  const auto uploads = of<UploadCheckpoint>(agent.acknowledge(kA, 5));
  ASSERT_THAT(uploads, SizeIs(1)) << "the newest alone";
  EXPECT_EQ(uploads[0].checkpoint.step, 20);
  EXPECT_EQ(uploads[0].ref, kA);
}

TEST(AgentUpload, AlsoWhenAWelcomeTellsThatItIsStored) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.files[kA] = {metric(1), checkpoint_report(2, 10)};
  agent.wait(200);
  agent.lose_session();
  agent.wait(1000);
  agent.apply(SessionOpened{agent.state.session});
  EXPECT_THAT(of<UploadCheckpoint>(agent.welcome({{kA, true, 2, 0}})), SizeIs(1));
}

TEST(AgentUpload, AWorkerThatDrainsEndsWhenItsCheckpointsHaveArrivedOrTheLimitPasses) {
  for (const bool arrives : {true, false}) {
    AgentOptions options = AgentHarness::default_options();
    options.upload_limit_ms = 60'000;
    AgentHarness agent(options);
    agent.start();
    agent.connect();
    agent.run_trainer(kA);
    agent.apply(DrainRequested{"SIGTERM"});
    agent.files[kA] = {checkpoint_report(1, 10), end_report(2, EndClass::kStopped)};
    agent.apply(TrainerExited{kA, {6, {}}});
    Effects effects = agent.acknowledge(kA, 2);
    EXPECT_THAT(of<UploadCheckpoint>(effects), SizeIs(1));
    EXPECT_THAT(of<Exit>(effects), IsEmpty());
    for (int i = 0; i < 10; ++i) {
      agent.receive(protocol::HeartbeatAck{1});
      EXPECT_THAT(of<Exit>(agent.wait(5'000)), IsEmpty());
    }
    if (arrives) {
      EXPECT_THAT(of<Exit>(agent.apply(CheckpointUploaded{kA, 10})), SizeIs(1));
    } else {
      EXPECT_THAT(of<Exit>(agent.wait(15'000)), SizeIs(1));
    }
  }
}

TEST(AgentUpload, AStopWhileACheckpointIsFetchedCancelsTheStart) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.assign(kA);
  EXPECT_THAT(
      of<CancelStart>(agent.receive(protocol::Stop{kA, protocol::StopReason::kPaused, false})),
      SizeIs(1));
  const auto refused = sent<protocol::Refused>(agent.apply(SpawnFailed{kA, "not wanted"}));
  ASSERT_THAT(refused, SizeIs(1));
  EXPECT_EQ(refused[0].end, EndClass::kStopped) << "nobody's fault";
}

// ---- draining and leaving

TEST(AgentDrain, FinishesWhatRunsTakesNothingNewAndLeaves) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  EXPECT_THAT(sent<protocol::Draining>(agent.apply(DrainRequested{"SIGTERM"})), SizeIs(1));
  const Effects refused = agent.assign(kB, {1});
  EXPECT_THAT(of<StartTrainer>(refused), IsEmpty());
  EXPECT_THAT(sent<protocol::Draining>(refused), SizeIs(1)) << "the first one may have been lost";
  EXPECT_THAT(of<SignalTrainer>(agent.wait(5'000)), IsEmpty());
  agent.files[kA] = {end_report(1)};
  EXPECT_THAT(of<Exit>(agent.apply(TrainerExited{kA, {0, {}}})), IsEmpty());
  const auto exits = of<Exit>(agent.acknowledge(kA, 1));
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].code, 0);
}

TEST(AgentDrain, TheSecondSignalEndsTheTrainers) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA, {0});
  agent.run_trainer(kB, {1});
  EXPECT_THAT(of<SignalTrainer>(agent.apply(DrainRequested{"SIGTERM"})), IsEmpty());
  EXPECT_THAT(of<SignalTrainer>(agent.apply(DrainRequested{"SIGTERM"})), SizeIs(2));
  EXPECT_THAT(of<SignalTrainer>(agent.apply(DrainRequested{"SIGTERM"})), IsEmpty());
}

TEST(AgentDrain, TheLimitEndsTheTrainersToo) {
  AgentOptions options = AgentHarness::default_options();
  options.drain_limit_ms = 5'000;
  AgentHarness agent(options);
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.apply(DrainRequested{"SIGTERM"});
  EXPECT_THAT(of<SignalTrainer>(agent.wait(4'000)), IsEmpty());
  EXPECT_THAT(of<SignalTrainer>(agent.wait(2'000)), SizeIs(1));
}

TEST(AgentDrain, IsToldAgainAfterAReconnect) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  agent.receive(protocol::Drain{});
  agent.lose_session();
  agent.wait(500);
  agent.apply(SessionOpened{agent.state.session});
  EXPECT_THAT(sent<protocol::Draining>(agent.welcome({{kA, true, 0, 0}})), SizeIs(1));
}

TEST(AgentDrain, WithoutACoordinatorLeavesTheReportsOnDiskAndGoes) {
  AgentHarness agent;
  agent.files[kA] = {metric(1), end_report(2)};
  agent.start({{kA, {0}, false, 0, {}}});
  agent.tick();
  agent.lose_session();
  agent.apply(DrainRequested{"SIGTERM"});
  EXPECT_THAT(of<Exit>(agent.wait(5'000)), IsEmpty());
  const Effects effects = agent.wait(10'000);
  EXPECT_THAT(of<Exit>(effects), SizeIs(1));
  EXPECT_THAT(of<ForgetAttempt>(effects), IsEmpty());
}

TEST(AgentIdle, EndsAWorkerThatWasAskedToAndNoOther) {
  for (const bool asked : {false, true}) {
    AgentOptions options = AgentHarness::default_options();
    options.exit_when_idle = asked;
    options.idle_exit_ms = 5'000;
    AgentHarness agent(options);
    agent.start();
    agent.connect();
    agent.run_trainer(kA);
    EXPECT_THAT(of<Exit>(agent.wait(8'000)), IsEmpty()) << "a trial runs";
    agent.files[kA] = {end_report(1)};
    agent.apply(TrainerExited{kA, {0, {}}});
    agent.acknowledge(kA, 1);
    EXPECT_THAT(of<Exit>(agent.wait(4'000)), IsEmpty());
    EXPECT_THAT(of<Exit>(agent.wait(2'000)), SizeIs(asked ? 1 : 0));
  }
}

// ---- acknowledgements on disk

TEST(AgentAcks, AreNotedOnDiskAtMostOnceASecond) {
  AgentHarness agent;
  agent.start();
  agent.connect();
  agent.run_trainer(kA);
  for (std::uint64_t i = 1; i <= 20; ++i) agent.files[kA].push_back(metric(i));
  agent.wait(200);
  Effects all;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    agent.acknowledge(kA, i);
    for (AgentEffect& effect : agent.tick(100)) all.push_back(std::move(effect));
  }
  for (AgentEffect& effect : agent.wait(1000)) all.push_back(std::move(effect));
  const auto acks = of<PersistAck>(all);
  EXPECT_GE(acks.size(), 2u);
  EXPECT_LE(acks.size(), 4u);
  EXPECT_EQ(acks.back().sequence, 20u);
}

}  // namespace
}  // namespace tailor::agent
