// Grid: every point of the space once, in order of its mixed-radix index, the last axis fastest.
//
// The grid is an index, never a list, so 2^40 points cost nothing until they are drawn; where to go
// on is the highest index in the history.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "coordinator/search/proposer.h"

namespace tailor::search {
namespace {

/// Points given at once: the ones behind an accepted one are computed in vain.
constexpr std::size_t kAtOnce = 8;

class GridProposer final : public Proposer {
 public:
  explicit GridProposer(const Context& context) : space_(context.space) {
    std::set<std::uint64_t> enqueued;
    for (const sweep::Point& point : context.settings.enqueued) {
      if (const auto index = space_.grid_index(point)) enqueued.insert(*index);
    }
    // Proposals stand in ascending order, so the last one says how far it went.
    const History& history = context.history;
    for (std::size_t i = history.size(); i-- > 0;) {
      if (history.record(i).given) continue;
      const auto index = space_.grid_index(history.record(i).point);
      if (!index || enqueued.contains(*index)) continue;
      next_ = *index + 1;
      return;
    }
  }

  std::vector<sweep::Point> propose(std::uint64_t, std::uint32_t attempt) override {
    std::vector<sweep::Point> out;
    std::uint64_t at = attempt == 0 ? next_ : tried_;
    for (; at < space_.points() && out.size() < kAtOnce; ++at) {
      if (auto point = space_.grid_point(at)) out.push_back(*std::move(point));
    }
    tried_ = at;
    return out;
  }

  void accept(const sweep::Point& point) override {
    if (const auto index = space_.grid_index(point)) next_ = std::max(next_, *index + 1);
  }

  bool exhausts_space() const override { return true; }

 private:
  const Space& space_;
  std::uint64_t next_ = 0;
  std::uint64_t tried_ = 0;  // of this proposal: all before were refused
};

}  // namespace

std::unique_ptr<Proposer> make_grid_proposer(const Context& context) {
  return std::make_unique<GridProposer>(context);
}

Status check_grid(const Space& space, const Settings&) {
  for (const sweep::Axis& axis : space.axes()) {
    if (axis.grid_size() > 0) continue;
    return {
        Code::kInvalidArgument,
        fmt::format("[space] '{}' is continuous and has no grid: give it a `step` or a list, or "
                    "use search.algorithm = \"random\"",
                    axis.path)};
  }
  if (space.size() > 0) return Status::ok();
  return {Code::kInvalidArgument, "a grid needs at least one axis in [space]"};
}

}  // namespace tailor::search
