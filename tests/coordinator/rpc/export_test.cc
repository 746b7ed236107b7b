// The curves of a whole sweep: whose are there, and how many are not any more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/rpc/served.h"
#include "tests/storage/rows.h"

namespace tailor::rpc {
namespace {

using namespace storage::testing;  // NOLINT
using tailor::testing::Served;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WallMs kHour = 3'600'000;

class ExportTest : public ::testing::Test {
 protected:
  // Four trials that ended one after the other, an hour between them.
  ExportTest() {
    std::vector<storage::Mutation> rows = make_base(4);
    storage::SweepRow sweep = make_sweep(1);
    sweep.state = storage::SweepState::kCompleted;
    rows.emplace_back(sweep);
    for (std::uint64_t id = 1; id <= 4; ++id) {
      storage::TrialRow trial = make_trial(id);
      trial.state = storage::TrialState::kCompleted;
      trial.ended_ms = static_cast<WallMs>(id) * kHour;
      rows.emplace_back(trial);
      storage::AttemptRow attempt = make_attempt(id, 1);
      attempt.state = storage::AttemptState::kEnded;
      rows.emplace_back(attempt);
      rows.emplace_back(make_point(id, 1, "loss", 1, 4.0));
      rows.emplace_back(make_point(id, 1, "loss", 2, 3.0));
      rows.emplace_back(make_point(id, 1, "lr", 1, 0.1));
    }
    EXPECT_TRUE(store_.commit(rows).is_ok());
  }

  struct Exported {
    std::vector<std::string> curves;  ///< "t2 loss 2"
    std::uint64_t pruned = 0;
  };
  Exported all(std::uint64_t after = 0, const std::string& metric = "") {
    v1::ExportCurvesRequest request;
    request.mutable_sweep()->set_id(1);
    request.set_after(after);
    request.set_metric(metric);
    grpc::ClientContext context;
    Served::set_deadline(context);
    const auto reader = served_.client().ExportCurves(&context, request);
    Exported out;
    v1::ExportCurvesResponse message;
    while (reader->Read(&message)) {
      for (const auto& curve : message.curves()) {
        out.curves.push_back("t" + std::to_string(curve.trial()) + " " + curve.series().metric() +
                             " " + std::to_string(curve.series().steps_size()));
        EXPECT_FALSE(curve.candidate_name().empty());
      }
      out.pruned = message.trials_pruned();
    }
    EXPECT_TRUE(reader->Finish().ok());
    return out;
  }

  storage::MemoryStore store_;
  Served served_{store_};
};

TEST_F(ExportTest, GivesEverySeriesOfEveryTrialInTheOrderOfTrials) {
  EXPECT_THAT(all().curves, ElementsAre("t1 loss 2", "t1 lr 1", "t2 loss 2", "t2 lr 1", "t3 loss 2",
                                        "t3 lr 1", "t4 loss 2", "t4 lr 1"));
  EXPECT_THAT(all(2, "loss").curves, ElementsAre("t3 loss 2", "t4 loss 2"));
  EXPECT_THAT(all(4).curves, IsEmpty());
}

TEST_F(ExportTest, SaysHowManyTrialsLostTheirCurvesToPruning) {
  EXPECT_EQ(all().pruned, 0u);
  ASSERT_TRUE(store_.prune({.points_ms = kHour}, 3 * kHour + kHour / 2).has_value());
  const Exported rest = all();
  EXPECT_THAT(rest.curves, ElementsAre("t3 loss 2", "t3 lr 1", "t4 loss 2", "t4 lr 1"));
  EXPECT_EQ(rest.pruned, 2u);
  EXPECT_EQ(all(1).pruned, 1u);
}

}  // namespace
}  // namespace tailor::rpc
