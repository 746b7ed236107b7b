// kill -9 of the coordinator, of workers and of trainers, at 20 random moments each, on real
// processes with the fake trainer: every trial ends, no acknowledged report is missing or stored
// twice, no process is left behind.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>
#include <fstream>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/integration/cluster.h"

namespace tailor::testing {
namespace {

constexpr int kKills = 20;
constexpr int kSteps = 25;

/// Waits a drawn time: the random moment of the next kill.
void random_pause(Rng& rng, int low_ms, int high_ms) {
  ::poll(nullptr, 0,
         low_ms + static_cast<int>(rng.below(static_cast<std::uint64_t>(high_ms - low_ms))));
}

/// What the trainer of one attempt wrote: sequence -> step of metric reports (0 for other reports).
std::map<std::uint64_t, std::int64_t> written_reports(const std::filesystem::path& file) {
  std::map<std::uint64_t, std::int64_t> found;
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("sequence")) continue;
    const auto number = [](const nlohmann::json& value) {
      return value.is_string() ? std::stoll(value.get<std::string>()) : value.get<std::int64_t>();
    };
    std::int64_t step = 0;
    if (json.contains("metric") && json["metric"].contains("step"))
      step = number(json["metric"]["step"]);
    found[static_cast<std::uint64_t>(number(json["sequence"]))] = step;
  }
  return found;
}

class Kill : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.set_environment("FAKE_STEPS", std::to_string(kSteps));
    cluster_.set_environment("FAKE_STEP_MS", "40");
    // Killed trainers are the node's fault: it would be taken out for a while.
    const std::string settings = (cluster_.dir() / "coordinator.toml").string();
    std::ofstream(settings) << "[quarantine]\nafter = 1000000\n";
    cluster_.set_coordinator_options({"--config", settings});
    cluster_.start_coordinator();
    ASSERT_FALSE(HasFatalFailure());
    for (const auto& name : names_) cluster_.start_worker(name, 2);
    const std::string file = cluster_.write_sweep(
        "kill", 8, 3, "[retry]\ninfrastructure = 50\nnode_lost = 50\nlease_lost = 50\n");
    const CommandResult submitted = cluster_.tailor({"submit", file});
    ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
    ASSERT_TRUE(wait_until([&] { return !cluster_.trainers().empty(); }, 20))
        << "no trainer was started";
  }

  /// Waits for the sweep's end and checks everything the store must hold. A trial whose trainer was
  /// killed on two workers may have failed: the scheduler cannot tell it from one that kills its
  /// own trainers.
  void finish_and_check(bool trainers_were_killed = false) {
    if (!cluster_.coordinator_running()) cluster_.start_coordinator();
    for (const auto& name : names_) {
      if (!cluster_.worker_running(name)) cluster_.start_worker(name, 2);
    }
    ASSERT_TRUE(wait_until([&] { return cluster_.sweep_ended(); }, 120))
        << "the sweep did not end: " << cluster_.tailor({"ls", "last"}).out;

    const auto trials = cluster_.query("SELECT id, state, message FROM trial");
    ASSERT_EQ(trials.size(), 24u);
    std::size_t completed = 0;
    for (const auto& trial : trials) {
      completed += trial[1] == "completed" ? 1 : 0;
      if (trainers_were_killed && trial[1] == "failed") {
        EXPECT_NE(trial[2].find("the same failure (infrastructure) on 2 workers"),
                  std::string::npos)
            << trial[2];
      } else {
        EXPECT_EQ(trial[1], "completed") << "t" << trial[0] << ": " << trial[2];
      }
    }
    EXPECT_GE(completed, 14u);  // 20 kills can end 10 trials at most

    // Stored exactly once: no (attempt, metric, step) twice ...
    EXPECT_TRUE(cluster_
                    .query("SELECT trial, attempt, metric, step, count(*) FROM metric_view "
                           "GROUP BY trial, attempt, metric, step HAVING count(*) > 1")
                    .empty());
    // ... and what was acknowledged is there, and is what the trainer wrote.
    std::map<std::pair<std::string, std::string>, std::set<std::int64_t>> stored;
    for (const auto& row :
         cluster_.query("SELECT DISTINCT trial, attempt, step FROM metric_view")) {
      stored[{row[0], row[1]}].insert(std::stoll(row[2]));
    }
    std::size_t checked = 0;
    for (const auto& attempt :
         cluster_.query("SELECT trial, number, acked_sequence FROM attempt")) {
      const auto written = written_reports(cluster_.dir() / "trials" / ("t" + attempt[0]) /
                                           attempt[1] / "reports.jsonl");
      const std::uint64_t acked = std::stoull(attempt[2]);
      std::set<std::int64_t> expected;
      for (const auto& [sequence, step] : written) {
        if (sequence <= acked && step > 0) expected.insert(step);
      }
      const auto found = stored.find({attempt[0], attempt[1]});
      EXPECT_EQ(found == stored.end() ? std::set<std::int64_t>{} : found->second, expected)
          << "attempt t" << attempt[0] << "." << attempt[1];
      checked += expected.size();
    }
    EXPECT_GE(checked, 24u * 1u) << "the check saw no reports";
    // The curve of a trial is whole, however often it moved.
    for (const auto& trial : trials) {
      if (trial[1] != "completed") continue;
      const auto rows = cluster_.query(
          "SELECT count(DISTINCT step), max(step) FROM metric_view WHERE trial = " + trial[0]);
      ASSERT_EQ(rows.size(), 1u);
      EXPECT_EQ(rows[0][1], std::to_string(kSteps));
      EXPECT_EQ(rows[0][0], std::to_string(kSteps)) << "t" << trial[0] << " has a gap";
    }

    // Nothing is left behind.
    for (const auto& name : names_) {
      cluster_.signal_worker(name, SIGTERM);
      const int status = cluster_.reap_worker(name);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << "worker " << name << " ended with " << status;
    }
    cluster_.signal_coordinator(SIGTERM);
    const int status = cluster_.reap_coordinator();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "the coordinator ended with " << status;
    EXPECT_TRUE(wait_until([&] { return processes_of(cluster_.tag()).empty(); }, 10))
        << processes_of(cluster_.tag()).size() << " processes are left";
  }

  const std::vector<std::string> names_ = {"node-a", "node-b"};
  Cluster cluster_;
};

TEST_F(Kill, OfTheCoordinatorTwentyTimesLosesAndDoublesNothing) {
  Rng rng(1);
  for (int i = 0; i < kKills; ++i) {
    random_pause(rng, 20, 400);
    cluster_.signal_coordinator(SIGKILL);
    cluster_.reap_coordinator();
    cluster_.start_coordinator();
    ASSERT_FALSE(HasFatalFailure());
  }
  finish_and_check();
}

TEST_F(Kill, OfWorkersTwentyTimesLosesAndDoublesNothing) {
  Rng rng(2);
  for (int i = 0; i < kKills; ++i) {
    random_pause(rng, 20, 400);
    const std::string& name = names_[rng.below(2)];
    cluster_.signal_worker(name, SIGKILL);
    cluster_.reap_worker(name);
    // Sometimes it comes back at once (its trainers still run), sometimes after their lease.
    if (rng.below(3) == 0) random_pause(rng, 1300, 1600);
    cluster_.start_worker(name, 2);
  }
  finish_and_check();
}

TEST_F(Kill, OfTrainersTwentyTimesLosesAndDoublesNothing) {
  Rng rng(3);
  int killed = 0;
  const SystemClock clock;
  const auto deadline = clock.now_ms() + 60'000;
  while (killed < kKills && clock.now_ms() < deadline && !cluster_.sweep_ended()) {
    random_pause(rng, 20, 200);
    const auto running = cluster_.trainers();
    if (running.empty()) continue;
    ::kill(running[rng.below(running.size())], SIGKILL);
    ++killed;
  }
  EXPECT_EQ(killed, kKills) << "the sweep ended before all kills were made";
  finish_and_check(/*trainers_were_killed=*/true);
}

}  // namespace
}  // namespace tailor::testing
