// Placement as tables: queues and free slots in, placements out.
#include "coordinator/scheduler/placement.h"

#include <gtest/gtest.h>

#include <list>
#include <map>

namespace tailor::scheduler {
namespace {

class Failed final : public Avoidance {
 public:
  std::map<TrialId, std::set<WorkerId>> on;
  bool failed_on(TrialId trial, WorkerId worker) const override {
    const auto found = on.find(trial);
    return found != on.end() && found->second.contains(worker);
  }
};

struct Cluster {
  std::list<std::set<TrialId>> queues;
  std::vector<SweepQueue> sweeps;
  std::vector<FreeWorker> workers;
  Failed failed;

  SweepQueue& sweep(std::uint64_t id, std::initializer_list<std::uint64_t> trials) {
    auto& queue = queues.emplace_back();
    for (const std::uint64_t trial : trials) queue.insert(TrialId{trial});
    SweepQueue& made = sweeps.emplace_back();
    made.sweep = SweepId{id};
    made.ready = &queue;
    return made;
  }
  void worker(std::uint64_t id, std::vector<std::uint32_t> cpu,
              std::vector<std::uint32_t> gpu = {}) {
    workers.push_back({WorkerId{id}, std::move(cpu), std::move(gpu)});
  }
  /// "t1@w1 t2@w2"
  std::string placed() const {
    std::string text;
    for (const Placement& p : place(sweeps, workers, failed)) {
      text += (text.empty() ? "" : " ") + p.trial.to_string() + "@" + p.worker.to_string();
      for (const std::uint32_t slot : p.slots) text += "." + std::to_string(slot);
    }
    return text;
  }
};

TEST(Placement, GivesFreeSlotsToTheLowestTrialsFirst) {
  Cluster c;
  c.sweep(1, {3, 1, 2});
  c.worker(1, {0, 1});
  EXPECT_EQ(c.placed(), "t1@w1.0 t2@w1.1");
}

TEST(Placement, ServesTheHigherPriorityFirst) {
  Cluster c;
  c.sweep(1, {1, 2});
  c.sweep(2, {3, 4}).priority = 1;
  c.worker(1, {0, 1, 2});
  EXPECT_EQ(c.placed(), "t3@w1.0 t4@w1.1 t1@w1.2");
}

TEST(Placement, SharesSlotsBetweenSweepsByFewestRunning) {
  Cluster c;
  c.sweep(1, {1, 2, 3}).running = 2;
  c.sweep(2, {4, 5, 6});
  c.worker(1, {0, 1, 2, 3});
  // Sweep 2 catches up to two running, then the older sweep has its turn.
  EXPECT_EQ(c.placed(), "t4@w1.0 t5@w1.1 t1@w1.2 t6@w1.3");
}

TEST(Placement, RespectsTheParallelLimitOfASweep) {
  Cluster c;
  SweepQueue& limited = c.sweep(1, {1, 2, 3});
  limited.parallel = 2;
  limited.running = 1;
  c.worker(1, {0, 1, 2});
  EXPECT_EQ(c.placed(), "t1@w1.0");
}

TEST(Placement, MatchesTheKindOfSlot) {
  Cluster c;
  c.sweep(1, {1}).gpus = 1;
  c.sweep(2, {2});
  c.worker(1, {0}, {});
  c.worker(2, {}, {5});
  EXPECT_EQ(c.placed(), "t1@w2.5 t2@w1.0");
}

TEST(Placement, TakesAllSlotsOfATrialOnOneWorkerOrNone) {
  Cluster c;
  c.sweep(1, {1, 2}).gpus = 2;
  c.worker(1, {}, {0});
  c.worker(2, {}, {0, 1, 2});
  EXPECT_EQ(c.placed(), "t1@w2.0.1");
}

TEST(Placement, LetsAnotherSweepUseSlotsThatAreOfNoUseToTheFirst) {
  Cluster c;
  SweepQueue& gang = c.sweep(1, {1});
  gang.gpus = 2;
  gang.priority = 9;
  c.sweep(2, {2}).gpus = 1;
  c.worker(1, {}, {0});
  EXPECT_EQ(c.placed(), "t2@w1.0");
}

TEST(Placement, SpreadsOverTheWorkersWithMostFreeSlots) {
  Cluster c;
  c.sweep(1, {1, 2, 3});
  c.worker(1, {0});
  c.worker(2, {0, 1, 2});
  EXPECT_EQ(c.placed(), "t1@w2.0 t2@w2.1 t3@w1.0");
}

TEST(Placement, PrefersAWorkerWhereTheTrialHasNotFailedButDoesNotWaitForOne) {
  Cluster c;
  c.sweep(1, {1});
  c.failed.on[TrialId{1}] = {WorkerId{1}};
  c.worker(1, {0, 1});
  EXPECT_EQ(c.placed(), "t1@w1.0");
  c.worker(2, {0});
  EXPECT_EQ(c.placed(), "t1@w2.0");
}

TEST(Placement, DoesNothingWithoutFreeSlotsOrTrials) {
  Cluster c;
  c.sweep(1, {1});
  EXPECT_EQ(c.placed(), "");
  Cluster empty;
  empty.worker(1, {0});
  EXPECT_EQ(empty.placed(), "");
}

}  // namespace
}  // namespace tailor::scheduler
