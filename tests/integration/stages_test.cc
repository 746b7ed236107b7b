// Stages on real processes: a reference is trained and measured, widths are cut from it, the rest
// is trained; with the fake trainer, over kills of the coordinator, and with the real one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>

#include <csignal>
#include <fstream>
#include <numeric>

#include "base/file.h"
#include "base/rng.h"
#include "tests/integration/cluster.h"

namespace tailor::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCandidates = R"(
[budget]
parameters = "same as baseline"
[[candidate]]
name = "uniform"
[[candidate]]
name = "topology, hyperbolic"
schedule = { kind = "geometry", geometry = "hyperbolic", statistic = "topology" }
[[candidate]]
name = "anti, raw"
schedule = { kind = "geometry", geometry = "raw", statistic = "topology", control = "mirrored" }
[[candidate]]
name = "permuted"
schedule.kind = "geometry"
schedule.geometry = "hyperbolic"
schedule.statistic = "topology"
schedule.control = "permuted"
schedule.control_seed = 3
)";

std::string sweep_text(const std::string& name, const std::string& data, int d_model,
                       int vocabulary, const std::string& more) {
  return fmt::format(
      "name = \"{}\"\nbaseline = \"uniform\"\n[data]\ntrain = \"{}train-*.tokens\"\nvalidation = "
      "\"{}validation-*.tokens\"\nsequence_length = 32\n[architecture]\nd_model = {}\nlayers = 3\n"
      "head_dim = 8\nvocab_size = {}\nffn = {{ kind = \"swiglu\", d_h = 64 }}\n[train]\ntokens = "
      "2048\nbatch = 256\n[seeds]\ncount = 2\n{}\n{}",
      name, data, data, d_model, vocabulary, more, kCandidates);
}

/// Hidden widths by candidate, in order.
std::vector<std::vector<int>> widths_of(const Cluster& cluster) {
  std::vector<std::vector<int>> out;
  for (const auto& row :
       cluster.query("SELECT architecture_json FROM candidate ORDER BY sweep, number")) {
    std::vector<int>& widths = out.emplace_back();
    const auto architecture = nlohmann::json::parse(row[0]);
    for (const auto& layer : architecture["widths"]) {
      widths.push_back(layer[0].get<int>());
    }
  }
  return out;
}

class StagesOfPrograms : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (cluster_.dir() / (name + ".toml")).string();
    EXPECT_TRUE(write_file_atomic(path, text).is_ok());
    return path;
  }
  std::string one(const std::string& sql) const { return cluster_.query(sql).at(0).at(0); }
  Cluster cluster_;
};

TEST_F(StagesOfPrograms, AStagedSweepRunsToItsEndAndItsSchedulesCanBeUsedAgain) {
  cluster_.set_environment("FAKE_STEP_MS", "5");
  cluster_.start_coordinator();
  const std::string file = write("staged", sweep_text("staged", "", 32, 64, ""));
  const auto plan = cluster_.tailor_json({"plan", file});
  EXPECT_EQ(plan["trials"], 8);
  EXPECT_EQ(plan["waiting"], 3);
  EXPECT_EQ(plan["reference_trials"], 1) << "one, shared by all";
  EXPECT_EQ(plan["inserted_trials"], 0);
  EXPECT_EQ(plan["candidates"][1]["waits_for"], "uniform");
  EXPECT_EQ(plan["candidates"][1]["budget_error"], 0);
  EXPECT_THAT(cluster_.tailor({"plan", file}).err, HasSubstr("cut from one reference trial"));
  ASSERT_EQ(cluster_.tailor({"submit", file}).exit_code, 0);
  EXPECT_THAT(cluster_.tailor({"why", "t3"}).out, HasSubstr("its widths are cut from"));
  EXPECT_EQ(cluster_.tailor({"reproduce", "t3", "--to", (cluster_.dir() / "r").string()}).exit_code,
            7);
  cluster_.start_worker("node", 2);
  const CommandResult watched = cluster_.tailor({"watch", "staged"}, 60);
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  const auto widths = widths_of(cluster_);
  ASSERT_EQ(widths.size(), 4u);
  for (const auto& layers : widths) {
    EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), 0), 3 * 64);
  }
  EXPECT_GT(widths[1][0], widths[1][2]) << "the fake trainer's work falls over depth";
  EXPECT_LT(widths[2][0], widths[2][2]);
  EXPECT_EQ(one("SELECT count(*) FROM measurement"), "1");

  const auto shown = cluster_.tailor_json({"schedule", "show", "staged"});
  ASSERT_EQ(shown["schedules"].size(), 3u);
  EXPECT_EQ(shown["schedules"][0]["state"], "cut");
  EXPECT_EQ(shown["schedules"][0]["measured"], "t1.1");
  const std::string exported = (cluster_.dir() / "schedule.json").string();
  ASSERT_EQ(
      cluster_.tailor({"schedule", "export", "staged", "topology, hyperbolic", "--to", exported})
          .exit_code,
      0);
  const CommandResult applied = cluster_.tailor({"schedule", "apply", exported, "--name", "again"});
  ASSERT_EQ(applied.exit_code, 0) << applied.err;
  const std::string again = write("again", sweep_text("again", "", 32, 64, "") + applied.out);
  const auto planned = cluster_.tailor_json({"plan", again});
  EXPECT_EQ(planned["candidates"].back()["name"], "again");
  EXPECT_EQ(planned["candidates"].back()["widths"][0][0], widths[1][0]);
  // The second sweep measures nothing.
  ASSERT_EQ(cluster_.tailor({"submit", again, "--watch"}, 60).exit_code, 0)
      << "\"again\" is what \"topology, hyperbolic\" comes to, and is trained once";
  EXPECT_EQ(one("SELECT count(*) FROM measurement"), "1");
  EXPECT_GE(std::stoi(one("SELECT count(*) FROM event WHERE kind = 'measurement_reused'")), 2);
}

TEST_F(StagesOfPrograms, KillsOfTheCoordinatorBetweenStagesMeasureNothingTwice) {
  cluster_.set_environment("FAKE_STEP_MS", "60");
  cluster_.start_coordinator();
  cluster_.start_worker("node", 2);
  std::string text = sweep_text("killed", "", 32, 64, "");
  text +=
      "[[candidate]]\nname = \"twice\"\nschedule = { kind = \"geometry\", geometry = \"raw\", "
      "statistic = \"shift\", iterate = 1 }\n";
  ASSERT_EQ(cluster_.tailor({"submit", write("killed", text)}).exit_code, 0);
  Rng rng(20'261'201);
  const auto kill_and_start = [&] {
    cluster_.signal_coordinator(SIGKILL);
    cluster_.reap_coordinator();
    cluster_.start_coordinator();
  };
  // At moments between any two stages, and at drawn ones.
  for (const char* moment :
       {"SELECT 1 FROM attempt WHERE state = 'running'", "SELECT 1 FROM measurement",
        "SELECT 1 FROM schedule WHERE state = 'cut'",
        "SELECT 1 FROM trial WHERE candidate > 0 AND state = 'running'",
        "SELECT 1 FROM measurement WHERE trial > 2"}) {
    ASSERT_TRUE(wait_until([&] { return !cluster_.query(moment).empty(); }, 60)) << moment;
    kill_and_start();
    ::poll(nullptr, 0, static_cast<int>(rng.below(300)));
    kill_and_start();
  }
  ASSERT_TRUE(wait_until([&] { return cluster_.sweep_ended(); }, 120));
  EXPECT_EQ(one("SELECT count(*) FROM trial WHERE state = 'failed'"), "0");
  EXPECT_EQ(one("SELECT count(*) FROM measurement"), "2") << "uniform, and \"twice\" once";
  EXPECT_EQ(one("SELECT count(*) FROM schedule WHERE state IN ('cut', 'same')"), "5");
  EXPECT_EQ(one("SELECT count(*) FROM (SELECT trial, step FROM measurement GROUP BY 1, 2 HAVING "
                "count(*) > 1)"),
            "0");
}

TEST_F(StagesOfPrograms, AProfileThatCannotBeMeasuredFailsWhoNeedsItAndNotTheReference) {
  cluster_.set_environment("FAKE_STEP_MS", "5");
  cluster_.set_environment("FAKE_PROFILE", "fail");
  cluster_.start_coordinator();
  cluster_.start_worker("node", 2);
  const CommandResult watched =
      cluster_.tailor({"submit", write("bad", sweep_text("bad", "", 32, 64, "")), "--watch"}, 60);
  EXPECT_EQ(watched.exit_code, 4) << watched.err;
  EXPECT_EQ(one("SELECT count(*) FROM trial WHERE state = 'completed' AND candidate = 0"), "2");
  for (const auto& row : cluster_.query("SELECT state, message FROM trial WHERE candidate > 0")) {
    EXPECT_EQ(row[0], "failed");
    EXPECT_THAT(row[1], HasSubstr("t1 could not be measured: all tokens are equal"));
  }
  EXPECT_EQ(one("SELECT state FROM sweep"), "completed");
  EXPECT_THAT(cluster_.tailor({"profile", "t1"}).err, HasSubstr("all tokens are equal"));
}

#ifdef TAILOR_WITH_TORCH
TEST_F(StagesOfPrograms, RealTrainersMeasureTheirReferenceAndTrainWhatIsCutFromIt) {
  // Text of a few words in random order.
  std::filesystem::create_directories(cluster_.dir() / "corpus");
  Rng rng(7);
  const char* words[] = {"width ", "depth ", "layer ", "token ", "work ", "shape ", "cloud "};
  for (int document = 0; document < 40; ++document) {
    std::string text;
    for (int i = 0; i < 150; ++i) text += words[rng.below(7)];
    ASSERT_TRUE(write_file_atomic(
                    (cluster_.dir() / "corpus" / fmt::format("{}.txt", document)).string(), text)
                    .is_ok());
  }
  const std::string data = (cluster_.dir() / "data").string();
  const CommandResult prepared =
      run_command({std::string(TAILOR_BIN_DIR) + "/tailor", "data", "prepare",
                   (cluster_.dir() / "corpus").string(), "--tokenizer", "bytes", "--out", data,
                   "--validation-fraction", "0.3"},
                  60);
  ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
  cluster_.start_coordinator();
  cluster_.start_worker("node", 2, {"--trainer", std::string(TAILOR_BIN_DIR) + "/tailor-trainer"});
  const std::string file =
      write("real", sweep_text("real", data + "/", 32, 300,
                               "[evaluate.geometry]\ntokens = 64\nsubsamples = 2\nof = "
                               "\"references\"\n"));
  const CommandResult watched = cluster_.tailor({"submit", file, "--watch"}, 240);
  EXPECT_EQ(watched.exit_code, 0) << watched.out << watched.err;
  for (const auto& row : cluster_.query("SELECT state, message FROM trial ORDER BY id")) {
    EXPECT_EQ(row[0], "completed") << row[1];
  }
  EXPECT_EQ(one("SELECT count(*) FROM trial"), "8");
  EXPECT_EQ(one("SELECT count(*) FROM measurement WHERE failure = '' AND dimension_failure = ''"),
            "1");
  EXPECT_EQ(one("SELECT count(*) FROM profile WHERE statistic = 'two_nn' AND value > 0"), "3");
  const auto widths = widths_of(cluster_);
  ASSERT_EQ(widths.size(), 4u);
  for (const auto& layers : widths) {
    EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), 0), 3 * 64);
  }
  EXPECT_NE(widths[1], widths[0]);
  auto sorted = widths[1], permuted = widths[3];
  std::sort(sorted.begin(), sorted.end());
  std::sort(permuted.begin(), permuted.end());
  EXPECT_EQ(sorted, permuted) << "the same widths in another order";
  const auto compared = cluster_.tailor_json({"compare", "real"});
  EXPECT_EQ(compared["rows"].size(), 4u);
  EXPECT_EQ(compared["rows"][1]["seeds"], 2);
}
#endif

}  // namespace
}  // namespace tailor::testing
