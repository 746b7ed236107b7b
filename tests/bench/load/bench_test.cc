// tailor-bench works: every mode gives figures about a coordinator that it starts itself.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/bench/load/measure.h"
#include "tests/support/temporary_folder.h"

namespace tailor::load {
namespace {

class BenchTest : public ::testing::Test {
 protected:
  /// What `tailor-bench ARGUMENTS` printed, as JSON.
  nlohmann::json bench(const std::string& arguments) {
    const std::string command = std::string(TAILOR_BIN_DIR) + "/tailor-bench --folder '" +
                                folder_.path() + "' " + arguments;
    FILE* pipe = ::popen(command.c_str(), "r");
    std::string out;
    char block[4096];
    for (std::size_t got = 0; (got = ::fread(block, 1, sizeof block, pipe)) > 0;) {
      out.append(block, got);
    }
    EXPECT_EQ(::pclose(pipe), 0) << command;
    return nlohmann::json::parse(out, nullptr, false);
  }
  test::TemporaryFolder folder_;
};

TEST_F(BenchTest, TrialsAreCountedAndTheirAcknowledgementsTimed) {
  const auto out = bench("--seconds 0.5 trials --clients 1,3");
  ASSERT_EQ(out.at("figures").size(), 2u);
  for (const auto& figure : out.at("figures")) {
    EXPECT_GT(figure.at("trials"), 0);
    EXPECT_GT(figure.at("report_ack").at("count"), 0);
    EXPECT_GT(figure.at("before").at("disk").at("syncs_per_s"), 0);
    EXPECT_GT(figure.at("written_bytes_per_trial"), 0);
  }
}

TEST_F(BenchTest, EveryPointThatWasSentIsAcknowledged) {
  const auto out = bench("--seconds 0.5 points --clients 4");
  EXPECT_GT(out.at("points"), 0);
  EXPECT_EQ(out.at("unacknowledged_at_the_end"), 0);
  EXPECT_GT(out.at("file_bytes_per_point"), 0);
}

TEST_F(BenchTest, ManyWorkersBeatAndComeBackAndNothingIsLost) {
  const auto out =
      bench("--seconds 1 workers --count 40 --running 10 --interval 0.5 --finishing 20");
  EXPECT_EQ(out.at("started"), 10);
  EXPECT_GT(out.at("beating").at("heartbeat_ack").at("count"), 0);
  EXPECT_EQ(out.at("all_reconnect").at("attempts_lost"), 0);
  EXPECT_EQ(out.at("coordinator_killed").at("attempts_lost"), 0);
  EXPECT_EQ(out.at("ends_with_all_workers").at("trials"), 20);
}

TEST_F(BenchTest, AKilledCoordinatorHasAllThatWasAcknowledged) {
  const auto out = bench("restart --trials 50 --points 5000 --ended 200");
  EXPECT_TRUE(out.at("killed").at("nothing_acknowledged_was_lost").get<bool>());
  EXPECT_EQ(out.at("many_ended").at("again").at("trials"), 200);
}

TEST_F(BenchTest, PagesOfAStoredSweepAreServed) {
  const auto out = bench("dashboard --trials 200 --points 5 --rounds 2 --tailor ''");
  const auto& reads = out.at("figures").at(0).at("reads");
  for (const auto& [page, figure] : reads.items()) {
    EXPECT_FALSE(figure.contains("error")) << page << ": " << figure;
    EXPECT_GT(figure.value("bytes", 0), 0) << page;
  }
}

TEST(Measure, QuantilesAreThoseOfTheTimes) {
  Times times;
  EXPECT_EQ(times.quantile(0.5), 0);
  EXPECT_TRUE(times.json().at("p50_ms").is_null());
  for (int i = 100; i >= 1; --i) times.add(i * 1e-3);
  EXPECT_NEAR(times.quantile(0), 0.001, 1e-7);
  EXPECT_NEAR(times.quantile(0.99), 0.1, 1e-3 + 1e-7);
  EXPECT_NEAR(times.quantile(1), 0.1, 1e-7);
  EXPECT_EQ(times.json().at("count"), 100);
}

TEST(Measure, AProcessKnowsWhatItUsed) {
  const Usage usage = usage_of(::getpid());
  EXPECT_GT(usage.rss_mb, 1);
  EXPECT_GE(usage.rss_peak_mb, usage.rss_mb);
  EXPECT_GE(usage.threads, 1u);
  EXPECT_EQ(usage_of(0).rss_mb, 0) << "no such process";
}

}  // namespace
}  // namespace tailor::load
