// tailor-trainer with several ranks, as real processes: the same losses as one, resumed on another
// number of ranks, and ended by a rank that is killed, crashes, freezes or is told to stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "tests/worker/trainer/trainer_process.h"

namespace tailor {
namespace {

using protocol::CheckpointReport;
using protocol::EndClass;
using protocol::EndReport;
using protocol::StartedReport;
using testing::HasSubstr;

constexpr double kTolerance = 1e-6;  // relative, of losses

class RanksTest : public trainer::TrainerTest {
 protected:
  ~RanksTest() override {
    for (const pid_t pid : others_) ::kill(pid, SIGKILL);
  }

  // Rows that do not divide evenly, several micro-batches, loss at every step.
  protocol::TrialSpec spec(std::int64_t steps) const {
    protocol::TrialSpec spec = small_spec();
    spec.train.batch_tokens = 16 * 7;
    spec.train.micro_batch_tokens = 16 * 2;
    spec.train.tokens = spec.train.batch_tokens * steps;
    spec.train.log_every_steps = 1;
    spec.train.schedule.warmup_steps = 2;  // so that it learns from the start
    return spec;
  }

  static std::vector<std::string> gang_options(int rank, const std::string& rendezvous) {
    return {"--ranks",       "4", "--rank",       std::to_string(rank),
            "--local-ranks", "2", "--rendezvous", rendezvous};
  }
  static std::string wait_for_rendezvous(const std::string& trial) {
    wait_until("rank 0 does not say where it listens",
               [&] { return read_file(trial + "/rendezvous").has_value(); });
    const std::string text = read_file(trial + "/rendezvous").value_or("");
    return text.substr(0, text.find('\n'));
  }

  static void expect_part_of(const std::map<std::int64_t, double>& part,
                             const std::map<std::int64_t, double>& whole) {
    for (const auto& [step, loss] : part) {
      ASSERT_TRUE(whole.contains(step));
      EXPECT_NEAR(loss, whole.at(step), kTolerance * whole.at(step)) << "step " << step;
    }
  }

  // The process of rank `rank`, from the log; waits until it is there.
  pid_t process_of(const std::string& trial, int rank) {
    const std::regex line("rank started.*rank=" + std::to_string(rank) + " pid=([0-9]+)");
    const std::string text = wait_for_log(trial, line);
    std::smatch match;
    if (!std::regex_search(text, match, line)) return -1;
    others_.push_back(std::stoi(match[1]));
    return others_.back();
  }

  static std::string wait_for_log(const std::string& trial, const std::regex& line) {
    const SystemClock clock;
    const MonotonicMs deadline = clock.now_ms() + trainer::kDeadlineMs;
    while (clock.now_ms() < deadline) {
      const std::string text = read_file(trial + "/log").value_or("");
      if (std::regex_search(text, line)) return text;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "the log never says so: " << read_file(trial + "/log").value_or("");
    return "";
  }

  // True when the process is gone, or is so soon.
  static bool ends(pid_t pid) {
    const SystemClock clock;
    const MonotonicMs deadline = clock.now_ms() + trainer::kDeadlineMs;
    while (::kill(pid, 0) == 0) {
      if (clock.now_ms() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  std::vector<pid_t> others_;
};

TEST_F(RanksTest, RanksGiveTheLossesOfOneProcessWithTheSameBatch) {
  protocol::TrialSpec whole_spec = spec(12);
  whole_spec.train.evaluate_every_tokens = whole_spec.train.batch_tokens * 5;
  whole_spec.geometry.enabled = true;
  whole_spec.geometry.tokens = 32;
  whole_spec.geometry.subsamples = 4;
  const std::string one = prepare("one", whole_spec);
  ASSERT_EQ(run(one), 0) << *read_file(one + "/log");
  for (const char* ranks : {"2", "3"}) {
    const std::string many = prepare(std::string("many") + ranks, whole_spec);
    ASSERT_EQ(run(many, {"--ranks", ranks}), 0) << *read_file(many + "/log");
    EXPECT_EQ(losses(many).size(), 12u);
    expect_part_of(losses(many), losses(one));
    const EndReport ended = end(many);
    EXPECT_EQ(ended.end, EndClass::kCompleted);
    for (const char* name : {"validation_loss", "perplexity"}) {
      EXPECT_NEAR(ended.values.at(name), end(one).values.at(name),
                  kTolerance * end(one).values.at(name));
    }
    // Rank 0 alone wrote: one report of each, numbered without gaps.
    std::uint64_t sequence = 0;
    for (const protocol::Report& report : reports(many)) EXPECT_EQ(report.sequence, ++sequence);
    ASSERT_EQ(bodies<StartedReport>(many).size(), 1u);
    EXPECT_EQ(bodies<StartedReport>(many)[0].device, std::string(ranks) + " x cpu");
    EXPECT_EQ(bodies<CheckpointReport>(many).size(), 1u);
    EXPECT_EQ(bodies<protocol::ProfileReport>(many).size(), 1u);
    EXPECT_FALSE(weights(many).empty());
  }
}

TEST_F(RanksTest, AGangOfTwoMachinesWithTwoRanksEachTrainsToTheLossesOfOneProcess) {
  const protocol::TrialSpec whole_spec = spec(12);
  const std::string one = prepare("one", whole_spec);
  ASSERT_EQ(run(one), 0) << *read_file(one + "/log");

  // As the workers of two machines start them: folders of their own, one process each.
  const std::string first = prepare("first", whole_spec), second = prepare("second", whole_spec);
  start(first, gang_options(0, "127.0.0.1:0"));
  const std::string rendezvous = wait_for_rendezvous(first);
  const pid_t other = launch(second, gang_options(2, rendezvous));
  others_.push_back(other);
  EXPECT_EQ(wait(), 0) << *read_file(first + "/log");
  EXPECT_EQ(wait_for(other), 0) << *read_file(second + "/log");
  EXPECT_EQ(losses(first).size(), 12u);
  expect_part_of(losses(first), losses(one));
  EXPECT_EQ(bodies<StartedReport>(first).at(0).device, "4 x cpu");
  EXPECT_EQ(end(first).end, EndClass::kCompleted);
  EXPECT_FALSE(std::filesystem::exists(second + "/reports.jsonl")) << "rank 0 alone reports";
  EXPECT_FALSE(std::filesystem::exists(second + "/checkpoints"));
}

TEST_F(RanksTest, AGangThatLosesAMachineEndsOnceAndResumesOnAnotherNumberOfRanks) {
  protocol::TrialSpec next = spec(1'000'000);
  next.train.checkpoint_every_ms = 100;
  const std::string first = prepare("first", next), second = prepare("second", next);
  start(first, gang_options(0, "127.0.0.1:0"));
  const pid_t other = launch(second, gang_options(2, wait_for_rendezvous(first)));
  others_.push_back(other);
  wait_for_checkpoint(first);
  const pid_t rank_3 = process_of(second, 3);
  ::kill(other, SIGKILL);  // as when its machine's memory runs out
  EXPECT_EQ(wait(), static_cast<int>(protocol::TrainerExit::kLostRank));
  wait_for(other);
  EXPECT_TRUE(ends(rank_3));
  EXPECT_EQ(bodies<EndReport>(first).size(), 1u);
  EXPECT_THAT(end(first).message, HasSubstr("rank 2"));

  next.attempt = 2;
  next.resume_from = {first + "/checkpoints"};
  const std::string alone = prepare("alone", next);
  start(alone);
  wait_until("it does not start", [&] { return !bodies<StartedReport>(alone).empty(); });
  EXPECT_GT(bodies<StartedReport>(alone)[0].resumed_step, 0);
  ::kill(pid_, SIGTERM);
  wait();
}

TEST_F(RanksTest, EveryMachinesFirstRankLooksAtTheLeaseInItsOwnFolder) {
  const protocol::TrialSpec next = spec(1'000'000);
  const std::string first = prepare("first", next), second = prepare("second", next);
  start(first, gang_options(0, "127.0.0.1:0"));
  const pid_t other = launch(second, gang_options(2, wait_for_rendezvous(first)));
  others_.push_back(other);
  wait_for_step(first, 3);
  std::ofstream(second + "/lease") << "1\n";  // long over: the worker there is gone
  EXPECT_EQ(wait(), 6) << *read_file(first + "/log");
  EXPECT_EQ(wait_for(other), 6);
  EXPECT_EQ(end(first).end, EndClass::kStopped);
  EXPECT_THAT(end(first).message, HasSubstr("lease"));
  EXPECT_FALSE(bodies<CheckpointReport>(first).empty()) << "saved before they stopped";
}

TEST_F(RanksTest, SharesOfAMachineThatDoNotAddUpAreRefused) {
  const std::string trial = prepare("t", spec(3));
  const std::vector<std::vector<std::string>> wrong = {
      {"--ranks", "4", "--local-ranks", "2"},
      {"--ranks", "4", "--rank", "3", "--local-ranks", "2", "--rendezvous", "127.0.0.1:1"},
      {"--ranks", "4", "--rank", "0", "--local-ranks", "0", "--rendezvous", "127.0.0.1:0"}};
  for (const auto& options : wrong) EXPECT_EQ(run(trial, options), 2);
}

TEST_F(RanksTest, ATrialIsResumedOnAnotherNumberOfRanks) {
  protocol::TrialSpec next = spec(1'000'000);
  std::int64_t step = 0;
  std::map<std::int64_t, double> curve;
  const std::vector<std::vector<std::string>> ways = {{}, {"--ranks", "2"}, {}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    next.attempt = static_cast<std::uint32_t>(i + 1);
    const std::string trial = prepare("part" + std::to_string(i), next);
    start(trial, ways[i]);
    wait_for_step(trial, step + 10);
    ::kill(pid_, SIGTERM);
    ASSERT_EQ(wait(), 6) << *read_file(trial + "/log");
    EXPECT_EQ(bodies<StartedReport>(trial).at(0).resumed_step, step);
    EXPECT_EQ(losses(trial).begin()->first, step + 1);
    step = end(trial).step;
    EXPECT_EQ(bodies<CheckpointReport>(trial).back().step, step);
    curve.merge(losses(trial));
    next.resume_from = {trial + "/checkpoints"};
  }
  EXPECT_EQ(curve.size(), static_cast<std::size_t>(step));
  const std::string whole = prepare("whole", spec(1'000'000));
  start(whole);
  wait_for_step(whole, step);
  ::kill(pid_, SIGTERM);
  ASSERT_EQ(wait(), 6);
  expect_part_of(curve, losses(whole));
}

TEST_F(RanksTest, SigtermToOneRankStopsAllAtTheSameStepWithACheckpoint) {
  const std::string trial = prepare("a", spec(1'000'000));
  start(trial, {"--ranks", "3"});
  wait_for_step(trial, 5);
  const pid_t second = process_of(trial, 2);
  ::kill(second, SIGTERM);
  EXPECT_EQ(wait(), 6) << *read_file(trial + "/log");
  const EndReport ended = end(trial);
  EXPECT_EQ(ended.end, EndClass::kStopped);
  EXPECT_THAT(ended.message, HasSubstr("rank 2: SIGTERM"));
  ASSERT_EQ(bodies<CheckpointReport>(trial).size(), 1u);
  EXPECT_EQ(bodies<CheckpointReport>(trial)[0].step, ended.step);
  // The others say where they stopped.
  const std::string log = *read_file(trial + "/log");
  const std::regex at("SIGTERM at step " + std::to_string(ended.step) + "[^0-9]");
  EXPECT_EQ(std::distance(std::sregex_iterator(log.begin(), log.end(), at), {}), 3) << log;
}

TEST_F(RanksTest, AKilledOrCrashedRankEndsAllWithItsNameAndSignal) {
  for (const int signal : {SIGKILL, SIGABRT}) {
    const std::string trial = prepare("signal" + std::to_string(signal), spec(1'000'000));
    start(trial, {"--ranks", "3"});
    wait_for_step(trial, 3);
    const pid_t first = process_of(trial, 1);
    const pid_t second = process_of(trial, 2);
    ::kill(first, signal);
    EXPECT_EQ(wait(), 8) << *read_file(trial + "/log");
    EXPECT_TRUE(ends(first) && ends(second));
    const EndReport ended = end(trial);
    EXPECT_EQ(ended.end, EndClass::kInfrastructure);
    EXPECT_THAT(ended.message, HasSubstr("rank 1 (process " + std::to_string(first)));
    EXPECT_THAT(ended.message, HasSubstr("was killed by signal " + std::to_string(signal)));
  }
}

TEST_F(RanksTest, AFrozenRankIsLostAfterTheGivenSilenceAndKilled) {
  const std::string trial = prepare("a", spec(1'000'000));
  start(trial, {"--ranks", "3", "--lost-after", "3"});
  wait_for_step(trial, 3);
  const pid_t first = process_of(trial, 1);
  const pid_t second = process_of(trial, 2);
  const SystemClock clock;
  const MonotonicMs begin_ms = clock.now_ms();
  ::kill(first, SIGSTOP);
  EXPECT_EQ(wait(), 8) << *read_file(trial + "/log");
  EXPECT_GE(clock.now_ms() - begin_ms, 2'500);
  EXPECT_TRUE(ends(first) && ends(second));
  EXPECT_EQ(end(trial).end, EndClass::kNodeLost);
  EXPECT_THAT(end(trial).message, HasSubstr("rank 1 (process " + std::to_string(first)));
  EXPECT_THAT(end(trial).message, HasSubstr("not a sign of life"));
}

TEST_F(RanksTest, WhenRankZeroIsKilledNobodyIsLeft) {
  const std::string trial = prepare("a", spec(1'000'000));
  start(trial, {"--ranks", "3"});
  wait_for_step(trial, 3);
  const pid_t first = process_of(trial, 1);
  const pid_t second = process_of(trial, 2);
  ::kill(pid_, SIGKILL);
  EXPECT_EQ(wait(), -SIGKILL);
  EXPECT_TRUE(ends(first) && ends(second));
  wait_for_log(trial, std::regex("rank 0 \\(process .* is lost"));
}

// Ranks that somebody else starts, as on several machines.
class StartedRanksTest : public RanksTest {
 protected:
  // Starts rank 0 on a free port and gives the rendezvous.
  std::string start_first(const std::string& trial, const std::string& ranks) {
    start(trial, {"--ranks", ranks, "--rank", "0", "--rendezvous", "127.0.0.1:0"});
    const std::regex line("waiting for the other ranks.*rendezvous=([^ \n]+)");
    const std::string text = wait_for_log(trial, line);
    std::smatch match;
    return std::regex_search(text, match, line) ? match[1].str() : "";
  }
};

TEST_F(StartedRanksTest, RanksMeetAtTheRendezvous) {
  const protocol::TrialSpec task = spec(5);
  const std::string one = prepare("one", task);
  ASSERT_EQ(run(one), 0);
  const std::string trial = prepare("first", task);
  // Another machine has its own copies.
  protocol::TrialSpec copy = task;
  copy.threads = 2;
  const std::string elsewhere = prepare("second", copy);
  const std::string rendezvous = start_first(trial, "2");
  const pid_t second =
      launch(elsewhere, {"--ranks", "2", "--rank", "1", "--rendezvous", rendezvous});
  EXPECT_EQ(wait_for(second), 0) << *read_file(elsewhere + "/log");
  EXPECT_EQ(wait(), 0) << *read_file(trial + "/log");
  EXPECT_EQ(losses(trial).size(), 5u);
  expect_part_of(losses(trial), losses(one));
  EXPECT_FALSE(std::filesystem::exists(elsewhere + "/reports.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(elsewhere + "/checkpoints"));
}

TEST_F(StartedRanksTest, ARankWithOtherDataEndsAllAsADataError) {
  write_shard("other.tokens", 40'000, 9);
  const std::string trial = prepare("first", spec(5));
  protocol::TrialSpec other = spec(5);
  other.data.train = folder_ + "/other.tokens";
  const std::string elsewhere = prepare("second", other);
  const std::string rendezvous = start_first(trial, "2");
  const pid_t second =
      launch(elsewhere, {"--ranks", "2", "--rank", "1", "--rendezvous", rendezvous});
  EXPECT_EQ(wait_for(second), 3);
  EXPECT_EQ(wait(), 3) << *read_file(trial + "/log");
  EXPECT_EQ(end(trial).end, EndClass::kData);
  EXPECT_THAT(end(trial).message, HasSubstr("rank 1 would train something else"));
}

TEST_F(StartedRanksTest, ARankThatFailsByItselfGivesItsOwnReason) {
  const std::string trial = prepare("first", spec(5));
  protocol::TrialSpec other = spec(5);
  other.data.validation = folder_ + "/missing.tokens";
  const std::string elsewhere = prepare("second", other);
  const std::string rendezvous = start_first(trial, "2");
  const pid_t second =
      launch(elsewhere, {"--ranks", "2", "--rank", "1", "--rendezvous", rendezvous});
  EXPECT_EQ(wait_for(second), 3);
  EXPECT_EQ(wait(), 3) << *read_file(trial + "/log");
  EXPECT_EQ(end(trial).end, EndClass::kData);
  EXPECT_THAT(end(trial).message, HasSubstr("rank 1: "));
  EXPECT_THAT(end(trial).message, HasSubstr("missing.tokens"));
}

TEST_F(StartedRanksTest, RanksOfDifferentTrialsDoNotMeet) {
  const std::string trial = prepare("first", spec(5));
  const std::string elsewhere = prepare("second", spec(6));
  const std::string rendezvous = start_first(trial, "2");
  const pid_t second =
      launch(elsewhere, {"--ranks", "2", "--rank", "1", "--rendezvous", rendezvous});
  EXPECT_EQ(wait_for(second), 2);
  EXPECT_THAT(*read_file(elsewhere + "/log"), HasSubstr("all ranks need the same spec"));
  // Rank 0 goes on waiting for the right one, and can be told to stop.
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait(), 6) << *read_file(trial + "/log");
  EXPECT_EQ(end(trial).end, EndClass::kStopped);
}

TEST_F(RanksTest, ABatchWithFewerSequencesThanRanksIsABadSpec) {
  protocol::TrialSpec small = spec(5);
  small.train.batch_tokens = 16 * 2;
  const std::string trial = prepare("a", small);
  EXPECT_EQ(run(trial, {"--ranks", "3"}), 2);
  EXPECT_THAT(end(trial).message, HasSubstr("3 ranks need at least one each"));
}

TEST_F(RanksTest, OptionsThatDoNotGoTogetherAreExplained) {
  const std::string trial = prepare("a", spec(5));
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--ranks", "0"}, "--ranks is a number of processes"},
      {{"--ranks", "2", "--rank", "2", "--rendezvous", "a:1"}, "it is 0 to 1"},
      {{"--ranks", "2", "--rank", "1"}, "needs --rendezvous"},
      {{"--ranks", "2", "--rendezvous", "a:1"}, "needs --rank"},
      {{"--ranks", "2", "--rank", "1", "--rendezvous", "nowhere"}, "HOST:PORT"},
      {{"--lost-after", "0"}, "--lost-after"},
  };
  for (const auto& [options, words] : cases) {
    EXPECT_EQ(run(trial, options), 2);
    EXPECT_THAT(*read_file(trial + "/log"), HasSubstr(words));
  }
  EXPECT_FALSE(std::filesystem::exists(trial + "/reports.jsonl"));
}

}  // namespace
}  // namespace tailor
