// The programs as a user meets them: idempotent submission, bad files,
// refusals with reasons and exit codes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

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

TEST_F(Program, AScalingSweepRunsIsPlannedComparedAndFitted) {
  cluster_.start_worker("node", 2);
  std::string extra =
      "[compare]\nprimary = \"stack @ L\"\nexpected_sd = 0.01\n"
      "[scaling]\n[[scaling.family]]\nname = \"plain\"\n"
      "[[scaling.family]]\nname = \"stack\"\nffn = { kind = \"hourglass\", k = 2 }\n";
  for (const int layers : {1, 2, 4}) {
    extra += fmt::format("[[scaling.size]]\nname = \"{}\"\nlayers = {}\n",
                         layers == 4 ? "L" : std::to_string(layers), layers);
  }
  const std::string file = cluster_.write_sweep("sizes", 1, 2, extra);
  const auto plan = cluster_.tailor_json({"plan", file});
  EXPECT_EQ(plan["compare"]["primary"], "stack @ L");
  EXPECT_TRUE(plan["compare"]["seeds_needed"].is_number());
  const CommandResult watched = cluster_.tailor({"submit", file, "--watch"}, 60);
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  const auto compared = cluster_.tailor_json({"compare", "sizes", "--ratio-to", "plain @ 2"});
  EXPECT_EQ(compared["primary"], "stack @ L");
  EXPECT_EQ(compared["ratio_to"], "plain @ 2");
  const auto laws = cluster_.tailor_json({"scaling", "sizes"});
  ASSERT_EQ(laws["families"].size(), 2u);
  EXPECT_EQ(laws["families"][0]["sizes"][0]["candidate"], "c0") << "the same as \"plain @ 1\"";
  EXPECT_EQ(laws["families"][0]["sizes"][0]["finished"], 2);
  EXPECT_EQ(laws["families"][1]["seeds"].size(), 2u);
  EXPECT_TRUE(laws["families"][1]["in_compute"]["exponent"].is_object());
  for (const char* command : {"compare", "scaling"}) {
    const CommandResult text = cluster_.tailor({command, "sizes"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_NE((text.out + text.err).find("n = 2"), std::string::npos) << text.out << text.err;
  }
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

/// A space of 10 points; `constraint` decides which are feasible.
std::string with_space(const std::string& constraint) {
  return "[space]\nlayers = { min = 1, max = 10 }\nconstraints = [\"" + constraint + "\"]\n";
}

TEST_F(Program, ASweepWithoutAFeasiblePointIsExitCodeFourWithTheReason) {
  const std::string path = cluster_.write_sweep("none", 0, 2, with_space("layers >= 86"));
  std::string text = *read_file(path);
  text.replace(text.find("baseline = \"c0\"\n"), 16, "");
  ASSERT_TRUE(write_file_atomic(path, text).is_ok());
  const CommandResult watched = cluster_.tailor({"submit", path, "--watch"});
  EXPECT_EQ(watched.exit_code, 4) << watched.err;
  EXPECT_NE(watched.out.find("0 trials"), std::string::npos) << watched.out;
  EXPECT_NE(watched.err.find("10: does not satisfy \"layers >= 86\""), std::string::npos)
      << watched.err;
  EXPECT_EQ(cluster_.tailor({"watch", "none"}).exit_code, 4);
  EXPECT_EQ(cluster_.tailor({"submit", path}).exit_code, 4) << "nothing will be trained";
  const auto shown = cluster_.tailor_json({"show", "none"})["sweep"];
  EXPECT_EQ(shown["state"], "failed");
  EXPECT_EQ(shown["infeasible"], 10);
  EXPECT_EQ(shown["infeasible_reasons"]["does not satisfy \"layers >= 86\""], 10);
  EXPECT_EQ(shown["search_points"], 10);
  const CommandResult compared = cluster_.tailor({"compare", "none"});
  EXPECT_EQ(compared.exit_code, 7) << compared.err;
  EXPECT_NE(compared.err.find("layers >= 86"), std::string::npos) << compared.err;
}

TEST_F(Program, SubmitAnnouncesTheTrialsThatWillRunAndLsTheWholeSearch) {
  const std::string path = cluster_.write_sweep("some", 1, 2, with_space("layers >= 8"));
  const auto submitted = cluster_.tailor_json({"submit", path});
  EXPECT_EQ(submitted["trials"], 8) << "the named candidate and layers 8, 9, 10, by 2 seeds";
  EXPECT_EQ(submitted["trials_exact"], true);
  ASSERT_TRUE(wait_until(
      [&] { return cluster_.tailor_json({"ls"})["sweeps"][0]["search_tried"] == 10; }, 20));
  // A grid of 1,000,001 points is drawn as slots get free.
  const std::string grid =
      cluster_.write_sweep("grid", 1, 1,
                           "[space]\n\"train.optimizer.lr\" = { min = 0.0001, max = "
                           "1.0001, step = 0.000001 }\n");
  const CommandResult at_most = cluster_.tailor({"submit", grid});
  EXPECT_NE(at_most.out.find("at most 1000002 trials"), std::string::npos) << at_most.out;
  const auto listed = cluster_.tailor_json({"ls"})["sweeps"][1];
  EXPECT_EQ(listed["search_points"], 1'000'001);
  EXPECT_LT(listed["search_tried"].get<int>(), 1'000);
  const CommandResult table = cluster_.tailor({"ls"});
  EXPECT_NE(table.out.find("/1000001"), std::string::npos) << table.out;
}

TEST_F(Program, DestructiveCommandsSayWhatTheyHitAndANameLikeAnIdIsRefused) {
  const CommandResult refused = cluster_.tailor({"submit", cluster_.write_sweep("t1", 1, 1)});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("reads like an id"), std::string::npos) << refused.err;
  ASSERT_EQ(cluster_.tailor({"submit", cluster_.write_sweep("first", 2, 1)}).exit_code, 0);
  const auto dry = cluster_.tailor_json({"cancel", "t1", "--dry-run"});
  EXPECT_EQ(dry["kind"], "trials");
  EXPECT_EQ(dry["dry_run"], true);
  EXPECT_EQ(dry["targets"][0]["sweep_name"], "first");
  for (const char* action : {"pause", "resume", "cancel"}) {
    const auto sweep = cluster_.tailor_json({action, "first", "--dry-run"});
    EXPECT_EQ(sweep["kind"], "sweep") << action;
    EXPECT_EQ(sweep["action"], action);
    EXPECT_EQ(sweep["before"]["queued"], 2);
  }
  EXPECT_EQ(cluster_.tailor_json({"show", "first"})["sweep"]["queued"], 2) << "nothing was done";
  const CommandResult one = cluster_.tailor({"cancel", "t1"});
  EXPECT_EQ(one.exit_code, 0);
  EXPECT_NE(one.err.find("cancelling trial t1: 1 trial of sweep s1 \"first\" (0 running)"),
            std::string::npos)
      << one.err;
  const CommandResult again = cluster_.tailor({"cancel", "t1"});
  EXPECT_NE(again.err.find("t1 is left as it is: it has ended"), std::string::npos) << again.err;
  const CommandResult all = cluster_.tailor({"cancel", "first"});
  EXPECT_NE(all.err.find("cancelling sweep s1 \"first\" (running, 0 trials running, 1 queued)"),
            std::string::npos)
      << all.err;
}

TEST_F(Program, AFailedBackupSaysWhyAndEndlessQueriesKeepNobodyOut) {
  const auto backup = [&](const std::string& path) { return cluster_.tailor({"backup", path}); };
  const std::string dir = cluster_.dir().string();
  const std::pair<std::string, std::string> failures[] = {{dir + "/none/a.db", "no such folder"},
                                                          {dir + "/tailor.db", "exists"},
                                                          {dir + "/tailor.db/a.db", "folder"},
                                                          {"relative.db", "absolute"},
                                                          {"/proc/a.db", "/proc/a.db"}};
  for (const auto& [path, reason] : failures) {
    const CommandResult failed = backup(path);
    EXPECT_NE(failed.exit_code, 0) << path;
    EXPECT_NE(failed.exit_code, 5) << path << ": " << failed.err;
    EXPECT_NE(failed.err.find(reason), std::string::npos) << path << ": " << failed.err;
    EXPECT_EQ(failed.err.find("no coordinator answers"), std::string::npos) << failed.err;
  }
  std::vector<std::jthread> endless;
  std::atomic<int> refused{0};
  for (int i = 0; i < 8; ++i) {
    endless.emplace_back([&] {
      const CommandResult result = cluster_.tailor(
          {"query",
           "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
           "--timeout", "8"},
          60);
      refused += result.exit_code != 0 && result.err.find("the query") != std::string::npos;
    });
  }
  EXPECT_EQ(backup(dir + "/copy.db").exit_code, 0);
  EXPECT_EQ(cluster_.tailor({"ls"}).exit_code, 0);
  const CommandResult small = cluster_.tailor({"query", "SELECT 6 * 7 AS n", "--json"}, 60);
  EXPECT_EQ(small.exit_code, 0) << small.err;
  endless.clear();
  EXPECT_EQ(refused.load(), 8) << "each was stopped with a reason";
}

TEST_F(Program, QueriesGiveNumbersAsNumbersAndSayWhatIsHexadecimal) {
  const CommandResult result = cluster_.tailor({"--json", "query",
                                                "SELECT 9223372036854775807 AS i, 0.5 AS r, NULL "
                                                "AS n, '12' AS t, x'00ff' AS b, 9e999 AS inf"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["rows"][0],
            nlohmann::json::parse(R"([9223372036854775807, 0.5, null, "12", "00ff", "Infinity"])"));
  EXPECT_EQ(json["hex_columns"], nlohmann::json::parse(R"(["b"])"));
  EXPECT_NE(result.err.find("hexadecimal"), std::string::npos) << result.err;
}

TEST_F(Program, TheDashboardsPortIsNotTakenForACoordinator) {
  const CommandResult result =
      run_command({std::string(TAILOR_BIN_DIR) + "/tailor", "--coordinator",
                   cluster_.http_address(), "--timeout", "5", "ls"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_NE(result.err.find("no Tailor coordinator"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tailor::testing
