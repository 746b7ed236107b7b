// Which workers are chosen for what, and at which cost.
#include "coordinator/scheduler/worker_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tailor::scheduler {
namespace {

using protocol::DeviceKind;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

Offer offer(std::uint64_t id, std::uint32_t cpus, std::vector<std::uint64_t> gpu_gib = {}) {
  Offer made;
  made.worker = WorkerId{id};
  std::uint32_t index = 0;
  for (std::uint32_t i = 0; i < cpus; ++i) made.free.push_back({index++, DeviceKind::kCpu, kGib});
  for (const std::uint64_t gib : gpu_gib) {
    made.free.push_back({index++, DeviceKind::kGpu, gib * kGib});
  }
  return made;
}

Demand cpus(std::uint32_t slots, std::uint32_t workers = 1) {
  return {DeviceKind::kCpu, slots, workers, workers, 0, 0, {}};
}
Demand gpus(std::uint32_t slots, std::uint64_t gib = 0) {
  return {DeviceKind::kGpu, slots, 1, 1, gib * kGib, 0, {}};
}

/// Numbers of the workers chosen, in order.
std::vector<std::uint64_t> chosen(const WorkerIndex& index, const Demand& demand,
                                  const Preference& preference = {}) {
  std::vector<std::uint64_t> ids;
  for (const WorkerId worker : index.choose(demand, preference)) ids.push_back(worker.value);
  return ids;
}

TEST(WorkerIndex, ChoosesTheWorkerWithMostFreeSlotsAndOfThoseTheOldest) {
  WorkerIndex index;
  index.set(offer(1, 1));
  index.set(offer(3, 2));
  index.set(offer(2, 2));
  EXPECT_THAT(chosen(index, cpus(1)), ElementsAre(2));
  index.set(offer(2, 0));
  EXPECT_THAT(chosen(index, cpus(1)), ElementsAre(3));
  index.erase(WorkerId{3});
  EXPECT_THAT(chosen(index, cpus(1)), ElementsAre(1));
  EXPECT_THAT(chosen(index, cpus(2)), IsEmpty());
  index.erase(WorkerId{1});
  EXPECT_THAT(chosen(index, cpus(1)), IsEmpty());
}

TEST(WorkerIndex, TellsKindsOfSlotsApart) {
  WorkerIndex index;
  index.set(offer(1, 2));
  index.set(offer(2, 0, {24}));
  EXPECT_THAT(chosen(index, gpus(1)), ElementsAre(2));
  EXPECT_THAT(chosen(index, cpus(1)), ElementsAre(1));
  EXPECT_EQ(index.free_slots(DeviceKind::kGpu), 1u);
  EXPECT_EQ(index.free_slots(DeviceKind::kCpu), 2u);
}

TEST(WorkerIndex, TakesSlotsOfAGangOnDifferentWorkersOrNone) {
  WorkerIndex index;
  index.set(offer(1, 4));
  index.set(offer(2, 2));
  index.set(offer(3, 1));
  EXPECT_THAT(chosen(index, cpus(2, 2)), ElementsAre(1, 2));
  EXPECT_THAT(chosen(index, cpus(1, 3)), ElementsAre(1, 2, 3));
  EXPECT_THAT(chosen(index, cpus(2, 3)), IsEmpty());
}

TEST(WorkerIndex, GivesNoGpuThatIsTooSmall) {
  WorkerIndex index;
  index.set(offer(1, 0, {24, 24, 24, 24}));
  index.set(offer(2, 0, {80, 24, 80}));
  EXPECT_THAT(chosen(index, gpus(1)), ElementsAre(1));
  EXPECT_THAT(chosen(index, gpus(2, 40)), ElementsAre(2));
  EXPECT_THAT(chosen(index, gpus(3, 40)), IsEmpty()) << "only two of its three are large enough";
  EXPECT_THAT(pick_slots(*index.find(WorkerId{2}), gpus(2, 40)), ElementsAre(0, 2));
  EXPECT_THAT(pick_slots(*index.find(WorkerId{2}), gpus(1, 10)), ElementsAre(1))
      << "the large ones stay for those who need them";
}

TEST(WorkerIndex, CountsTheMemoryOfTheNode) {
  WorkerIndex index;
  Offer small = offer(1, 8);
  small.memory_bytes = 10 * kGib;
  Offer large = offer(2, 1);
  large.memory_bytes = 64 * kGib;
  index.set(small);
  index.set(large);
  index.set(offer(3, 4));  // does not say
  Demand demand = cpus(1);
  demand.memory_bytes = 32 * kGib;
  EXPECT_THAT(chosen(index, demand), ElementsAre(2));
  demand.memory_bytes = 65 * kGib;
  EXPECT_THAT(chosen(index, demand), IsEmpty());
}

TEST(WorkerIndex, FindsWorkersThatHaveAllLabels) {
  WorkerIndex index;
  Offer a = offer(1, 9);
  a.labels = {"big"};
  Offer b = offer(2, 1);
  b.labels = {"big", "rack=3"};
  index.set(a);
  index.set(b);
  index.set(offer(3, 99));
  Demand demand = cpus(1);
  demand.labels = {"big", "rack=3"};
  EXPECT_THAT(chosen(index, demand), ElementsAre(2));
  demand.labels = {"big", "rack=4"};
  EXPECT_THAT(chosen(index, demand), IsEmpty());
}

TEST(WorkerIndex, PrefersTheFolderAndAvoidsWithoutWaiting) {
  WorkerIndex index;
  Offer home = offer(1, 1);
  home.folder = "f1";
  index.set(home);
  index.set(offer(2, 5));
  EXPECT_THAT(chosen(index, cpus(1), {"f1", false, nullptr}), ElementsAre(1));
  EXPECT_THAT(chosen(index, cpus(1), {"f9", false, nullptr}), ElementsAre(2));
  EXPECT_THAT(chosen(index, cpus(1), {"f9", true, nullptr}), IsEmpty());
  EXPECT_THAT(chosen(index, cpus(1, 2), {"f1", false, nullptr}), ElementsAre(1, 2));
  const std::set<WorkerId> failed = {WorkerId{1}};
  EXPECT_THAT(chosen(index, cpus(1), {"f1", false, &failed}), ElementsAre(2));
  index.erase(WorkerId{2});
  EXPECT_THAT(chosen(index, cpus(1), {"f1", false, &failed}), ElementsAre(1));
}

// Whatever was set and erased: the choice is that of a walk over all workers.
TEST(WorkerIndex, AgreesWithALookAtEveryWorker) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::map<WorkerId, Offer> all;
  WorkerIndex index;
  for (int round = 0; round < 3'000; ++round) {
    Offer made = offer(1 + below(12), below(4));
    for (std::uint32_t i = below(3); i > 0; --i) {
      made.free.push_back({10 + i, DeviceKind::kGpu, (below(2) == 0 ? 24 : 80) * kGib});
    }
    if (below(2) == 0) made.labels = {"x"};
    made.memory_bytes = below(4) * kGib;
    if (below(4) == 0) {
      index.erase(made.worker);
      all.erase(made.worker);
    } else {
      index.set(made);
      all[made.worker] = made;
    }
    Demand demand = below(2) == 0 ? cpus(1 + below(3)) : gpus(1 + below(2), below(2) * 40);
    if (below(3) == 0) demand.labels = {"x"};
    demand.memory_bytes = below(3) * kGib;
    const Offer* best = nullptr;
    const auto free = [&](const Offer& o) {
      return std::count_if(o.free.begin(), o.free.end(),
                           [&](const FreeSlot& slot) { return slot.kind == demand.kind; });
    };
    for (const auto& [id, o] : all) {
      if (fits(o, demand) && (best == nullptr || free(o) > free(*best))) best = &o;
    }
    const auto found = index.choose(demand, {});
    ASSERT_EQ(found.empty(), best == nullptr);
    if (best != nullptr) {
      ASSERT_EQ(found.front(), best->worker);
    }
    std::uint64_t slots = 0;
    for (const auto& [id, o] : all) slots += o.free.size();
    ASSERT_EQ(index.size(), all.size());
    ASSERT_EQ(index.free_slots(DeviceKind::kCpu) + index.free_slots(DeviceKind::kGpu), slots);
  }
}

TEST(WorkerIndex, LooksAtAsManyOfTenThousandWorkersAsOfTen) {
  const auto looks = [](std::uint64_t workers) {
    WorkerIndex index;
    for (std::uint64_t id = 1; id <= workers; ++id) {
      Offer made = offer(id, 4);
      made.folder = "f" + std::to_string(id);
      index.set(made);
    }
    for (std::uint64_t i = 0; i < 1'000; ++i) {
      const WorkerId worker =
          index.choose(cpus(1), {"f" + std::to_string(i % workers), false, {}}).front();
      Offer taken = *index.find(worker);
      const Offer before = taken;
      taken.free.pop_back();
      index.set(taken);
      index.set(before);
    }
    return index.looked_at();
  };
  EXPECT_LE(looks(10'000), looks(10) + 1);
}

}  // namespace
}  // namespace tailor::scheduler
