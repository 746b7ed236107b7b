// Random search: search.trials candidates, drawn independently from the space. Points that are no
// candidates do not count: draws go on.
//
// Draw i is a function of (search.seed, i) alone, so the state is three numbers: draws made, points
// given, and how many of these were refused. A draw that repeats an earlier point is passed over;
// small spaces end when every point was given, or when kRepeatsMax draws in a row brought nothing
// new.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/text.h"
#include "coordinator/search/algorithms.h"

namespace tailor::search {
namespace {

constexpr std::uint64_t kRepeatsMax = 10'000;
/// Draws that a stored state may claim; replaying them after a restart takes seconds at most.
constexpr std::uint64_t kDrawsMax = 100'000'000;

/// Equal points give equal text, other points other text.
std::string key_of(const sweep::Point& point) {
  std::string key;
  for (const auto& [path, value] : point) {
    key += fmt::format("{}={}:{}\n", path, value.index(), sweep::to_text(value));
  }
  return key;
}

class Random final : public Algorithm {
 public:
  explicit Random(sweep::Spec spec)
      : spec_(std::move(spec)),
        wanted_(sweep::search_size(spec_)),
        points_(sweep::grid_size(spec_)) {}

  void update(std::span<const Observation>) override {}  // random search learns nothing

  std::vector<sweep::Point> suggest(std::size_t count) override {
    std::vector<sweep::Point> points;
    while (points.size() < count && remaining() > 0u) {
      if (auto point = draw()) points.push_back(std::move(*point));
    }
    return points;
  }

  void refuse() override { ++refused_; }
  bool exhausts_space() const override { return false; }

  std::optional<std::uint64_t> remaining() const override {
    if (repeats_ >= kRepeatsMax) return 0;
    const std::uint64_t left = wanted_ - (seen_.size() - refused_);
    return points_ == 0 ? left : std::min(left, points_ - seen_.size());
  }

  std::string save() const override {
    return refused_ == 0 ? fmt::format("{} {}", draws_, seen_.size())
                         : fmt::format("{} {} {}", draws_, seen_.size(), refused_);
  }

  Status load(std::string_view state) override {
    const std::vector<std::string_view> numbers = split(state, ' ');
    std::uint64_t draws = 0;
    std::uint64_t given = 0;
    std::uint64_t refused = 0;
    const bool read = (numbers.size() == 2 || numbers.size() == 3) &&
                      parse_cursor(numbers[0], &draws) && parse_cursor(numbers[1], &given) &&
                      (numbers.size() == 2 || (parse_cursor(numbers[2], &refused) && refused > 0));
    if (!read || given > draws || refused > given || given - refused > wanted_ ||
        (points_ > 0 && given > points_) || draws > kDrawsMax || (given == 0 && draws > 0)) {
      return bad(state);
    }
    Random replay(spec_);
    while (replay.draws_ < draws && replay.repeats_ < kRepeatsMax) replay.draw();
    if (replay.draws_ != draws || replay.seen_.size() != given) return bad(state);
    draws_ = replay.draws_;
    refused_ = refused;
    repeats_ = replay.repeats_;
    seen_ = std::move(replay.seen_);
    return Status::ok();
  }

 private:
  /// The next draw, or nullopt when it repeats an earlier point.
  std::optional<sweep::Point> draw() {
    sweep::Point point = sweep::random_point(spec_, spec_.search.seed, draws_++);
    if (!seen_.insert(key_of(point)).second) {
      ++repeats_;
      return std::nullopt;
    }
    repeats_ = 0;
    return point;
  }

  static Status bad(std::string_view state) {
    return {Code::kDataLoss,
            fmt::format("'{}' is no state of this random search", state.substr(0, 40))};
  }

  const sweep::Spec spec_;
  const std::uint64_t wanted_;
  const std::uint64_t points_;  // of the space; 0 = without end
  std::uint64_t draws_ = 0;
  std::uint64_t refused_ = 0;  // of the points given
  std::uint64_t repeats_ = 0;  // draws since the last new point
  std::unordered_set<std::string> seen_;
};

}  // namespace

Result<std::unique_ptr<Algorithm>> make_random(const sweep::Spec& spec) {
  if (spec.space.empty()) {
    return error(Code::kInvalidArgument, "random search needs at least one axis in [space]");
  }
  if (spec.search.trials == 0) {
    return error(Code::kInvalidArgument,
                 "random search needs search.trials: the number of points to draw");
  }
  return std::make_unique<Random>(spec);
}

}  // namespace tailor::search
