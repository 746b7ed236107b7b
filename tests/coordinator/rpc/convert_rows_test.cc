// Rows to messages: nothing is lost, and no bytes of a user can make a message that cannot be sent.
#include "coordinator/rpc/convert_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tailor::rpc {
namespace {

TEST(ConvertRows, StatusCodesAreGrpcsOwn) {
  const grpc::Status status = to_grpc(Status(Code::kNotFound, "no trial t7"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no trial t7");
  EXPECT_TRUE(to_grpc(Status::ok()).ok());
  EXPECT_EQ(to_grpc(Status(Code::kUnauthenticated, "")).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST(ConvertRows, EveryTrialStateGoesThereAndBack) {
  using storage::TrialState;
  for (const TrialState state :
       {TrialState::kQueued, TrialState::kRunning, TrialState::kCompleted, TrialState::kStopped,
        TrialState::kFailed, TrialState::kCancelled}) {
    EXPECT_EQ(from_proto(to_proto(state)).value(), state);
  }
  EXPECT_EQ(from_proto(v1::TRIAL_STATE_UNSPECIFIED).value(), std::nullopt);
  EXPECT_EQ(from_proto(static_cast<v1::TrialState>(99)).error().code(), Code::kInvalidArgument);
}

TEST(ConvertRows, ATrialKeepsNanAndTellsItFromNothing) {
  engine::TrialView view;
  view.row.id = TrialId{41};
  view.row.objective = std::numeric_limits<double>::quiet_NaN();
  view.row.final_values = {{"validation_loss", std::numeric_limits<double>::infinity()}};
  const v1::Trial proto = to_proto(view);
  EXPECT_TRUE(proto.has_objective());
  EXPECT_TRUE(std::isnan(proto.objective()));
  EXPECT_TRUE(std::isinf(proto.values().at("validation_loss")));
  view.row.objective.reset();
  EXPECT_FALSE(to_proto(view).has_objective());
}

TEST(ConvertRows, WrongBytesInTextBecomeQuestionMarksSoThatTheMessageCanBeSent) {
  storage::EventRow row;
  row.message = "bad \xff\xfe bytes, good \xc3\xa9";
  const v1::Event proto = to_proto(row);
  EXPECT_EQ(proto.message(), "bad ?? bytes, good \xc3\xa9");
  v1::Event back;
  EXPECT_TRUE(back.ParseFromString(proto.SerializeAsString()));
}

TEST(ConvertRows, TheBaselineOfAComparisonHasNoDifference) {
  analysis::ComparisonTable table;
  table.baseline = "a";
  table.rows.resize(2);
  table.rows[0].finished = 2;
  table.rows[1].differences = {-0.5, -0.25};
  table.rows[1].seeds = {1, 2};
  table.rows[1].paired = analysis::summarize_pairs(table.rows[1].differences);
  analysis::PageRequest request;
  v1::CompareResponse proto = to_proto(table, analysis::page_of(table, request));
  EXPECT_EQ(proto.total(), 2u);
  EXPECT_EQ(proto.rows(0).seeds(), 2u);
  EXPECT_FALSE(proto.rows(0).has_difference());
  EXPECT_DOUBLE_EQ(proto.rows(1).difference(), -0.375);
  EXPECT_TRUE(proto.rows(1).has_ci_low());
  EXPECT_EQ(proto.rows(1).differences_size(), 2);
  request.offset = 1;
  request.differences = false;
  proto = to_proto(table, analysis::page_of(table, request));
  ASSERT_EQ(proto.rows_size(), 1);
  EXPECT_TRUE(proto.rows(0).has_difference()) << "the second row is no baseline on its own page";
  EXPECT_EQ(proto.rows(0).differences_size(), 0);
}

TEST(ConvertRows, NullCellsStayApartFromEmptyText) {
  const v1::QueryRow proto = to_proto({{}, {storage::Cell::Kind::kText, ""}});
  EXPECT_FALSE(proto.cells(0).has_text());
  EXPECT_TRUE(proto.cells(1).has_text());
}

}  // namespace
}  // namespace tailor::rpc
