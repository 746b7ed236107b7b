// Grid search: every point of the space exactly once,
// in order of its mixed-radix index (last axis fastest).
//
// The grid is an index, never a list: the state is the next index, and point i is computed from i,
// so a grid of 2^40 points costs as much memory as one of four. With search.trials > 0 only the
// first so many points are tried.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/search/algorithms.h"

namespace tailor::search {
namespace {

class Grid final : public Algorithm {
 public:
  Grid(sweep::Spec spec, std::uint64_t size) : spec_(std::move(spec)), size_(size) {}

  void update(std::span<const Observation>) override {}  // a grid learns nothing

  std::vector<sweep::Point> suggest(std::size_t count) override {
    std::vector<sweep::Point> points;
    while (points.size() < count && next_ < size_) {
      points.push_back(sweep::grid_point(spec_, next_++));
    }
    return points;
  }

  std::optional<std::uint64_t> remaining() const override { return size_ - next_; }

  std::string save() const override { return std::to_string(next_); }

  Status load(std::string_view state) override {
    std::uint64_t next = 0;
    if (!parse_cursor(state, &next) || next > size_) {
      return {Code::kDataLoss, fmt::format("'{}' is no position on a grid of {} points",
                                           state.substr(0, 40), size_)};
    }
    next_ = next;
    return Status::ok();
  }

 private:
  const sweep::Spec spec_;
  const std::uint64_t size_;
  std::uint64_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<Algorithm>> make_grid(const sweep::Spec& spec) {
  if (sweep::grid_size(spec) == 0) {
    for (const sweep::Axis& axis : spec.space) {
      if (axis.grid_size() == 0) {
        return error(
            Code::kInvalidArgument,
            fmt::format("[space] '{}' is continuous and has no grid: give it a `step` or a list, "
                        "or use search.algorithm = \"random\"",
                        axis.path));
      }
    }
    return error(Code::kInvalidArgument, "a grid needs at least one axis in [space]");
  }
  return std::make_unique<Grid>(spec, sweep::search_size(spec));
}

}  // namespace tailor::search
