// IndexSet: a set of small numbers kept as ranges. Candidates end roughly in order, so thousands of
// them are a handful of ranges, and writing the set down costs a handful of words.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace tailor::core {

class IndexSet {
 public:
  bool contains(std::uint32_t index) const {
    const auto after = ranges_.upper_bound(index);
    return after != ranges_.begin() && std::prev(after)->second >= index;
  }

  /// False when it was there already. Cost: logarithmic in the number of ranges.
  bool insert(std::uint32_t index) {
    if (contains(index)) return false;
    const auto after = ranges_.upper_bound(index);
    const bool joins_after = after != ranges_.end() && after->first == index + 1;
    const bool joins_before = after != ranges_.begin() && std::prev(after)->second + 1 == index;
    const std::uint32_t last = joins_after ? after->second : index;
    if (joins_before) {
      std::prev(after)->second = last;
    } else {
      ranges_[index] = last;
    }
    if (joins_after) ranges_.erase(index + 1);
    return true;
  }

  /// First and last index of each range, ascending; never adjacent.
  const std::map<std::uint32_t, std::uint32_t>& ranges() const { return ranges_; }

 private:
  std::map<std::uint32_t, std::uint32_t> ranges_;
};

}  // namespace tailor::core
