// What an earlier attempt wrote and nobody stored.
#include "worker/trainer/carry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "protocol/convert.h"
#include "tests/support/temporary_folder.h"

namespace tailor::trainer {
namespace {

using protocol::CheckpointReport;
using protocol::MetricReport;
using protocol::Report;

class CarryTest : public testing::Test {
 protected:
  CarryTest() {
    std::filesystem::create_directories(earlier() + "/checkpoints/00000004");
    std::filesystem::create_directories(now());
  }
  std::string earlier() const { return folder_.file("t1/1"); }
  std::string now() const { return folder_.file("t1/2"); }
  std::string checkpoint() const { return earlier() + "/checkpoints/00000004"; }
  /// Report 1 says that it started, then a point a step and a checkpoint after every second.
  void write_reports(std::int64_t steps) {
    std::ofstream out(earlier() + "/reports.jsonl");
    std::uint64_t sequence = 0;
    const auto line = [&](auto body) {
      out << protocol::to_json_line(Report{++sequence, 1000 + static_cast<WallMs>(sequence), body})
          << "\n";
    };
    line(protocol::StartedReport{});
    for (std::int64_t step = 1; step <= steps; ++step) {
      line(MetricReport{step, step * 64, {{"train_loss", 1.0}}});
      if (step % 2 == 0) line(CheckpointReport{step, "path", "sum", 1});
    }
    out << "{\"sequence\": \"torn";
  }
  void write_note(const char* name, std::uint64_t acked) {
    std::ofstream(earlier() + "/" + name) << "{\"acked_sequence\": " << acked << "}";
  }
  std::vector<std::string> carried(std::int64_t step) {
    const auto reports = reports_to_carry(now(), checkpoint(), step);
    EXPECT_TRUE(reports.has_value());
    std::vector<std::string> found;
    for (const Report& report : reports.value_or(std::vector<Report>())) {
      if (const auto* metric = std::get_if<MetricReport>(&report.body)) {
        found.push_back(std::to_string(metric->step));
      } else if (const auto* saved = std::get_if<CheckpointReport>(&report.body)) {
        found.push_back("checkpoint " + std::to_string(saved->step));
      } else {
        found.push_back("other");
      }
    }
    return found;
  }
  test::TemporaryFolder folder_;
};

TEST_F(CarryTest, IsWhatFollowsTheLastAcknowledgementUpToTheCheckpoint) {
  write_reports(
      6);  // sequence 1 start, 2 step 1, 3 step 2, 4 checkpoint 2, 5 step 3, 6 step 4, ...
  write_note("worker.json", 4);
  EXPECT_THAT(carried(4), testing::ElementsAre("3", "4", "checkpoint 4"));
  const auto reports = reports_to_carry(now(), checkpoint(), 4);
  EXPECT_EQ(reports->at(0).wall_ms, 1005) << "the time at which it happened";
}

TEST_F(CarryTest, IsEverythingWhereNothingWasStored) {
  write_reports(4);
  write_note("worker.json", 0);
  EXPECT_THAT(carried(4), testing::ElementsAre("1", "2", "checkpoint 2", "3", "4", "checkpoint 4"));
}

TEST_F(CarryTest, IsNothingOfAnAttemptThatWasRunByHand) {
  write_reports(4);
  EXPECT_THAT(carried(4), testing::IsEmpty()) << "nobody stores its reports";
}

TEST_F(CarryTest, IsNothingWhenAllWasStored) {
  write_reports(4);
  write_note("worker-done.json", 7);
  EXPECT_THAT(carried(4), testing::IsEmpty());
}

TEST_F(CarryTest, IsNothingForAFirstAttemptOrOneThatGoesOnInItsOwnFolder) {
  write_reports(4);
  EXPECT_THAT(reports_to_carry(now(), "", 0).value(), testing::IsEmpty());
  EXPECT_THAT(reports_to_carry(earlier(), checkpoint(), 4).value(), testing::IsEmpty());
}

}  // namespace
}  // namespace tailor::trainer
