// Reading while somebody writes: torn lines, noise, going back, and the limit of logs.
#include "worker/agent/tailer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "protocol/convert.h"
#include "tests/worker/agent/agent_harness.h"
#include "tests/worker/agent/temporary_folder.h"

namespace tailor::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const protocol::AttemptRef kA = attempt_ref(41);

class TailerTest : public testing::Test {
 protected:
  void append(const std::string& text, const char* name = "reports.jsonl") {
    std::ofstream(folder_.file(name), std::ios::app | std::ios::binary) << text;
  }
  static std::string line(const protocol::Report& report) {
    return protocol::to_json_line(report) + "\n";
  }
  static std::vector<std::uint64_t> sequences(const ReportsRead& read) {
    std::vector<std::uint64_t> found;
    for (const auto& report : read.reports) found.push_back(report.sequence);
    return found;
  }

  TemporaryFolder folder_;
  ReportTailer reports_{folder_.file("reports.jsonl")};
  LogTailer log_{folder_.file("log"), LogLimits{100, 60, 20}};
};

TEST_F(TailerTest, NoFileYetIsTheEndOfNothing) {
  const ReportsRead read = reports_.read(kA, 0, 10);
  EXPECT_THAT(read.reports, IsEmpty());
  EXPECT_TRUE(read.at_end);
  append(line(metric(1)));
  EXPECT_THAT(sequences(reports_.read(kA, 0, 10)), ElementsAre(1));
}

TEST_F(TailerTest, ATornLastLineIsNoReportUntilItIsWhole) {
  const std::string second = line(metric(2, 1.25));
  append(line(metric(1)) + second.substr(0, 17));
  ReportsRead read = reports_.read(kA, 0, 10);
  EXPECT_THAT(sequences(read), ElementsAre(1));
  EXPECT_TRUE(read.at_end);
  EXPECT_EQ(read.damage, "");
  EXPECT_THAT(sequences(reports_.read(kA, 1, 10)), IsEmpty());
  append(second.substr(17, 3));
  EXPECT_THAT(sequences(reports_.read(kA, 1, 10)), IsEmpty());
  append(second.substr(20));
  read = reports_.read(kA, 1, 10);
  ASSERT_THAT(sequences(read), ElementsAre(2));
  EXPECT_EQ(std::get<protocol::MetricReport>(read.reports[0].body).values.at("train_loss"), 1.25);
}

TEST_F(TailerTest, HandsOutAtMostWhatWasAskedForAndSaysThatThereIsMore) {
  for (std::uint64_t i = 1; i <= 7; ++i) append(line(metric(i)));
  ReportsRead read = reports_.read(kA, 0, 3);
  EXPECT_THAT(sequences(read), ElementsAre(1, 2, 3));
  EXPECT_FALSE(read.at_end);
  read = reports_.read(kA, 3, 10);
  EXPECT_THAT(sequences(read), ElementsAre(4, 5, 6, 7));
  EXPECT_TRUE(read.at_end);
}

TEST_F(TailerTest, GoesBackAndSkipsForward) {
  for (std::uint64_t i = 1; i <= 5; ++i) append(line(metric(i)));
  append(line(end_report(6)));
  ReportTailer restarted(folder_.file("reports.jsonl"));
  EXPECT_THAT(sequences(restarted.read(kA, 4, 10)), ElementsAre(5, 6));
  EXPECT_THAT(sequences(restarted.read(kA, 1, 2)), ElementsAre(2, 3));
  const ReportsRead read = restarted.read(kA, 6, 10);
  EXPECT_THAT(read.reports, IsEmpty());
  EXPECT_EQ(read.end_sequence, 6u) << "an end that was acknowledged before is still known";
}

TEST_F(TailerTest, NoiseBetweenReportsIsPassedOver) {
  append(line(metric(1)) + "a library's word on stdout\n" + line(metric(2)));
  const ReportsRead read = reports_.read(kA, 0, 10);
  EXPECT_THAT(sequences(read), ElementsAre(1, 2));
  EXPECT_EQ(read.damage, "");
}

TEST_F(TailerTest, AMissingReportEndsTheReadingWithTheLineThatWasDamaged) {
  append(line(metric(1)) + "{\"sequence\":\"2\",\"met\n" + line(metric(3)));
  for (int i = 0; i < 2; ++i) {  // and again: the damage does not go away
    const ReportsRead read = reports_.read(kA, static_cast<std::uint64_t>(i), 10);
    EXPECT_THAT(read.damage, HasSubstr("report 2 is missing before line 3"));
    EXPECT_THAT(read.damage, HasSubstr("reports.jsonl"));
    EXPECT_FALSE(read.at_end);
  }
}

TEST_F(TailerTest, AReportThatNobodyMayStoreEndsTheReadingWithTheReason) {
  protocol::Report nameless = metric(2);
  std::get<protocol::MetricReport>(nameless.body).values[""] = 1;
  protocol::Report endless = metric(2);
  std::get<protocol::MetricReport>(endless.body).values[std::string(10'000, 'x')] = 1;
  for (const protocol::Report& bad : {nameless, endless}) {
    ReportTailer reader(folder_.file("bad"));
    std::ofstream(folder_.file("bad")) << line(metric(1)) << line(bad) << line(metric(3));
    const ReportsRead read = reader.read(kA, 0, 10);
    EXPECT_EQ(sequences(read), std::vector<std::uint64_t>{1});
    EXPECT_THAT(read.damage, HasSubstr("report 2 is missing"));
    EXPECT_THAT(read.damage, HasSubstr("name")) << "and why";
  }
}

TEST_F(TailerTest, ALongFileComesInPiecesAndWhole) {
  constexpr std::uint64_t kCount = 20'000;  // a few MB, so several calls
  std::string all;
  for (std::uint64_t i = 1; i <= kCount; ++i) all += line(metric(i));
  append(all);
  std::uint64_t after = 0;
  for (int calls = 0; calls < 10'000 && after < kCount; ++calls) {
    const ReportsRead read = reports_.read(kA, after, 512);
    ASSERT_EQ(read.damage, "");
    for (const auto& report : read.reports) ASSERT_EQ(report.sequence, ++after);
  }
  EXPECT_EQ(after, kCount);
}

TEST_F(TailerTest, ALogIsHandedOutByOffset) {
  EXPECT_TRUE(log_.read(kA, 0, 10, false).at_end);
  append("hello world", "log");
  LogRead read = log_.read(kA, 0, 5, false);
  EXPECT_EQ(read.bytes, "hello");
  EXPECT_FALSE(read.at_end);
  read = log_.read(kA, 5, 100, false);
  EXPECT_EQ(read.bytes, " world");
  EXPECT_TRUE(read.at_end);
}

/// Reads on from `*offset` to the end of the log; pieces that are left out as "[N]".
std::string rest(LogTailer& log, std::uint64_t* offset, bool after_exit) {
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    const LogRead read = log.read(kA, *offset, 7, after_exit);
    if (read.left_out > 0) all += "[" + std::to_string(read.left_out) + "]";
    all += read.bytes;
    *offset += read.left_out + read.bytes.size();
    if (read.at_end) break;
  }
  return all;
}

TEST_F(TailerTest, OfALongLogTheBeginningAndTheEndAreHandedOut) {
  append(std::string(500, 'a') + "\n" + std::string(59, 'z') + "\n", "log");
  std::uint64_t offset = 0;
  // Head 100, tail 60; reads of 7 bytes pass the head by 5. 561 bytes in all.
  EXPECT_EQ(rest(log_, &offset, true),
            std::string(105, 'a') + "[396]" + std::string(59, 'z') + "\n");
  EXPECT_EQ(offset, 561u);
}

TEST_F(TailerTest, WhileATrainerWritesTooFastTheNewestLinesAreHandedOut) {
  append(std::string(400, 'a') + "\nb\nc\n", "log");
  std::uint64_t offset = 0;
  // 20 bytes from the end a line is in its middle; the next that begins is handed out.
  const std::string shown = rest(log_, &offset, false);
  EXPECT_EQ(shown.substr(0, 105), std::string(105, 'a'));
  EXPECT_TRUE(shown.ends_with("b\nc\n")) << shown;
  append(std::string(300, 'x') + "\nthe end\n", "log");
  const std::string end = rest(log_, &offset, true);
  EXPECT_TRUE(end.starts_with("[")) << end;
  EXPECT_TRUE(end.ends_with("x\nthe end\n")) << end;
  EXPECT_EQ(offset, 405u + 309u);
}

TEST_F(TailerTest, ALogThatSomebodyCutsIsSaidAndReadFromItsBeginning) {
  append("one two three\n", "log");
  std::uint64_t offset = 0;
  EXPECT_EQ(rest(log_, &offset, false), "one two three\n");
  std::filesystem::resize_file(folder_.file("log"), 0);
  append("four\n", "log");
  const std::string shown = rest(log_, &offset, false);
  EXPECT_THAT(shown, HasSubstr("was cut to 5 bytes"));
  EXPECT_TRUE(shown.ends_with("]\nfour\n")) << shown;
  append("five\n", "log");
  EXPECT_EQ(rest(log_, &offset, true), "five\n");
}

}  // namespace
}  // namespace tailor::agent
