#include "model/tokenizers/merges.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace tailor::tokenizers {
namespace {

constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
  return static_cast<std::uint64_t>(left) << 32 | right;
}

}  // namespace

MergeTable::MergeTable(std::size_t count)
    : slots_(std::bit_ceil(2 * count + 1), Slot{kEmpty, {0, 0}}) {}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  // Fibonacci hashing; the upper half of the product mixes both ids.
  std::size_t slot = (pair * 0x9e3779b97f4a7c15u >> 32) & mask;
  while (slots_[slot].pair != pair && slots_[slot].pair != kEmpty) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::add(std::uint32_t left, std::uint32_t right, Merge merge) {
  const std::uint64_t pair = pair_of(left, right);
  TAILOR_CHECK(pair != kEmpty);
  slots_[slot_of(pair)] = {pair, merge};
}

const MergeTable::Merge* MergeTable::find(std::uint32_t left, std::uint32_t right) const {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  return slot.pair == kEmpty ? nullptr : &slot.merge;
}

// The symbols are a linked list over the vector; a candidate is stale when its symbols have become
// others meanwhile.
void Merger::merge(const MergeTable& table, std::vector<MergeSymbol>* symbols) {
  std::vector<MergeSymbol>& all = *symbols;
  if (all.size() < 2) return;
  const auto count = static_cast<std::uint32_t>(all.size());
  next_.resize(count);
  previous_.resize(count);
  heap_.clear();
  const auto offer = [&](std::uint32_t left, std::uint32_t right) {
    const MergeTable::Merge* merge = table.find(all[left].id, all[right].id);
    if (merge == nullptr) return;
    heap_.push_back({merge->rank, left, all[left].id, all[right].id, merge->result});
    std::push_heap(heap_.begin(), heap_.end());
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    previous_[i] = i == 0 ? kNone : i - 1;
    next_[i] = i + 1 < count ? i + 1 : kNone;
    if (i > 0) offer(i - 1, i);
  }
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    const std::uint32_t left = best.at;
    const std::uint32_t right = next_[left];
    if (right == kNone || all[left].id != best.left || all[right].id != best.right) continue;
    all[left].id = best.result;
    all[left].end = all[right].end;
    next_[left] = next_[right];
    if (next_[right] != kNone) previous_[next_[right]] = left;
    all[right].id = kNone;  // matches no candidate any more
    next_[right] = kNone;
    if (previous_[left] != kNone) offer(previous_[left], left);
    if (next_[left] != kNone) offer(left, next_[left]);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i != kNone; i = next_[i]) all[kept++] = all[i];
  all.resize(kept);
}

}  // namespace tailor::tokenizers
