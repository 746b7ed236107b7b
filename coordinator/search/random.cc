// Random search: search.trials distinct points, drawn independently from the space.
//
// Draw i is a function of (search.seed, i) alone, so the state is two numbers: draws made and
// points given. A draw that repeats an earlier point is passed over; small spaces end when every
// point was given, or when kRepeatsMax draws in a row brought nothing new.
#include <fmt/format.h>

#include <unordered_set>

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
  explicit Random(sweep::Spec spec) : spec_(std::move(spec)), budget_(sweep::search_size(spec_)) {}

  void update(std::span<const Observation>) override {}  // random search learns nothing

  std::vector<sweep::Point> suggest(std::size_t count) override {
    std::vector<sweep::Point> points;
    while (points.size() < count && seen_.size() < budget_ && repeats_ < kRepeatsMax) {
      if (auto point = draw()) points.push_back(std::move(*point));
    }
    return points;
  }

  std::optional<std::uint64_t> remaining() const override {
    if (repeats_ >= kRepeatsMax) return 0;
    return budget_ - seen_.size();
  }

  std::string save() const override { return fmt::format("{} {}", draws_, seen_.size()); }

  Status load(std::string_view state) override {
    const std::size_t blank = state.find(' ');
    std::uint64_t draws = 0;
    std::uint64_t given = 0;
    if (blank == std::string_view::npos || !parse_cursor(state.substr(0, blank), &draws) ||
        !parse_cursor(state.substr(blank + 1), &given) || given > draws || given > budget_ ||
        draws > kDrawsMax || (given == 0 && draws > 0)) {
      return bad(state);
    }
    Random replay(spec_);
    while (replay.draws_ < draws && replay.repeats_ < kRepeatsMax) replay.draw();
    if (replay.draws_ != draws || replay.seen_.size() != given) return bad(state);
    draws_ = replay.draws_;
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
  const std::uint64_t budget_;
  std::uint64_t draws_ = 0;
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
