#include "protocol/convert.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tailor/v1/architecture.pb.h"
#include "tailor/v1/trial.pb.h"
#include "tailor/v1/worker.pb.h"

namespace tailor::protocol {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

/// A spec in which no field has its default.
TrialSpec full_spec() {
  TrialSpec spec;
  spec.trial = TrialId{(1ull << 60) + 3};
  spec.attempt = 4;
  spec.token = ~0ull;
  spec.sweep_name = "schlanke Größe";
  spec.candidate_name = "ffn.k=4, \"quoted\"\nline";
  spec.seed = (1ull << 63) + 1;
  spec.architecture.family = shape::Family::kOlmo2;
  spec.architecture.d_model = 96;
  spec.architecture.heads = 6;
  spec.architecture.kv_heads = 3;
  spec.architecture.head_dim = 32;
  spec.architecture.vocab_size = 777;
  spec.architecture.tie_embeddings = false;
  spec.architecture.ffn_kind = shape::FfnKind::kHourglass;
  spec.architecture.ffn_norm = shape::FfnNorm::kPerSubPost;
  spec.architecture.ffn_outer_residual = true;
  spec.architecture.widths = {{40, 30, 20}, {10, 9, 8}};
  spec.architecture.rope_theta = 500000.125;
  spec.architecture.norm_eps = 1.0 / 3.0;
  spec.architecture.norm_scaling = true;
  spec.architecture.residual_scaling = true;
  spec.data = {"/data/train-*.tokens", "/data/validation-*.tokens", 512};
  spec.train.tokens = 5'000'000'000;
  spec.train.batch_tokens = 4096;
  spec.train.micro_batch_tokens = 1024;
  spec.train.optimizer = {0.1, 0.2, 0.3, 1e-7, 0.5, 0.6, LrMode::kMup, 96};
  spec.train.schedule = {LrScheduleKind::kWsd, 0.07, -1, 0.3, 0.45, DecayShape::kOneMinusSqrt};
  spec.train.precision = Precision::kBf16;
  spec.train.log_every_steps = 3;
  spec.train.evaluate_every_tokens = 8192;
  spec.train.checkpoint_every_ms = 1234;
  spec.train.validation_tokens = 65536;
  spec.train.init_std = 0.015;
  spec.train.down_init = DownInit::kFanIn;
  spec.train.z_loss = 2e-5;
  spec.train.recompute = true;
  spec.train.keep_last = 5;
  spec.train.keep_best = true;
  spec.train.nan_skip_limit = 3;
  spec.geometry = {true, {0, 2, 5}, 128, 4, 0.9, true, true};
  spec.device = "cuda:3";
  spec.threads = 7;
  spec.resume_from = {"/runs/t1/1/checkpoints", "/runs/t1/2/checkpoints"};
  return spec;
}

std::vector<Report> full_reports() {
  std::vector<Report> out;
  out.push_back(
      {1, 1'700'000'000'001,
       StartedReport{4242, "node7", "H100", "0.1.0+abc", "cafe", 120, "/c/120", 11, 22, 33}});
  out.push_back({2, 1'700'000'000'002,
                 MetricReport{10,
                              40960,
                              {{"train_loss", 3.25},
                               {"lr", 1.0 / 3.0},
                               {"nan", kNan},
                               {"up", kInfinity},
                               {"down", -kInfinity},
                               {"tiny", 5e-324}}}});
  out.push_back({3, 1'700'000'000'003, CheckpointReport{100, "/c/100", "beef", 1ll << 40}});
  ProfileReport profile;
  profile.step = 100;
  profile.tokens = 256;
  profile.subsamples = 2;
  profile.rho = 0.75;
  profile.seed = ~0ull;
  profile.dropped = 2;
  profile.linear_tokens = 2048;
  profile.subsamples_asked = 8;
  profile.positions = std::int64_t{1} << 40;
  profile.sequences = 77;
  profile.sequences_given = true;
  profile.no_error = "why none";
  profile.subsample_tokens = {2048, 2047};
  profile.failure = "all tokens are equal";
  profile.dimension_failure = "too few points";
  profile.entries = {{0, -1, "raw", "shift", 1.5, 0.25, "", {1.25, 1.75}},
                     {3, 2, "hyperbolic", "gw", kNan, {}, "why none", {}},
                     {3, 2, "hyperbolic", "shift", 0, 0.0, "", {0, 0}},
                     {4, -1, "raw", "gw", 1, {}, "another reason", {1}},
                     {5,
                      -1,
                      "raw",
                      "gromov",
                      1,
                      {},
                      "why none",
                      {1},
                      protocol::MatchEnergies{1, 2, 0.25, 0.5, 0.75, 3}}};
  out.push_back({4, 1'700'000'000'004, profile});
  out.push_back(
      {5, 1'700'000'000'005,
       EndReport{EndClass::kNan, "loss is NaN at step 7", 7, {{"validation_loss", kNan}}}});
  return out;
}

void expect_same(double a, double b) {
  if (std::isnan(a)) {
    EXPECT_TRUE(std::isnan(b));
  } else {
    EXPECT_EQ(a, b);
  }
}

void expect_same(const std::map<std::string, double>& a, const std::map<std::string, double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    expect_same(value, b.at(name));
  }
}

void expect_same_body(const StartedReport& a, const StartedReport& b) { EXPECT_EQ(a, b); }
void expect_same_body(const CheckpointReport& a, const CheckpointReport& b) { EXPECT_EQ(a, b); }
void expect_same_body(const MetricReport& a, const MetricReport& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.tokens, b.tokens);
  expect_same(a.values, b.values);
}
void expect_same_body(const EndReport& a, const EndReport& b) {
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.message, b.message);
  EXPECT_EQ(a.step, b.step);
  expect_same(a.values, b.values);
}
void expect_same_body(const ProfileReport& a, const ProfileReport& b) {
  const auto settings = [](const ProfileReport& p) {
    return std::tie(p.step, p.tokens, p.subsamples, p.rho, p.seed, p.dropped, p.linear_tokens,
                    p.subsamples_asked, p.positions, p.sequences, p.sequences_given, p.no_error,
                    p.subsample_tokens);
  };
  EXPECT_EQ(settings(a), settings(b));
  EXPECT_EQ(a.failure, b.failure);
  EXPECT_EQ(a.dimension_failure, b.dimension_failure);
  ASSERT_EQ(a.entries.size(), b.entries.size());
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    const WorkEntry &x = a.entries[i], &y = b.entries[i];
    EXPECT_EQ(std::tie(x.layer, x.sub_block, x.geometry, x.statistic),
              std::tie(y.layer, y.sub_block, y.geometry, y.statistic));
    expect_same(x.value, y.value);
    EXPECT_EQ(std::tie(x.standard_error, x.no_error, x.subsample_values, x.energies),
              std::tie(y.standard_error, y.no_error, y.subsample_values, y.energies));
  }
}

void expect_same(const Report& a, const Report& b) {
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.wall_ms, b.wall_ms);
  ASSERT_EQ(a.body.index(), b.body.index());
  std::visit(
      [&](const auto& body) {
        expect_same_body(body, std::get<std::decay_t<decltype(body)>>(b.body));
      },
      a.body);
}

const AttemptRef kRef{{TrialId{9}, 2}, 77};

/// Through the wire format, as between two processes.
template <typename Proto, typename Value>
auto through_wire(const Value& value) {
  Proto proto, received;
  to_proto(value, &proto);
  EXPECT_TRUE(received.ParseFromString(proto.SerializeAsString()));
  return from_proto(received);
}

TEST(Convert, ErrorsOfAProfileOfAnEarlierTrainerAreNotBelieved) {
  // As it was written before it said how many positions there were.
  const auto read = report_from_json(
      R"({"sequence":"1","wall_ms":"1","profile":{"step":"9","tokens":256,"subsamples":8,)"
      R"("rho":0.7,)"
      R"("entries":[{"layer":0,"sub_block":-1,"geometry":"raw","statistic":"shift","value":1.5,)"
      R"("standard_error":0.25}]}})");
  ASSERT_TRUE(read.has_value()) << read.error().message();
  const auto& profile = std::get<ProfileReport>(read->body);
  EXPECT_EQ(profile.entries.at(0).value, 1.5);
  EXPECT_FALSE(profile.entries.at(0).standard_error);
  EXPECT_EQ(profile.entries.at(0).no_error, kEarlierErrors);
  EXPECT_EQ(profile.no_error, kEarlierErrors);
}

TEST(Convert, ATrialSpecWithEveryFieldSetSurvivesTheWireAndJson) {
  const TrialSpec spec = full_spec();
  const auto wired = through_wire<v1::TrialSpec>(spec);
  ASSERT_TRUE(wired.has_value()) << wired.error().to_string();
  EXPECT_EQ(*wired, spec);
  const auto read = trial_spec_from_json(to_json(spec));
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(*read, spec);
}

TEST(Convert, NoFieldOfTheTrialSpecMessagesIsLeftUnset) {
  // If a field is added to the .proto and forgotten in the mapping, it has its default here.
  v1::TrialSpec proto;
  to_proto(full_spec(), &proto);
  std::vector<const google::protobuf::Message*> open = {&proto};
  while (!open.empty()) {
    const auto* message = open.back();
    open.pop_back();
    const auto* descriptor = message->GetDescriptor();
    const auto* reflection = message->GetReflection();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const auto* field = descriptor->field(i);
      if (field->is_repeated()) {
        EXPECT_GT(reflection->FieldSize(*message, field), 0) << field->full_name();
      } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
        EXPECT_TRUE(reflection->HasField(*message, field)) << field->full_name();
        open.push_back(&reflection->GetMessage(*message, field));
      } else if (field->name() != "tie_embeddings") {
        EXPECT_TRUE(reflection->HasField(*message, field)) << field->full_name();
      }
    }
  }
}

TEST(Convert, JsonOfATrialSpecIsForPeople) {
  const std::string json = to_json(full_spec());
  EXPECT_THAT(json, HasSubstr("\"candidate_name\""));
  EXPECT_THAT(json, HasSubstr("\"token\": \"18446744073709551615\""));
  EXPECT_GT(std::count(json.begin(), json.end(), '\n'), 20);
  EXPECT_EQ(json.back(), '\n');
}

TEST(Convert, EveryKindOfReportSurvivesTheWireAndOneJsonLine) {
  for (const Report& report : full_reports()) {
    const auto wired = through_wire<v1::Report>(report);
    ASSERT_TRUE(wired.has_value()) << wired.error().to_string();
    expect_same(report, *wired);
    const std::string line = to_json_line(report);
    EXPECT_THAT(line, Not(HasSubstr("\n")));
    const auto read = report_from_json(line);
    ASSERT_TRUE(read.has_value()) << read.error().to_string();
    expect_same(report, *read);
  }
}

TEST(Convert, EveryEndClassSurvives) {
  for (int i = 0; i <= static_cast<int>(EndClass::kInfrastructure); ++i) {
    const Report report{1, 1, EndReport{static_cast<EndClass>(i), "m", 1, {}}};
    expect_same(report, report_from_json(to_json_line(report)).value());
  }
}

TEST(Convert, EveryWorkerMessageSurvivesTheWire) {
  const Hello hello{
      "w1",
      "i1",
      "0.1.0",
      "host",
      {{0, DeviceKind::kCpu, "cpu", 1ull << 35, 2}, {1, DeviceKind::kGpu, "H100", 1ull << 36, 8}},
      {{kRef, {0, 1}, true, 12}},
      1'700'000'000'007,
      "folder-1",
      1ull << 37,
      {"big", "rack=3"},
      "10.0.0.7"};
  const auto hello2 =
      std::get<Hello>(through_wire<v1::WorkerMessage>(WorkerMessage(hello)).value());
  EXPECT_EQ(std::tie(hello.worker_name, hello.instance, hello.version, hello.host, hello.slots,
                     hello.held),
            std::tie(hello2.worker_name, hello2.instance, hello2.version, hello2.host, hello2.slots,
                     hello2.held));
  EXPECT_EQ(
      std::tie(hello.wall_ms, hello.folder, hello.memory_bytes, hello.labels, hello.address),
      std::tie(hello2.wall_ms, hello2.folder, hello2.memory_bytes, hello2.labels, hello2.address));

  const auto beat = std::get<Heartbeat>(
      through_wire<v1::WorkerMessage>(
          WorkerMessage(
              Heartbeat{5, {kRef, {{TrialId{1}, 1}, 1}}, 17, "disk full", 1ull << 33, 1ull << 40}))
          .value());
  EXPECT_EQ(beat.serial, 5u);
  EXPECT_EQ(beat.wall_ms, 17);
  EXPECT_EQ(beat.unfit, "disk full");
  EXPECT_EQ(beat.disk_free_bytes, 1ull << 33);
  EXPECT_EQ(beat.disk_total_bytes, 1ull << 40);
  EXPECT_THAT(beat.running, ::testing::ElementsAre(kRef, AttemptRef{{TrialId{1}, 1}, 1}));

  const auto reports = std::get<Reports>(
      through_wire<v1::WorkerMessage>(WorkerMessage(Reports{kRef, full_reports()})).value());
  EXPECT_EQ(reports.ref, kRef);
  ASSERT_EQ(reports.reports.size(), full_reports().size());
  for (std::size_t i = 0; i < reports.reports.size(); ++i) {
    expect_same(full_reports()[i], reports.reports[i]);
  }

  const std::string bytes("a\0\xff\n", 4);
  const auto log = std::get<LogChunk>(
      through_wire<v1::WorkerMessage>(WorkerMessage(LogChunk{kRef, 1ull << 33, bytes, 1ull << 32}))
          .value());
  EXPECT_EQ(std::tie(log.ref, log.bytes), std::tie(kRef, bytes));
  EXPECT_EQ(log.offset, 1ull << 33);
  EXPECT_EQ(log.left_out, 1ull << 32);

  EXPECT_EQ(std::get<Draining>(
                through_wire<v1::WorkerMessage>(WorkerMessage(Draining{"SIGTERM"})).value())
                .reason,
            "SIGTERM");

  const auto refused = std::get<Refused>(
      through_wire<v1::WorkerMessage>(WorkerMessage(Refused{kRef, EndClass::kUser, "no slot 9"}))
          .value());
  EXPECT_EQ(refused.ref, kRef);
  EXPECT_EQ(refused.end, EndClass::kUser);
  EXPECT_EQ(refused.reason, "no slot 9");
  const auto ended = std::get<MemberEnded>(
      through_wire<v1::WorkerMessage>(WorkerMessage(MemberEnded{kRef, EndClass::kOom, "killed"}))
          .value());
  EXPECT_EQ(ended.ref, kRef);
  EXPECT_EQ(ended.end, EndClass::kOom);
  EXPECT_EQ(ended.message, "killed");
  const auto meeting = std::get<Rendezvous>(
      through_wire<v1::WorkerMessage>(WorkerMessage(Rendezvous{kRef, "node1:29500"})).value());
  EXPECT_EQ(meeting.ref, kRef);
  EXPECT_EQ(meeting.address, "node1:29500");
}

TEST(Convert, EveryCoordinatorMessageSurvivesTheWire) {
  const auto round = [](const CoordinatorMessage& message) {
    return through_wire<v1::CoordinatorMessage>(message).value();
  };
  const auto welcome =
      std::get<Welcome>(round(Welcome{WorkerId{3}, 1000, 15000, {{kRef, true, 4, 5}}}));
  EXPECT_EQ(welcome.worker, WorkerId{3});
  EXPECT_EQ(welcome.heartbeat_ms, 1000);
  EXPECT_EQ(welcome.lease_ms, 15000);
  EXPECT_THAT(welcome.held, ::testing::ElementsAre(HeldVerdict{kRef, true, 4, 5}));
  const auto assign = std::get<Assign>(
      round(Assign{full_spec(), {1, 3}, 60'000, 70'000, {2, 2, 4}, {{3, 120, "abc", 1ll << 34}}}));
  EXPECT_EQ(assign.spec, full_spec());
  EXPECT_EQ(assign.progress_limit_ms, 60'000);
  EXPECT_EQ(assign.time_limit_ms, 70'000);
  EXPECT_EQ(assign.gang, (Gang{2, 2, 4}));
  EXPECT_THAT(assign.stored, ::testing::ElementsAre(StoredCheckpoint{3, 120, "abc", 1ll << 34}));
  EXPECT_EQ(std::get<Assign>(round(Assign{full_spec(), {1}, 0, 0, {}, {}})).gang, Gang{});
  EXPECT_THAT(assign.slots, ::testing::ElementsAre(1u, 3u));
  EXPECT_EQ(std::get<HeartbeatAck>(round(HeartbeatAck{8})).serial, 8u);
  EXPECT_EQ(std::get<ReportsAck>(round(ReportsAck{kRef, 6})).ref, kRef);
  EXPECT_EQ(std::get<ReportsAck>(round(ReportsAck{kRef, 6})).through_sequence, 6u);
  EXPECT_EQ(std::get<LogAck>(round(LogAck{kRef, 7})).ref, kRef);
  EXPECT_EQ(std::get<LogAck>(round(LogAck{kRef, 7})).through_offset, 7u);
  const auto stop = std::get<Stop>(round(Stop{kRef, StopReason::kFenced, true}));
  EXPECT_EQ(stop.ref, kRef);
  EXPECT_EQ(stop.reason, StopReason::kFenced);
  EXPECT_TRUE(stop.discard);
  EXPECT_TRUE(std::holds_alternative<Drain>(round(Drain{})));
  EXPECT_EQ(std::get<Rendezvous>(round(Rendezvous{kRef, "node1:29500"})).address, "node1:29500");
  for (int i = 0; i <= static_cast<int>(StopReason::kOther); ++i) {
    const auto reason = static_cast<StopReason>(i);
    EXPECT_EQ(std::get<Stop>(round(Stop{kRef, reason, false})).reason, reason);
  }
  EXPECT_EQ(parse_stop_reason("of a later version"), StopReason::kOther);
}

TEST(Convert, UnsetEnumsAndMissingPartsAreRefusedByName) {
  v1::TrialSpec good;
  to_proto(full_spec(), &good);
  struct Case {
    std::function<void(v1::TrialSpec&)> spoil;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& s) { s.clear_architecture(); }, "TrialSpec.architecture is missing"},
      {[](auto& s) { s.clear_data(); }, "TrialSpec.data is missing"},
      {[](auto& s) { s.clear_train(); }, "TrialSpec.train is missing"},
      {[](auto& s) { s.clear_geometry(); }, "TrialSpec.geometry is missing"},
      {[](auto& s) { s.mutable_architecture()->clear_family(); }, "Architecture.family is unset"},
      {[](auto& s) { s.mutable_architecture()->clear_ffn_kind(); },
       "Architecture.ffn_kind is unset"},
      {[](auto& s) { s.mutable_architecture()->clear_ffn_norm(); },
       "Architecture.ffn_norm is unset"},
      {[](auto& s) { s.mutable_architecture()->set_ffn_norm(static_cast<v1::FfnNorm>(99)); },
       "Architecture.ffn_norm has the unknown value 99"},
      {[](auto& s) { s.mutable_architecture()->set_d_model(-1); }, "`d_model` is -1"},
      {[](auto& s) { s.mutable_train()->clear_optimizer(); }, "TrainSpec.optimizer is missing"},
      {[](auto& s) { s.mutable_train()->clear_schedule(); }, "TrainSpec.schedule is missing"},
      {[](auto& s) { s.mutable_train()->clear_precision(); }, "TrainSpec.precision is unset"},
      {[](auto& s) { s.mutable_train()->mutable_schedule()->clear_kind(); },
       "LrScheduleSpec.kind is unset"},
  };
  for (const Case& c : cases) {
    v1::TrialSpec proto = good;
    c.spoil(proto);
    const auto result = from_proto(proto);
    ASSERT_FALSE(result.has_value()) << c.message;
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), HasSubstr(c.message));
  }
}

TEST(Convert, MessagesWithoutBodyOrReferenceAreRefused) {
  EXPECT_THAT(from_proto(v1::Report()).error().message(), HasSubstr("Report 0 has no body"));
  EXPECT_THAT(from_proto(v1::WorkerMessage()).error().message(),
              HasSubstr("WorkerMessage has no body"));
  EXPECT_THAT(from_proto(v1::CoordinatorMessage()).error().message(),
              HasSubstr("CoordinatorMessage has no body"));
  v1::WorkerMessage message;
  message.mutable_reports();
  EXPECT_THAT(from_proto(message).error().message(), HasSubstr("Reports.ref is missing"));
  message.mutable_log();
  EXPECT_THAT(from_proto(message).error().message(), HasSubstr("LogChunk.ref is missing"));
  message.mutable_hello()->add_slots();
  EXPECT_THAT(from_proto(message).error().message(), HasSubstr("Slot.kind is unset"));
  v1::CoordinatorMessage answer;
  answer.mutable_stop();
  EXPECT_THAT(from_proto(answer).error().message(), HasSubstr("Stop.ref is missing"));
  answer.mutable_assign();
  EXPECT_THAT(from_proto(answer).error().message(), HasSubstr("Assign.spec is missing"));
  v1::Report end;
  end.mutable_end();
  EXPECT_THAT(from_proto(end).error().message(), HasSubstr("EndReport.end is unset"));
}

TEST(Convert, TornAndWrongLinesAreRefusedAndNeverCrash) {
  const std::string line = to_json_line(full_reports()[1]);
  for (std::size_t size = 0; size < line.size(); ++size) {
    EXPECT_FALSE(report_from_json(line.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(report_from_json("null").has_value());
  EXPECT_FALSE(report_from_json("[1]").has_value());
  EXPECT_FALSE(report_from_json(std::string("\0\0\0", 3)).has_value());
  EXPECT_FALSE(report_from_json("\xff\xfe").has_value());
  const auto unknown = report_from_json(R"({"sequence":"1","wall_ms":"1","metrik":{}})");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message(), HasSubstr("metrik"));
  EXPECT_FALSE(trial_spec_from_json("{}").has_value());
  // What protobuf's own reader takes and JSON is not, and depth.
  using namespace std::string_literals;
  const std::string good = R"({"sequence":"1","wall_ms":"1","started":{}})";
  ASSERT_TRUE(report_from_json(good).has_value()) << report_from_json(good).error().message();
  std::string deep = good.substr(0, good.size() - 1) + ",\"x\":";
  for (int i = 0; i < 100'000; ++i) deep += "{\"started\":";
  for (const std::string& text : {good + "\0"s, good + "\0 garbage"s, good + "{}",
                                  R"({'sequence':'1','wall_ms':'1','started':{}})"s,
                                  R"({sequence:"1",wall_ms:"1",started:{}})"s,
                                  R"({"sequence":"1","sequence":"2","wall_ms":"1","started":{}})"s,
                                  R"({"sequence":"1x","wall_ms":"1","started":{}})"s, deep}) {
    const auto report = report_from_json(text);
    ASSERT_FALSE(report.has_value()) << text.substr(0, 100);
    EXPECT_LT(report.error().message().size(), 1000u);
  }
}

TEST(Convert, TextThatIsNotUtf8IsRepairedNotLost) {
  const Report report{1, 1,
                      EndReport{EndClass::kData, "cannot read /data/\xff\xfe.txt: \xc3", 0, {}}};
  const auto back = report_from_json(to_json_line(report));
  ASSERT_TRUE(back.has_value()) << back.error().to_string();
  EXPECT_EQ(std::get<EndReport>(back->body).message, "cannot read /data/??.txt: ?");
}

}  // namespace
}  // namespace tailor::protocol
