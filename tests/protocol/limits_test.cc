// What is too long is cut or refused, and said.
#include "protocol/limits.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "protocol/convert.h"
#include "tailor/v1/worker.pb.h"

namespace tailor::protocol {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kMegabytes(3 << 20, 'x');

Report metrics(std::map<std::string, double> values) {
  return {1, 1, MetricReport{1, 64, std::move(values)}};
}

Hello good_hello() {
  Hello hello;
  hello.worker_name = "node7";
  hello.version = "0.1.0";
  hello.slots = {{0, DeviceKind::kCpu, "cpu", 0, 1}};
  return hello;
}

/// Through the wire and back.
Result<WorkerMessage> sent(const WorkerMessage& message) {
  v1::WorkerMessage proto;
  to_proto(message, &proto);
  return from_proto(proto);
}

TEST(Limits, ATextThatFitsIsLeftAsItIs) {
  EXPECT_EQ(cut("short", 64), "short");
  const std::string exact(64, 'a');
  EXPECT_EQ(cut(exact, 64), exact);
}

TEST(Limits, ACutTextSaysHowMuchIsGoneAndStaysWithinItsLimit) {
  const std::string text = cut(std::string(10'000, 'a'), 100);
  EXPECT_LE(text.size(), 100u);
  EXPECT_THAT(text, HasSubstr("bytes cut)"));
  EXPECT_EQ(text.substr(text.find("... (")), "... (9940 bytes cut)");
}

TEST(Limits, ACutNeverSplitsACharacter) {
  std::string text;
  while (text.size() < 500) text += "größer";
  for (std::size_t most = 64; most < 100; ++most) {
    EXPECT_TRUE(is_valid_utf8(cut(text, most))) << most;
  }
}

TEST(Limits, MegabytesOfMessagesAreCutOnArrival) {
  const auto draining = sent(Draining{kMegabytes});
  ASSERT_TRUE(draining.has_value());
  EXPECT_LE(std::get<Draining>(*draining).reason.size(), kMessageBytesMax);
  Heartbeat unfit;
  unfit.unfit = kMegabytes;
  const auto heartbeat = sent(unfit);
  ASSERT_TRUE(heartbeat.has_value());
  EXPECT_LE(std::get<Heartbeat>(*heartbeat).unfit.size(), kMessageBytesMax);
  EndReport end;
  end.message = kMegabytes;
  const auto reports = sent(Reports{{{TrialId{1}, 1}, 1}, {{1, 1, end}}});
  ASSERT_TRUE(reports.has_value());
  const auto& read = std::get<EndReport>(std::get<Reports>(*reports).reports.front().body);
  EXPECT_LE(read.message.size(), kMessageBytesMax);
  EXPECT_THAT(read.message, HasSubstr("bytes cut)"));
}

TEST(Limits, NamesOfAWorkerThatAreTooLongAreRefusedByField) {
  const std::pair<void (*)(Hello&), const char*> cases[] = {
      {[](Hello& h) { h.worker_name = kMegabytes; }, "Hello.worker_name"},
      {[](Hello& h) { h.worker_name.clear(); }, "Hello.worker_name is empty"},
      {[](Hello& h) { h.instance = kMegabytes; }, "Hello.instance"},
      {[](Hello& h) { h.version = kMegabytes; }, "Hello.version"},
      {[](Hello& h) { h.host = kMegabytes; }, "Hello.host"},
      {[](Hello& h) { h.folder = kMegabytes; }, "Hello.folder"},
      {[](Hello& h) { h.address = kMegabytes; }, "Hello.address"},
      {[](Hello& h) { h.labels = {kMegabytes}; }, "Hello.labels"},
      {[](Hello& h) { h.labels.assign(kLabelsMax + 1, "a"); }, "labels of a worker"},
      {[](Hello& h) { h.slots[0].name = kMegabytes; }, "Slot.name"},
      {[](Hello& h) { h.worker_name = "a\x1b[31mb"; }, "control characters"},
      {[](Hello& h) { h.worker_name = "a\nb"; }, "Hello.worker_name (\"a\\nb\")"},
      {[](Hello& h) { h.host = "a\xC2\x9B"; }, "Hello.host"},
      {[](Hello& h) { h.labels = {"a\tb"}; }, "Hello.labels"},
      {[](Hello& h) { h.slots[0].name = std::string("a\0b", 3); }, "Slot.name"},
      {[](Hello& h) { h.slots.assign(kSlotsMax + 1, h.slots[0]); }, "slots of a worker"},
      {[](Hello& h) { h.held.assign(kHeldMax + 1, {}); }, "attempts of a worker"},
  };
  ASSERT_TRUE(sent(good_hello()).has_value());
  for (const auto& [spoil, words] : cases) {
    Hello hello = good_hello();
    spoil(hello);
    const auto read = sent(hello);
    ASSERT_FALSE(read.has_value()) << words;
    EXPECT_EQ(read.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(read.error().message(), HasSubstr(words));
    EXPECT_LT(read.error().message().size(), 300u) << "the refusal does not repeat the text";
  }
}

TEST(Limits, ABadReportIsNamedAndStillArrives) {
  // The stream goes on: what is wrong with the report is its attempt's affair.
  for (const Report& bad : {metrics({{"", 1}}), metrics({{kMegabytes, 1}})}) {
    EXPECT_FALSE(check_report(bad).is_ok());
    EXPECT_TRUE(sent(Reports{{{TrialId{1}, 1}, 1}, {bad}}).has_value());
  }
  EXPECT_TRUE(check_report(metrics({{"train_loss", 1}})).is_ok());
  EXPECT_FALSE(check_report(metrics({{"train_loss\r", 1}})).is_ok());
  EXPECT_TRUE(check_report({1, 1, CheckpointReport{1, "/a\nb", "", 0}}).is_ok()) << "is a path";
  EXPECT_THAT(check_report(metrics({{"", 1}})).message(),
              HasSubstr("report 1: a metric's name is empty"));
  std::map<std::string, double> many;
  for (std::size_t i = 0; i <= kMetricsMax; ++i) many["m" + std::to_string(i)] = 0;
  EXPECT_THAT(check_report(metrics(many)).message(), HasSubstr("metrics of a report"));
  EXPECT_FALSE(check_report({1, 1, CheckpointReport{1, "", "", 0}}).is_ok());
  EXPECT_FALSE(check_report({1, 1, CheckpointReport{1, kMegabytes, "", 0}}).is_ok());
  ProfileReport profile;
  profile.entries.assign(kProfileEntriesMax + 1, {0, -1, "raw", "shift", 1, 0});
  EXPECT_FALSE(check_report({1, 1, profile}).is_ok());
}

TEST(Limits, ALineOfATrainerWithABadNameIsRefusedOnReading) {
  const auto read = report_from_json(
      R"({"sequence":"1","wall_ms":"1","metric":{"step":"1","tokens":"1","values":{"":1}}})");
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error().message(), HasSubstr("name is empty"));
}

TEST(Limits, AnEndOfAnUnknownClassIsStillAnEnd) {
  v1::WorkerMessage proto;
  to_proto(Reports{{{TrialId{1}, 1}, 1}, {{1, 1, EndReport{EndClass::kOom, "why", 3, {}}}}},
           &proto);
  proto.mutable_reports()->mutable_reports(0)->mutable_end()->set_end(
      static_cast<v1::EndClass>(99));
  const auto read = from_proto(proto);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  const auto& end = std::get<EndReport>(std::get<Reports>(*read).reports.front().body);
  EXPECT_EQ(end.end, EndClass::kInfrastructure);
  EXPECT_THAT(end.message, HasSubstr("99"));
  EXPECT_THAT(end.message, HasSubstr("why"));
}

TEST(Limits, AMessageOfReportsStaysBelowWhatGrpcTakes) {
  std::map<std::string, double> values;
  for (std::size_t i = 0; i < kMetricsMax; ++i) {
    values[std::to_string(i) + std::string(kNameBytesMax - 5, 'n')] = 1.5;
  }
  v1::WorkerMessage proto;
  const Report largest = metrics(values);
  to_proto(Reports{{{TrialId{1}, 1}, 1}, {largest}}, &proto);
  EXPECT_LE(proto.ByteSizeLong(), report_bytes(largest) + 64);
  EXPECT_LE(kReportsBytesMax + report_bytes(largest), 4u << 20);
  ProfileReport profile;
  profile.entries.assign(kProfileEntriesMax, {1000, 15, "hyperbolic", "topology", 1.5, 0.25});
  EXPECT_LE(kReportsBytesMax + report_bytes({1, 1, profile}), 4u << 20);
  for (WorkEntry& entry : profile.entries) {
    entry.subsample_values.assign(kProfileValuesMax / kProfileEntriesMax, 1.5);
  }
  profile.entries[0].no_error = std::string(kProfileReasonBytesMax, 'r');
  profile.subsample_tokens.assign(kSubsamplesMax, std::int64_t{1} << 40);
  const Report full{1, 1, profile};
  ASSERT_TRUE(check_report(full).is_ok());
  to_proto(Reports{{{TrialId{1}, 1}, 1}, {full}}, &proto);
  EXPECT_LE(proto.ByteSizeLong(), report_bytes(full) + 64);
  EXPECT_LE(kReportsBytesMax + report_bytes(full), 4u << 20);
  profile.entries[0].subsample_values.assign(kProfileValuesMax, 1.5);
  EXPECT_THAT(check_report({1, 1, profile}).message(), HasSubstr("values of subsamples"));
}

TEST(Limits, VersionsMayLieOneMinorApart) {
  EXPECT_TRUE(check_version("0.3.1", "0.3.9").is_ok());
  EXPECT_TRUE(check_version("0.4.0-rc1", "0.3.0").is_ok());
  EXPECT_TRUE(check_version("0.2", "0.3.0+abc").is_ok());
  EXPECT_TRUE(check_version("", "0.3.0").is_ok());
  EXPECT_TRUE(check_version("99.9.9", "unknown").is_ok());
  for (const char* far : {"0.5.0", "0.1.0", "1.3.0", "99.9.9"}) {
    const Status status = check_version(far, "0.3.0");
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << far;
    EXPECT_THAT(status.message(), HasSubstr(far));
    EXPECT_THAT(status.message(), HasSubstr("0.3.0"));
  }
  EXPECT_EQ(check_version("seven", "0.3.0").code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tailor::protocol
