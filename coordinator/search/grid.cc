// Grid search: every point of the space exactly once,
// in order of its mixed-radix index (last axis fastest).
//
// The grid is an index, never a list: the state is the next index, and point i is computed from i,
// so a grid of 2^40 points costs as much memory as one of four. With search.trials > 0 it ends with
// so many candidates; points that are none do not count.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/search/algorithms.h"

namespace tailor::search {
namespace {

class Grid final : public Algorithm {
 public:
  explicit Grid(sweep::Spec spec)
      : spec_(std::move(spec)),
        size_(sweep::grid_size(spec_)),
        wanted_(sweep::search_size(spec_)) {}

  void update(std::span<const Observation>) override {}  // a grid learns nothing

  std::vector<sweep::Point> suggest(std::size_t count) override {
    std::vector<sweep::Point> points;
    while (points.size() < count && next_ < size_ && next_ - refused_ < wanted_) {
      points.push_back(sweep::grid_point(spec_, next_++));
    }
    return points;
  }

  void refuse() override { ++refused_; }
  bool exhausts_space() const override { return true; }

  std::optional<std::uint64_t> remaining() const override {
    return std::min(size_ - next_, wanted_ - (next_ - refused_));
  }

  std::string save() const override {
    return refused_ == 0 ? std::to_string(next_) : fmt::format("{} {}", next_, refused_);
  }

  Status load(std::string_view state) override {
    const std::size_t blank = state.find(' ');
    std::uint64_t next = 0;
    std::uint64_t refused = 0;
    const bool read = parse_cursor(state.substr(0, blank), &next) &&
                      (blank == std::string_view::npos ||
                       (parse_cursor(state.substr(blank + 1), &refused) && refused > 0));
    if (!read || next > size_ || refused > next || next - refused > wanted_) {
      return {Code::kDataLoss, fmt::format("'{}' is no position on a grid of {} points",
                                           state.substr(0, 40), size_)};
    }
    next_ = next;
    refused_ = refused;
    return Status::ok();
  }

 private:
  const sweep::Spec spec_;
  const std::uint64_t size_;
  const std::uint64_t wanted_;
  std::uint64_t next_ = 0;
  std::uint64_t refused_ = 0;  // of those before `next_`
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
  return std::make_unique<Grid>(spec);
}

}  // namespace tailor::search
