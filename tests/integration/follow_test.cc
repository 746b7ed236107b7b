// Following commands while workers and the coordinator are killed, and programs behind a proxy that
// the environment names.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <sstream>

#include "base/file.h"
#include "tests/integration/cluster.h"

namespace tailor::testing {
namespace {

constexpr double kFollowS = 90;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// "attempt A step S" lines, as (A, S).
std::vector<std::pair<int, int>> steps_in(const std::string& log) {
  std::vector<std::pair<int, int>> found;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    int attempt = 0;
    int step = 0;
    if (std::sscanf(line.c_str(), "attempt %d step %d", &attempt, &step) == 2) {
      found.emplace_back(attempt, step);
    }
  }
  return found;
}

class Follow : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.set_environment("FAKE_STEPS", "60");
    cluster_.set_environment("FAKE_STEP_MS", "60");
    cluster_.set_environment("FAKE_LOG_BYTES", "1");
    cluster_.start_coordinator();
  }

  void submit(const std::string& extra = "") {
    const CommandResult result =
        cluster_.tailor({"submit", cluster_.write_sweep("s", 1, 1, extra)});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  std::future<CommandResult> in_background(std::vector<std::string> arguments) {
    return std::async(std::launch::async, [this, arguments = std::move(arguments)] {
      return cluster_.tailor(arguments, kFollowS);
    });
  }

  bool log_reaches(int step) {
    return wait_until(
        [&] {
          const auto steps = steps_in(cluster_.tailor({"logs", "t1"}).out);
          return !steps.empty() && steps.back().second >= step;
        },
        30);
  }

  Cluster cluster_;
};

TEST_F(Follow, ALogGoesOnWithTheNextAttemptWhenItsWorkerIsKilled) {
  cluster_.start_worker("a");
  submit("[retry]\nnode_lost = 5\nlease_lost = 5\n");
  auto following = in_background({"logs", "t1", "-f"});
  ASSERT_TRUE(log_reaches(10));
  cluster_.signal_worker("a", SIGKILL);
  cluster_.reap_worker("a");
  cluster_.start_worker("b");
  const CommandResult result = following.get();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto steps = steps_in(result.out);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front(), std::pair(1, 1));
  EXPECT_EQ(steps.back(), std::pair(2, 60));
  EXPECT_TRUE(has(result.out, "the last line")) << result.out;
  EXPECT_TRUE(has(result.err, "attempt 1 on worker a")) << result.err;
  EXPECT_TRUE(has(result.err, "attempt 2 on worker b")) << result.err;
  EXPECT_TRUE(has(result.err, "attempt 1 ended as node_lost")) << result.err;
  // Without -f, the last attempt; another one by number; each says which.
  const CommandResult last = cluster_.tailor({"logs", "t1"});
  EXPECT_TRUE(has(last.err, "attempt 2 on worker b (--attempt N")) << last.err;
  EXPECT_EQ(steps_in(last.out).back(), std::pair(2, 60));
  const CommandResult first = cluster_.tailor({"logs", "t1", "--attempt", "1", "-f"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(steps_in(first.out).front(), std::pair(1, 1));
  EXPECT_FALSE(has(first.out, "attempt 2"));
  const auto json = cluster_.tailor_json({"logs", "t1", "--attempt", "1"});
  EXPECT_EQ(json["attempts"][0]["end_class"], "node_lost");
  EXPECT_EQ(json["attempts"][0]["may_miss_its_end"], true);
  EXPECT_EQ(json["attempts"][0]["worker"], "a");
}

TEST_F(Follow, EveryLineComesOnceThroughRestartsOfTheCoordinator) {
  cluster_.start_worker("a");
  submit();
  auto log = in_background({"logs", "t1", "-f"});
  auto events = in_background({"--json", "watch", "s", "--interval", "0.1"});
  for (const int step : {8, 25}) {
    ASSERT_TRUE(log_reaches(step));
    cluster_.signal_coordinator(SIGKILL);
    cluster_.reap_coordinator();
    cluster_.start_coordinator();
    ASSERT_FALSE(HasFatalFailure());
  }
  const CommandResult result = log.get();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto steps = steps_in(result.out);
  ASSERT_EQ(steps.size(), 60u) << result.out << result.err;
  for (int step = 1; step <= 60; ++step) {
    EXPECT_EQ(steps[static_cast<std::size_t>(step - 1)], std::pair(1, step));
  }
  EXPECT_TRUE(has(result.out, "not UTF-8: \xff\n"));
  EXPECT_TRUE(has(result.err, "is away")) << result.err;
  EXPECT_TRUE(has(result.err, "answers again")) << result.err;
  EXPECT_TRUE(has(cluster_.tailor_json({"logs", "t1"})["log"], "not UTF-8: \xEF\xBF\xBD"));

  const CommandResult watched = events.get();
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  std::int64_t last = 0;
  std::istringstream lines(watched.out);
  for (std::string line; std::getline(lines, line);) {
    const auto id = nlohmann::json::parse(line)["id"].get<std::int64_t>();
    EXPECT_GT(id, last);
    last = id;
  }
  EXPECT_EQ(std::to_string(last), cluster_.query("SELECT max(id) FROM event")[0][0]);
}

TEST_F(Follow, ACoordinatorThatStaysAwayEndsIt) {
  cluster_.start_worker("a");
  submit();
  auto log = in_background({"--reconnect", "1", "logs", "t1", "-f"});
  auto events = in_background({"--reconnect", "0", "watch", "s", "--interval", "0.1"});
  ASSERT_TRUE(log_reaches(3));
  cluster_.signal_coordinator(SIGKILL);
  cluster_.reap_coordinator();
  for (auto* command : {&log, &events}) {
    const CommandResult result = command->get();
    EXPECT_EQ(result.exit_code, 5) << result.err;
    EXPECT_TRUE(has(result.err, "did not come back within")) << result.err;
  }
}

TEST_F(Follow, ALogThatIsTooLongKeepsItsBeginningAndItsEnd) {
  cluster_.set_environment("FAKE_STEPS", "14");
  cluster_.set_environment("FAKE_LOG_BYTES", "600000");
  cluster_.start_worker("a");
  submit();
  ASSERT_EQ(cluster_.tailor({"watch", "s"}, 60).exit_code, 0);
  const auto whole = read_file(cluster_.dir() / "trials/t1/1/log").value();
  ASSERT_GT(whole.size(), 8u << 20);
  const std::string tail = whole.substr(whole.size() - (2 << 20));
  // The trial's end may be known before the last of its log is.
  CommandResult result = cluster_.tailor({"logs", "t1"});
  for (int tries = 0; tries < 500 && !result.out.ends_with(tail); ++tries) {
    result = cluster_.tailor({"logs", "t1"});
  }
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LT(result.out.size(), 5u << 20);
  EXPECT_EQ(result.out.substr(0, 1 << 20), whole.substr(0, 1 << 20));
  EXPECT_TRUE(result.out.ends_with(tail));
  const std::size_t marker = result.out.find("[tailor: ");
  ASSERT_NE(marker, std::string::npos);
  EXPECT_TRUE(has(result.out, "were not kept here; worker a has them in t1/1/log]\n"));
  const auto json = cluster_.tailor_json({"logs", "t1"});
  std::size_t marks = 0;  // bytes of the lines that Tailor added
  for (std::size_t at = 0; (at = result.out.find("[tailor: ", at)) != std::string::npos; ++at) {
    marks += result.out.find('\n', at) + 1 - at;
    if (result.out.compare(at - 2, 2, ".\n") != 0) marks += 1;  // the line before was cut
  }
  const auto not_kept = json["attempts"][0]["not_kept_bytes"].get<std::uint64_t>();
  EXPECT_NEAR(static_cast<double>(result.out.size() - marks + not_kept),
              static_cast<double>(whole.size()), 2);
}

TEST_F(Follow, WhatIsNotThereIsSaid) {
  EXPECT_EQ(cluster_.tailor({"logs", "t99"}).exit_code, 3);
  EXPECT_EQ(cluster_.tailor({"logs", "t99", "-f"}).exit_code, 3);
  submit();
  const CommandResult early = cluster_.tailor({"logs", "t1"});
  EXPECT_EQ(early.exit_code, 0);
  EXPECT_TRUE(has(early.err, "t1 has not begun")) << early.err;
  EXPECT_EQ(cluster_.tailor({"logs", "t1", "--attempt", "2", "-f"}).exit_code, 3);
  // One that has not begun is waited for.
  auto log = in_background({"logs", "t1", "-f"});
  cluster_.start_worker("a");
  const CommandResult result = log.get();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(steps_in(result.out).size(), 60u);
}

TEST_F(Follow, AReaderThatGoesAwayEndsItAtOnce) {
  cluster_.set_environment("FAKE_STEP_MS", "100000");  // one line, then silence
  cluster_.start_worker("a");
  submit();
  const std::string tailor =
      std::string(TAILOR_BIN_DIR) + "/tailor --coordinator " + cluster_.address();
  const CommandResult result =
      run_command({"/bin/sh", "-c", tailor + " logs t1 -f | head -n 1"}, 30);
  EXPECT_EQ(result.exit_code, 0) << "it waits for another line";
  EXPECT_TRUE(has(result.out, "fake_trainer:")) << result.out;
}

TEST(Proxy, OfTheEnvironmentIsNotBetweenTheProgramsOfACluster) {
  Cluster cluster;
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY",
                           "HTTPS_PROXY", "ALL_PROXY"}) {
    cluster.set_environment(name, "http://127.0.0.1:1");  // nobody listens there
  }
  cluster.set_environment("FAKE_STEPS", "3");
  cluster.start_coordinator();
  ASSERT_FALSE(::testing::Test::HasFatalFailure());
  cluster.start_worker("a");
  const CommandResult listed = cluster.tailor({"ls"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  const CommandResult watched =
      cluster.tailor({"submit", cluster.write_sweep("s", 1, 1), "--watch"}, 60);
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  // Where nobody answers, it is said that the proxy is not asked.
  const CommandResult nobody =
      run_command({std::string(TAILOR_BIN_DIR) + "/tailor", "--coordinator", "127.0.0.1:1", "ls"},
                  30, {{"http_proxy", "http://127.0.0.1:1"}});
  EXPECT_EQ(nobody.exit_code, 5);
  EXPECT_TRUE(has(nobody.err, "http_proxy=http://127.0.0.1:1 is not used")) << nobody.err;
}

}  // namespace
}  // namespace tailor::testing
