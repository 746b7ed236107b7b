// What runs a trial again is what its worker was told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/convert.h"
#include "tests/coordinator/rpc/served.h"

namespace tailor::rpc {
namespace {

using tailor::testing::eventually;
using tailor::testing::RecordingSink;
using tailor::testing::Served;
using tailor::testing::sweep_text;
using ::testing::HasSubstr;
using Stub = Served::Stub;

class TrialSpecTest : public ::testing::Test {
 protected:
  TrialSpecTest() {
    v1::SubmitSweepRequest request;
    request.set_toml(sweep_text());
    request.set_base_dir("/data");
    v1::SubmitSweepResponse response;
    EXPECT_TRUE(served_.call(&Stub::SubmitSweep, request, &response).ok());
  }
  v1::GetTrialSpecResponse ask(std::uint64_t trial, std::uint32_t attempt = 0) {
    v1::GetTrialSpecRequest request;
    request.set_trial(trial);
    request.set_attempt(attempt);
    v1::GetTrialSpecResponse response;
    const grpc::Status status = served_.call(&Stub::GetTrialSpec, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  storage::MemoryStore store_;
  Served served_{store_};
};

TEST_F(TrialSpecTest, IsWhatTheWorkerWasToldWithoutWhatIsOfOneAttempt) {
  EXPECT_FALSE(ask(3).has_attempt());
  auto sink = std::make_shared<RecordingSink>();
  served_.engine().open_session(sink, tailor::testing::hello("node1", 4));
  ASSERT_TRUE(eventually([&] { return sink->received<protocol::Assign>().size() == 4; }));
  for (const protocol::Assign& assign : sink->received<protocol::Assign>()) {
    const auto answer = ask(assign.spec.trial.value);
    const auto spec = protocol::trial_spec_from_json(answer.spec_json());
    ASSERT_TRUE(spec.has_value()) << spec.error().message();
    protocol::TrialSpec expected = assign.spec;
    expected.trial = {};
    expected.attempt = 0;
    expected.token = 0;
    expected.threads = spec->threads;
    EXPECT_EQ(protocol::to_json(*spec), protocol::to_json(expected));
    EXPECT_EQ(spec->data.train, "/data/train.tokens");
    EXPECT_EQ(answer.sweep_toml(), sweep_text());
    EXPECT_EQ(answer.attempt().number(), 1u);
    EXPECT_EQ(answer.attempt().worker_name(), "node1");
    EXPECT_EQ(answer.worker_host(), "localhost");
  }
}

TEST_F(TrialSpecTest, NamesWhatIsNotThere) {
  v1::GetTrialSpecRequest request;
  v1::GetTrialSpecResponse response;
  request.set_trial(99);
  EXPECT_EQ(served_.call(&Stub::GetTrialSpec, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  request.set_trial(1);
  request.set_attempt(7);
  const grpc::Status status = served_.call(&Stub::GetTrialSpec, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("attempt 7"));
}

}  // namespace
}  // namespace tailor::rpc
