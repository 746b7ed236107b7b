// Random search: independent draws from the whole space, log ranges by their logarithm, lists by
// their values. It learns nothing, and is what the others are measured by.
#include <fmt/format.h>

#include "coordinator/search/proposer.h"

namespace tailor::search {
namespace {

constexpr std::size_t kDrawsAtOnce = 8;

class RandomProposer final : public Proposer {
 public:
  explicit RandomProposer(const Context& context) : context_(context) {}

  std::vector<sweep::Point> propose(std::uint64_t ordinal, std::uint32_t attempt) override {
    Rng rng = stream(context_, "random", ordinal, attempt);
    std::vector<sweep::Point> out;
    for (std::size_t i = 0; i < kDrawsAtOnce; ++i) {
      out.push_back(context_.space.decode(context_.space.draw(rng)));
    }
    return out;
  }

  void accept(const sweep::Point&) override {}

 private:
  const Context context_;
};

}  // namespace

std::unique_ptr<Proposer> make_random_proposer(const Context& context) {
  return std::make_unique<RandomProposer>(context);
}

Status check_drawn(const Space& space, const Settings& settings) {
  if (space.size() == 0) {
    return {Code::kInvalidArgument,
            fmt::format("{} search needs at least one axis in [space]", settings.algorithm)};
  }
  if (settings.trials > 0) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("{} search needs search.trials: the number of points to draw",
                      settings.algorithm)};
}

}  // namespace tailor::search
