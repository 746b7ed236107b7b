// reports.jsonl and the lease, with faults.
#include "worker/trainer/trial_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "protocol/convert.h"
#include "tests/support/temporary_folder.h"

namespace tailor::trainer {
namespace {

using testing::HasSubstr;

class TrialDirTest : public testing::Test {
 protected:
  static protocol::Report metric(std::int64_t step) {
    protocol::Report report;
    protocol::MetricReport body;
    body.step = step;
    body.values = {{"train_loss", 2.5}};
    report.body = body;
    return report;
  }
  std::string log() const { return *read_file(folder_ + "/reports.jsonl"); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }

  const test::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  ManualClock clock_{1000};
};

TEST_F(TrialDirTest, ReportsAreNumberedFromOneAndContinueAfterARestart) {
  {
    auto first = ReportLog::open(folder_, clock_);
    ASSERT_TRUE(first.has_value());
    EXPECT_TRUE(first->append(metric(10), false).is_ok());
    EXPECT_TRUE(first->append(metric(20), true).is_ok());
  }
  auto second = ReportLog::open(folder_, clock_);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->last_sequence(), 2u);
  EXPECT_TRUE(second->append(metric(30), false).is_ok());
  std::istringstream lines(log());
  std::string line;
  std::uint64_t sequence = 0;
  while (std::getline(lines, line)) {
    const auto report = protocol::report_from_json(line);
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->sequence, ++sequence);
    EXPECT_EQ(report->wall_ms, clock_.wall_ms());
  }
  EXPECT_EQ(sequence, 3u);
}

TEST_F(TrialDirTest, ATornLastLineIsCutOffWhereverItTears) {
  { ASSERT_TRUE(ReportLog::open(folder_, clock_)->append(metric(10), false).is_ok()); }
  const std::string whole = log();
  protocol::Report next = metric(20);
  next.sequence = 2;
  // Without its newline it is torn, even if complete.
  const std::string line = protocol::to_json_line(next);
  for (std::size_t size = 0; size <= line.size(); size += 7) {
    put("reports.jsonl", whole + line.substr(0, size));
    auto opened = ReportLog::open(folder_, clock_);
    ASSERT_TRUE(opened.has_value()) << size;
    EXPECT_EQ(opened->last_sequence(), 1u);
    EXPECT_EQ(log(), whole);
  }
}

TEST_F(TrialDirTest, AnAlteredLogIsRefusedNotContinued) {
  { ASSERT_TRUE(ReportLog::open(folder_, clock_)->append(metric(10), false).is_ok()); }
  const std::string whole = log();
  for (const std::string& text : {whole + whole, whole + "{}\n", "nonsense\n" + whole}) {
    put("reports.jsonl", text);
    const auto opened = ReportLog::open(folder_, clock_);
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code(), Code::kDataLoss);
    EXPECT_EQ(log(), text);
  }
}

TEST_F(TrialDirTest, TwoTrainersCannotHaveOneDirectory) {
  const auto first = ReportLog::open(folder_, clock_);
  ASSERT_TRUE(first.has_value());
  const auto second = ReportLog::open(folder_, clock_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kFailedPrecondition);
}

TEST_F(TrialDirTest, AnEarlierEndIsSeenOnlyWhenItIsTheLastWord) {
  {
    auto opened = ReportLog::open(folder_, clock_);
    protocol::Report end;
    end.body = protocol::EndReport{protocol::EndClass::kStopped, "SIGTERM", 3, {}};
    ASSERT_TRUE(opened->append(end, true).is_ok());
  }
  {
    auto opened = ReportLog::open(folder_, clock_);
    EXPECT_EQ(opened->earlier_end(), protocol::EndClass::kStopped);
    ASSERT_TRUE(opened->append(metric(4), true).is_ok());
  }
  EXPECT_EQ(ReportLog::open(folder_, clock_)->earlier_end(), std::nullopt);
}

TEST_F(TrialDirTest, TheLeaseEndsAfterItsDeadlineAndIsLookedAtOnceASecond) {
  Lease lease(folder_, clock_);
  EXPECT_EQ(lease.expired(), std::nullopt);  // none: run by hand
  put("lease", "5000\n");
  clock_.advance(999);
  EXPECT_EQ(lease.expired(), std::nullopt);
  clock_.advance(3001);  // now 5000
  EXPECT_EQ(lease.expired(), std::nullopt);
  clock_.advance(500);
  EXPECT_EQ(lease.expired(), std::nullopt) << "looked at too often";
  clock_.advance(500);  // now 6000
  ASSERT_TRUE(lease.expired().has_value());
  put("lease", "9000");
  clock_.advance(1000);
  EXPECT_EQ(lease.expired(), std::nullopt);
  put("lease", "soon");
  clock_.advance(1000);
  ASSERT_TRUE(lease.expired().has_value());
}

TEST_F(TrialDirTest, AMissingOrWrongSpecIsNamed) {
  const auto missing = read_spec(folder_);
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("spec.json"));
  put("spec.json", "{\"trial\": ");
  const auto torn = read_spec(folder_);
  ASSERT_FALSE(torn.has_value());
  EXPECT_EQ(torn.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(torn.error().message(), HasSubstr("spec.json"));
}

}  // namespace
}  // namespace tailor::trainer
