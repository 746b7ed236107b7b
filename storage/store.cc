// What every store does alike.
#include "storage/store.h"

#include <fmt/format.h>

#include <numeric>

namespace tailor::storage {
namespace {

constexpr std::uint64_t kTrialLimitMax = 10'000;

}  // namespace

std::uint64_t TrialCounts::total() const {
  return std::accumulate(by_state.begin(), by_state.end(), std::uint64_t{0});
}

Status check_trial_query(const TrialQuery& query) {
  const std::string& order = query.order;
  if (order != "id" && order != "objective" && order != "state" && order != "candidate") {
    return Status(
        Code::kInvalidArgument,
        fmt::format("trials cannot be ordered by `{}`; allowed: id, objective, state, candidate",
                    order));
  }
  if (query.limit > kTrialLimitMax) {
    return Status(Code::kInvalidArgument,
                  fmt::format("limit {} is over {}: ask for pages", query.limit, kTrialLimitMax));
  }
  if (query.after && order != "id") return after_without_id();
  return {};
}

}  // namespace tailor::storage
