// Trials that go on elsewhere: what is there afterwards, and what is said.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "tests/integration/cluster.h"

namespace tailor::testing {
namespace {

class Resume : public ::testing::Test {
 protected:
  /// Submits one trial of so many steps of 20 ms, with checkpoints only when it is told to stop.
  void submit(int steps, const std::string& checkpoint_every = "100000",
              const std::vector<std::string>& worker_options = {}) {
    cluster_.set_environment("FAKE_STEPS", std::to_string(steps));
    cluster_.set_environment("FAKE_STEP_MS", "20");
    cluster_.set_environment("FAKE_CHECKPOINT_EVERY", checkpoint_every);
    cluster_.start_coordinator();
    ASSERT_FALSE(HasFatalFailure());
    cluster_.start_worker("node-a", 1, worker_options);
    const CommandResult submitted = cluster_.tailor({"submit", cluster_.write_sweep("one", 1, 1)});
    ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
    ASSERT_TRUE(wait_until([&] { return stored_steps() >= 10; }, 60));
  }
  int stored_steps() {
    const auto rows = cluster_.query("SELECT count(DISTINCT step) FROM metric_view");
    return rows.empty() ? 0 : std::stoi(rows[0][0]);
  }
  /// A trials folder that no other worker sees.
  std::vector<std::string> own_folder(const std::string& name) {
    return {"--trials-dir", (cluster_.dir() / (name + "-trials")).string()};
  }
  /// Steps of the whole checkpoints in the coordinator's store.
  std::vector<int> stored_checkpoints() {
    std::vector<int> steps;
    std::error_code failure;
    for (std::filesystem::recursive_directory_iterator
             it(cluster_.dir() / "tailor.db.artifacts", failure),
         end;
         !failure && it != end; it.increment(failure)) {
      const std::string folder = it->path().parent_path().filename().string();
      if (it->path().filename() == "files.json" && !folder.ends_with(".part"))
        steps.push_back(std::stoi(folder.substr(folder.find('-') + 1)));
    }
    return steps;
  }
  /// The machine is gone: its worker, its trainers and its disk.
  void lose(const std::string& name) {
    if (cluster_.worker_running(name)) {
      cluster_.signal_worker(name, SIGKILL);
      cluster_.reap_worker(name);
    }
    for (const pid_t trainer : cluster_.trainers()) ::kill(trainer, SIGKILL);
    ASSERT_TRUE(wait_until([&] { return cluster_.trainers().empty(); }, 60));
    std::filesystem::remove_all(cluster_.dir() / (name + "-trials"));
  }
  int resumed_step(int attempt) {
    const auto rows = cluster_.query(
        fmt::format("SELECT json_extract(s.started_json, '$.resumed_step') FROM attempt a "
                    "JOIN attempt_start s ON s.attempt = a.id WHERE a.number = {}",
                    attempt));
    return rows.empty() || rows[0][0].empty() ? -1 : std::stoi(rows[0][0]);
  }
  void finish(int steps) {
    ASSERT_TRUE(wait_until([&] { return cluster_.sweep_ended(); }, 120));
    const auto trials = cluster_.query("SELECT state, message FROM trial");
    ASSERT_EQ(trials.size(), 1u);
    EXPECT_EQ(trials[0][0], "completed") << trials[0][1];
    EXPECT_EQ(stored_steps(), steps);
  }
  Cluster cluster_;
};

TEST_F(Resume, TheCurveIsWholeWhenAWorkerDiesAndAnotherTakesOverInTheSharedFolder) {
  submit(400);
  cluster_.signal_worker("node-a", SIGKILL);
  cluster_.reap_worker("node-a");
  // The orphan trains on to the end of its lease, saves and stops; nobody reads what it reports.
  ASSERT_TRUE(wait_until([&] { return cluster_.trainers().empty(); }, 60));
  const int before = stored_steps();
  cluster_.start_worker("node-b");
  ASSERT_TRUE(wait_until([&] { return cluster_.sweep_ended(); }, 120));
  const auto attempts = cluster_.query(
      "SELECT a.number, json_extract(s.started_json, '$.resumed_step') FROM attempt a "
      "JOIN attempt_start s ON s.attempt = a.id ORDER BY a.number");
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_GT(std::stoi(attempts[1][1]), before) << "the orphan got on after its worker's death";
  EXPECT_EQ(stored_steps(), 400) << "no step between its last acknowledgement and its checkpoint "
                                    "is missing";
}

TEST_F(Resume, WithoutASharedFolderTheTrialOfALostMachineGoesOnFromItsStoredCheckpoint) {
  submit(300, "20", own_folder("node-a"));
  ASSERT_TRUE(wait_until([&] { return !stored_checkpoints().empty(); }, 60));
  lose("node-a");
  ASSERT_FALSE(HasFatalFailure());
  cluster_.start_worker("node-b", 1, own_folder("node-b"));
  finish(300);
  EXPECT_GE(resumed_step(2), 20);
}

TEST_F(Resume, WithoutASharedFolderAPausedTrialGoesOnElsewhere) {
  submit(300, "100000", own_folder("node-a"));
  ASSERT_EQ(cluster_.tailor({"pause", "last"}).exit_code, 0);
  ASSERT_TRUE(wait_until([&] { return !stored_checkpoints().empty(); }, 60))
      << "what it saved when it was paused";
  ASSERT_TRUE(wait_until([&] { return cluster_.trainers().empty(); }, 60));
  const int step = stored_checkpoints().at(0);
  lose("node-a");
  ASSERT_FALSE(HasFatalFailure());
  cluster_.start_worker("node-b", 1, own_folder("node-b"));
  ASSERT_EQ(cluster_.tailor({"resume", "last"}).exit_code, 0);
  finish(300);
  EXPECT_EQ(resumed_step(2), step);
}

TEST_F(Resume, WithoutASharedFolderADrainedWorkerLeavesItsCheckpointWithTheCoordinator) {
  submit(300, "100000", own_folder("node-a"));
  cluster_.signal_worker("node-a", SIGTERM);
  // Two signals of a kind that wait at once are one.
  ASSERT_TRUE(wait_until(
      [&] {
        const auto log = read_file((cluster_.dir() / "node-a.log").string());
        return log.has_value() && log->find("draining") != std::string::npos;
      },
      60));
  cluster_.signal_worker("node-a", SIGTERM);
  const int status = cluster_.reap_worker("node-a");
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const auto stored = stored_checkpoints();
  ASSERT_EQ(stored.size(), 1u) << "it ended before its checkpoint had arrived";
  lose("node-a");
  cluster_.start_worker("node-b", 1, own_folder("node-b"));
  finish(300);
  EXPECT_EQ(resumed_step(2), stored[0]);
  EXPECT_GT(stored[0], 0);
}

TEST_F(Resume, WithoutAStoreTheTrialStartsOver) {
  const std::string settings = (cluster_.dir() / "coordinator.toml").string();
  std::ofstream(settings) << "checkpoint_wait = \"1s\"\n";
  cluster_.set_coordinator_options({"--artifacts-quota", "0", "--config", settings});
  submit(60, "10", own_folder("node-a"));
  lose("node-a");
  ASSERT_FALSE(HasFatalFailure());
  cluster_.start_worker("node-b", 1, own_folder("node-b"));
  finish(60);
  EXPECT_EQ(resumed_step(2), 0);
}

// The numbers of what ran after the backup come a second time, to a worker that has seen them.
TEST_F(Resume, AWorkerThatLivedThroughARestoreTakesUpTheNumbersThatComeAgain) {
  cluster_.set_environment("FAKE_STEPS", "5");
  cluster_.start_coordinator();
  ASSERT_FALSE(HasFatalFailure());
  cluster_.start_worker("node-a", 2);
  const std::string database = (cluster_.dir() / "tailor.db").string();
  const std::string backup = (cluster_.dir() / "backup.db").string();
  ASSERT_EQ(cluster_.tailor({"backup", backup}).exit_code, 0);
  ASSERT_EQ(cluster_.tailor({"submit", cluster_.write_sweep("before", 4, 1)}).exit_code, 0);
  ASSERT_TRUE(wait_until([&] { return cluster_.sweep_ended(); }, 60));
  cluster_.signal_coordinator(SIGTERM);
  cluster_.reap_coordinator();
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(database + suffix);
  std::filesystem::copy_file(backup, database);
  cluster_.start_coordinator();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(cluster_.tailor({"submit", cluster_.write_sweep("after", 4, 1)}).exit_code, 0);
  ASSERT_TRUE(wait_until([&] { return cluster_.sweep_ended(); }, 60));
  const auto attempts = cluster_.query("SELECT number, token >> 40 > 0 FROM attempt");
  ASSERT_EQ(attempts.size(), 4u)
      << "each once: "
      << ::testing::PrintToString(
             cluster_.query("SELECT trial, number, token >> 40, end_class, message FROM attempt"));
  for (const auto& attempt : attempts) EXPECT_EQ(attempt[1], "1");
  EXPECT_EQ(cluster_.query("SELECT id FROM trial WHERE state = 'completed'").size(), 4u);
}

TEST_F(Resume, ASecondCoordinatorIsKeptFromTheCheckpointsOfTheFirst) {
  cluster_.start_coordinator();
  ASSERT_FALSE(HasFatalFailure());
  const std::string dir = cluster_.dir().string();
  const auto second = [&] {
    return run_command({std::string(TAILOR_BIN_DIR) + "/tailor-coordinator", "--database",
                        dir + "/other.db", "--artifacts", dir + "/tailor.db.artifacts", "--listen",
                        "127.0.0.1:0", "--http", "127.0.0.1:0"});
  };
  const CommandResult locked = second();
  EXPECT_EQ(locked.exit_code, 7) << locked.err;
  cluster_.signal_coordinator(SIGTERM);
  cluster_.reap_coordinator();
  const CommandResult named = second();
  EXPECT_EQ(named.exit_code, 7) << named.err;
  EXPECT_NE(named.err.find("another database"), std::string::npos) << named.err;
}

}  // namespace
}  // namespace tailor::testing
