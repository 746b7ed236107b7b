// The programs as a user meets them: idempotent submission, bad files,
// refusals with reasons and exit codes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "base/file.h"
#include "tests/integration/cluster.h"

namespace tailor::testing {
namespace {

class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.set_environment("FAKE_STEPS", "5");
    cluster_.set_environment("FAKE_STEP_MS", "5");
    cluster_.start_coordinator();
  }
  Cluster cluster_;
};

TEST_F(Program, TheSameFileTwiceIsTheSameSweepAndAnotherUnderItsNameAConflict) {
  const std::string file = cluster_.write_sweep("twice", 2, 2);
  const auto first = cluster_.tailor_json({"submit", file});
  const auto second = cluster_.tailor_json({"submit", file});
  EXPECT_EQ(first["sweep"], second["sweep"]);
  EXPECT_EQ(first["created"], true);
  EXPECT_EQ(second["created"], false);
  EXPECT_EQ(cluster_.query("SELECT count(*) FROM trial")[0][0], "4");
  cluster_.write_sweep("twice", 3, 2);
  const CommandResult other = cluster_.tailor({"submit", file});
  EXPECT_EQ(other.exit_code, 7) << other.err;
  EXPECT_NE(other.err.find("twice"), std::string::npos);
}

TEST_F(Program, ASweepRunsToItsEndAndIsCompared) {
  cluster_.start_worker("node", 2);
  const CommandResult watched =
      cluster_.tailor({"submit", cluster_.write_sweep("whole", 3, 2), "--watch"}, 60);
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  const auto compared = cluster_.tailor_json({"compare", "whole"});
  ASSERT_EQ(compared["rows"].size(), 3u);
  EXPECT_EQ(compared["baseline"], "c0");
  EXPECT_EQ(compared["rows"][1]["seeds"], 2);
  EXPECT_TRUE(compared["rows"][1]["difference"].is_number());
  EXPECT_TRUE(compared["rows"][1]["ci_low"].is_number());
  const CommandResult csv = cluster_.tailor({"export", "whole"});
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 7) << csv.out;
  const CommandResult log = cluster_.tailor({"logs", "t1"});
  EXPECT_EQ(log.exit_code, 0) << log.err;
}

TEST_F(Program, ABadSweepFileIsNamedByPositionAndNothingIsSubmitted) {
  const std::string path = (cluster_.dir() / "bad.toml").string();
  ASSERT_TRUE(write_file_atomic(path, "name = \"bad\"\n[train]\ntokenz = 5\n").is_ok());
  for (const char* command : {"plan", "submit"}) {
    const CommandResult result = cluster_.tailor({command, path});
    EXPECT_EQ(result.exit_code, 2) << command;
    EXPECT_NE(result.err.find("bad.toml:"), std::string::npos) << result.err;
  }
  EXPECT_TRUE(cluster_.query("SELECT id FROM sweep").empty());
}

TEST_F(Program, UnknownNamesAreNotFoundAndUnknownFlagsGetASuggestion) {
  EXPECT_EQ(cluster_.tailor({"show", "nothing"}).exit_code, 3);
  EXPECT_EQ(cluster_.tailor({"show", "t99"}).exit_code, 3);
  const CommandResult typo = cluster_.tailor({"submti", "x"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_NE(typo.err.find("submit"), std::string::npos) << typo.err;
}

TEST_F(Program, OutputThatDoesNotFitOnTheDiskIsNoSuccess) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const std::string tailor =
      std::string(TAILOR_BIN_DIR) + "/tailor --coordinator " + cluster_.address();
  const CommandResult result = run_command({"/bin/sh", "-c", tailor + " ls > /dev/full"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("could not be written"), std::string::npos) << result.err;
}

TEST_F(Program, ACoordinatorThatIsNotThereIsExitCodeFive) {
  const CommandResult result =
      run_command({std::string(TAILOR_BIN_DIR) + "/tailor", "--coordinator", "127.0.0.1:1",
                   "--timeout", "5", "ls"});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_NE(result.err.find("127.0.0.1:1"), std::string::npos);
}

TEST_F(Program, ASecondCoordinatorOnTheSameDatabaseOrPortIsRefused) {
  const std::string coordinator = std::string(TAILOR_BIN_DIR) + "/tailor-coordinator";
  const CommandResult locked =
      run_command({coordinator, "--database", (cluster_.dir() / "tailor.db").string(), "--listen",
                   "127.0.0.1:0", "--http", "127.0.0.1:0"});
  EXPECT_EQ(locked.exit_code, 7) << locked.err;
  EXPECT_NE(locked.err.find("tailor.db"), std::string::npos) << locked.err;
  const CommandResult port =
      run_command({coordinator, "--database", (cluster_.dir() / "other.db").string(), "--listen",
                   cluster_.address(), "--http", "127.0.0.1:0"});
  EXPECT_EQ(port.exit_code, 7) << port.err;
}

TEST_F(Program, TwoWorkersCannotShareAWorkFolder) {
  cluster_.start_worker("node");
  ASSERT_TRUE(
      wait_until([&] { return cluster_.tailor_json({"workers"})["workers"].size() == 1; }, 20));
  const CommandResult second = run_command({std::string(TAILOR_BIN_DIR) + "/tailor-worker",
                                            "--coordinator", cluster_.address(), "--name", "node",
                                            "--work-dir", (cluster_.dir() / "node").string()});
  EXPECT_EQ(second.exit_code, 7) << second.err;
}

TEST_F(Program, ACancelledSweepEndsItsTrainers) {
  cluster_.set_environment("FAKE_STEPS", "100000");
  cluster_.start_worker("node", 2);
  ASSERT_EQ(cluster_.tailor({"submit", cluster_.write_sweep("long", 2, 2)}).exit_code, 0);
  ASSERT_TRUE(wait_until([&] { return cluster_.trainers().size() == 2; }, 20));
  ASSERT_EQ(cluster_.tailor({"cancel", "long"}).exit_code, 0);
  EXPECT_TRUE(wait_until([&] { return cluster_.trainers().empty(); }, 20));
  EXPECT_TRUE(wait_until(
      [&] {
        return cluster_.query("SELECT count(*) FROM trial WHERE state = 'cancelled'")[0][0] == "4";
      },
      20));
}

TEST_F(Program, ATrialThatDivergesIsFailedWithItsReasonAndTheOthersGoOn) {
  cluster_.set_environment("FAKE_FAIL", "nan");
  cluster_.start_worker("node", 2);
  const CommandResult result =
      cluster_.tailor({"submit", cluster_.write_sweep("nan", 2, 1), "--watch"}, 60);
  EXPECT_EQ(result.exit_code, 4) << result.err;
  for (const auto& row : cluster_.query("SELECT state, end_class FROM trial")) {
    EXPECT_EQ(row[0], "failed");
    EXPECT_EQ(row[1], "nan");
  }
}

}  // namespace
}  // namespace tailor::testing
