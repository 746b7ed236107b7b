// Departures: which sweeps left memory, in order. Rows of a sweep that were read before it left may
// be older than what it did last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "base/ids.h"

namespace tailor::core {

class Departures {
 public:
  /// How many there were.
  std::uint64_t count() const { return count_; }

  void add(SweepId sweep, std::string name) {
    ++count_;
    last_.push_back({sweep, std::move(name)});
    if (last_.size() > kKept) last_.pop_front();
  }

  /// Whether that sweep, or one of that name, left after the first `as_of` departures. True too
  /// when those are so long ago that nobody knows. Cost: linear in the departures since.
  bool since(std::uint64_t as_of, SweepId sweep) const {
    return any(as_of, [&](const Departure& one) { return one.sweep == sweep; });
  }
  bool since(std::uint64_t as_of, std::string_view name) const {
    return any(as_of, [&](const Departure& one) { return one.name == name; });
  }

 private:
  static constexpr std::size_t kKept = 1'024;
  struct Departure {
    SweepId sweep;
    std::string name;
  };

  template <typename Is>
  bool any(std::uint64_t as_of, Is is) const {
    std::uint64_t after = count_ - as_of;
    if (after > last_.size()) return true;
    for (auto at = last_.rbegin(); after > 0; ++at, --after) {
      if (is(*at)) return true;
    }
    return false;
  }

  std::uint64_t count_ = 0;
  std::deque<Departure> last_;
};

}  // namespace tailor::core
