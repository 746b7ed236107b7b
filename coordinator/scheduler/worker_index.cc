#include "coordinator/scheduler/worker_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tailor::scheduler {

using protocol::DeviceKind;

namespace {

constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

bool suits(const FreeSlot& slot, const Demand& demand) {
  return slot.kind == demand.kind && slot.memory_bytes >= demand.slot_memory_bytes;
}

std::size_t group_size(const auto& group) {
  std::size_t size = 0;
  for (const auto& [shape, entries] : group) size += entries.size();
  return size;
}

}  // namespace

bool fits(const Offer& offer, const Demand& demand) {
  const auto suitable = std::count_if(offer.free.begin(), offer.free.end(),
                                      [&](const FreeSlot& slot) { return suits(slot, demand); });
  return static_cast<std::uint64_t>(suitable) >= demand.slots &&
         offer.memory_bytes >= demand.memory_bytes &&
         std::includes(offer.labels.begin(), offer.labels.end(), demand.labels.begin(),
                       demand.labels.end());
}

std::vector<std::uint32_t> pick_slots(const Offer& offer, const Demand& demand) {
  std::vector<FreeSlot> suitable;
  for (const FreeSlot& slot : offer.free) {
    if (suits(slot, demand)) suitable.push_back(slot);
  }
  TAILOR_CHECK(suitable.size() >= demand.slots, "{} of {} slots", suitable.size(), demand.slots);
  if (demand.slot_memory_bytes > 0) {
    std::stable_sort(suitable.begin(), suitable.end(), [](const FreeSlot& a, const FreeSlot& b) {
      return a.memory_bytes < b.memory_bytes;
    });
  }
  std::vector<std::uint32_t> picked;
  for (std::uint32_t i = 0; i < demand.slots; ++i) picked.push_back(suitable[i].index);
  std::sort(picked.begin(), picked.end());
  return picked;
}

/// Calls act(group name, shape, entry) for every place at which `offer` stands.
template <typename Act>
void WorkerIndex::each_place(const Offer& offer, Act act) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kGpu}) {
    Entry entry{0, offer.worker};
    std::uint64_t memory = 0;
    for (const FreeSlot& slot : offer.free) {
      if (slot.kind != kind) continue;
      ++entry.free;
      memory = std::max(memory, slot.memory_bytes);
    }
    if (entry.free == 0) continue;
    // CPU slots have no memory of their own that a trial could ask for.
    const Shape shape{kind, kind == DeviceKind::kGpu ? (memory + kGib - 1) / kGib : 0};
    act(std::string(), shape, entry);
    act("f" + offer.folder, shape, entry);
    for (const std::string& label : offer.labels) act("l" + label, shape, entry);
  }
}

void WorkerIndex::set(Offer offer) {
  erase(offer.worker);
  each_place(offer, [&](const std::string& name, const Shape& shape, const Entry& entry) {
    groups_[name][shape].insert(entry);
  });
  for (const FreeSlot& slot : offer.free) ++free_[kind_index(slot.kind)];
  offers_.emplace(offer.worker, std::move(offer));
}

void WorkerIndex::erase(WorkerId worker) {
  const auto found = offers_.find(worker);
  if (found == offers_.end()) return;
  each_place(found->second, [&](const std::string& name, const Shape& shape, const Entry& entry) {
    const auto group = groups_.find(name);
    const auto entries = group->second.find(shape);
    entries->second.erase(entry);
    if (entries->second.empty()) group->second.erase(entries);
    if (group->second.empty()) groups_.erase(group);
  });
  for (const FreeSlot& slot : found->second.free) --free_[kind_index(slot.kind)];
  offers_.erase(found);
}

const Offer* WorkerIndex::find(WorkerId worker) const {
  const auto found = offers_.find(worker);
  return found == offers_.end() ? nullptr : &found->second;
}

const WorkerIndex::Group* WorkerIndex::find_group(const std::string& name) const {
  const auto found = groups_.find(name);
  return found == groups_.end() ? nullptr : &found->second;
}

const WorkerIndex::Group* WorkerIndex::group_of(const Demand& demand) const {
  const Group* smallest = find_group("");
  for (const std::string& label : demand.labels) {
    const Group* group = find_group("l" + label);
    if (group == nullptr) return nullptr;
    if (group_size(*group) < group_size(*smallest)) smallest = group;
  }
  return smallest;
}

template <typename Take>
void WorkerIndex::walk(const Group& group, const Demand& demand, Take take) const {
  using Range = std::pair<std::set<Entry>::const_iterator, std::set<Entry>::const_iterator>;
  std::vector<Range> ranges;
  const std::uint64_t gib = (demand.slot_memory_bytes + kGib - 1) / kGib;
  const Shape first{demand.kind, demand.kind == DeviceKind::kGpu ? gib : 0};
  for (auto it = group.lower_bound(first); it != group.end() && it->first.kind == demand.kind;
       ++it) {
    ranges.emplace_back(it->second.begin(), it->second.end());
  }
  while (true) {
    Range* best = nullptr;
    for (Range& range : ranges) {
      if (range.first == range.second || range.first->free < demand.slots) continue;
      if (best == nullptr || *range.first < *best->first) best = &range;
    }
    if (best == nullptr) return;
    const WorkerId worker = best->first->worker;
    ++best->first;
    ++looked_at_;
    if (fits(offers_.at(worker), demand) && take(worker)) return;
  }
}

std::vector<WorkerId> WorkerIndex::choose(const Demand& demand,
                                          const Preference& preference) const {
  if (free_slots(demand.kind) < demand.all_slots()) return {};
  std::vector<WorkerId> chosen;
  std::vector<WorkerId> avoided;  // to be taken where there is no other
  const auto take = [&](WorkerId worker) {
    if (std::count(chosen.begin(), chosen.end(), worker) > 0) return false;
    if (preference.avoid != nullptr && preference.avoid->contains(worker)) {
      if (std::count(avoided.begin(), avoided.end(), worker) == 0) avoided.push_back(worker);
      return false;
    }
    chosen.push_back(worker);
    return chosen.size() == demand.workers;
  };
  if (!preference.folder.empty()) {
    const Group* group = find_group("f" + preference.folder);
    if (group != nullptr) walk(*group, demand, take);
  }
  if (chosen.size() < demand.workers && !preference.only_folder) {
    const Group* group = group_of(demand);
    if (group != nullptr) walk(*group, demand, take);
  }
  for (const WorkerId worker : avoided) {
    if (chosen.size() == demand.workers) break;
    chosen.push_back(worker);
  }
  if (chosen.size() < demand.workers) chosen.clear();
  return chosen;
}

}  // namespace tailor::scheduler
