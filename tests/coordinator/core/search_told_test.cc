// What the search hears of candidates whose seeds partly failed.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;

/// Passes everything on and keeps what was told.
class Listening final : public search::Algorithm {
 public:
  Listening(std::unique_ptr<search::Algorithm> inner, std::vector<std::optional<double>>& told)
      : inner_(std::move(inner)), told_(told) {}
  void update(std::span<const search::Observation> finished) override {
    for (const search::Observation& one : finished) told_.push_back(one.objective);
    inner_->update(finished);
  }
  std::vector<sweep::Point> suggest(std::size_t count) override { return inner_->suggest(count); }
  void refuse() override { inner_->refuse(); }
  bool exhausts_space() const override { return inner_->exhausts_space(); }
  std::optional<std::uint64_t> remaining() const override { return inner_->remaining(); }
  std::string save() const override { return inner_->save(); }
  Status load(std::string_view state) override { return inner_->load(state); }

 private:
  std::unique_ptr<search::Algorithm> inner_;
  std::vector<std::optional<double>>& told_;
};

/// One point of three seeds, all running.
struct ThreeSeeds : Harness {
  ThreeSeeds() {
    SweepFile file;
    file.candidates = "";
    file.space = "[space]\n\"train.optimizer.lr\" = [0.01]\n";
    file.seeds = "count = 3";
    submit(file);
    auto& algorithm = state.sweeps.at(SweepId{1}).algorithm;
    algorithm = std::make_unique<Listening>(std::move(algorithm), told);
    session = connect("w1", 3);
  }
  SessionId session = 0;
  std::vector<std::optional<double>> told;
};

TEST(SearchTold, TheMeanOverAllSeedsOnce) {
  ThreeSeeds h;
  h.finish(h.session, 1, EndClass::kCompleted, 3.0);
  h.finish(h.session, 2, EndClass::kCompleted, 4.0);
  EXPECT_TRUE(h.told.empty());
  h.finish(h.session, 3, EndClass::kCompleted, 5.0);
  EXPECT_EQ(h.told, (std::vector<std::optional<double>>{4.0}));
}

TEST(SearchTold, ACandidateOneOfWhoseSeedsDivergedHasFailedHoweverGoodTheOthersAre) {
  ThreeSeeds h;
  h.finish(h.session, 1, EndClass::kCompleted, 1.0);
  h.finish(h.session, 2, EndClass::kNan);
  h.finish(h.session, 3, EndClass::kCompleted, 1.0);
  ASSERT_EQ(h.told.size(), 1u);
  EXPECT_FALSE(h.told[0].has_value());
}

TEST(SearchTold, ACancelledSeedSaysNothing) {
  ThreeSeeds h;
  h.finish(h.session, 1, EndClass::kCompleted, 3.0);
  h.finish(h.session, 2, EndClass::kCompleted, 4.0);
  h.trials(TrialAction::kCancel, {TrialId{3}});
  h.finish(h.session, 3, EndClass::kStopped);
  EXPECT_EQ(h.told, (std::vector<std::optional<double>>{3.5}));
}

}  // namespace
}  // namespace tailor::core
