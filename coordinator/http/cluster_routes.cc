// Workers and events.
#include <optional>

#include "coordinator/http/routes.h"

namespace tailor::http {
namespace {

constexpr std::uint64_t kEventsPageMax = 1'000;
constexpr std::uint64_t kWorkersPageMax = 1'000;

/// Id of the newest event, by galloping and bisection: about 2 log2 of it short reads.
Result<std::uint64_t> last_event(const storage::Store& store) {
  std::uint64_t known = 0;  // an event with a greater id exists above all smaller values
  std::uint64_t stride = 1;
  for (;;) {
    TAILOR_ASSIGN_OR_RETURN(const auto rows, store.events(known + stride - 1, 1));
    if (rows.empty()) break;
    known = rows.front().id;
    stride *= 2;
  }
  std::uint64_t none_after = known + stride - 1;  // no event has a greater id
  while (known < none_after) {
    const std::uint64_t middle = known + (none_after - known) / 2;
    TAILOR_ASSIGN_OR_RETURN(const auto rows, store.events(middle, 1));
    if (rows.empty()) {
      none_after = middle;
    } else {
      known = rows.front().id;
    }
  }
  return known;
}

/// The id behind which the last `tail` events are: of a sweep or a trial by bisection, as their
/// number behind an id only falls; of all by ids, which have gaps only where some were pruned.
Result<std::uint64_t> before_last(const storage::Store& store, std::uint64_t tail,
                                  std::optional<SweepId> sweep, std::optional<TrialId> trial) {
  const auto enough_after = [&](std::uint64_t id) -> Result<bool> {
    TAILOR_ASSIGN_OR_RETURN(const auto rows, store.events(id, tail, sweep, trial));
    return rows.size() == tail;
  };
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t last, last_event(store));
  if (!sweep && !trial) return last > tail ? last - tail : 0;
  TAILOR_ASSIGN_OR_RETURN(const bool enough, enough_after(0));
  if (!enough) return 0;
  std::uint64_t low = 0;      // behind it are `tail` or more
  std::uint64_t high = last;  // behind it are fewer
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    TAILOR_ASSIGN_OR_RETURN(const bool still, enough_after(middle));
    (still ? low : high) = middle;
  }
  return low;
}

}  // namespace

Result<Json> list_workers(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t offset,
                          number_of(request, "offset", 0, std::uint64_t{1} << 40));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t limit,
                          limit_of(request, kWorkersPageMax, kWorkersPageMax));
  const auto workers = views.workers();
  Json page = page_of(workers, offset, limit);
  const std::uint64_t given = page.size();
  return Json{{"workers", std::move(page)},
              {"total", workers.size()},
              {"offset", offset},
              {"more", engine::is_more(offset, given, workers.size())}};
}

Result<Json> list_events(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  TAILOR_ASSIGN_OR_RETURN(std::uint64_t after, number_of(request, "after", 0, ~0ull >> 1));
  TAILOR_ASSIGN_OR_RETURN(std::uint64_t limit, limit_of(request, 100, kEventsPageMax));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t tail, number_of(request, "tail", 0, kEventsPageMax));
  std::optional<SweepId> sweep;
  std::optional<TrialId> trial;
  if (const auto text = text_of(request, "sweep"); !text.empty()) {
    TAILOR_ASSIGN_OR_RETURN(sweep, views.find_sweep(text));
  }
  if (const auto text = text_of(request, "trial"); !text.empty()) {
    TAILOR_ASSIGN_OR_RETURN(trial, trial_of(text));
  }
  if (tail > 0) {
    if (!text_of(request, "after").empty() || !text_of(request, "limit").empty()) {
      return error(Code::kInvalidArgument, "tail goes with neither after nor limit");
    }
    TAILOR_ASSIGN_OR_RETURN(after, before_last(views.store(), tail, sweep, trial));
    limit = tail;
  }
  TAILOR_ASSIGN_OR_RETURN(const auto rows, views.store().events(after, limit, sweep, trial));
  Json page = page_of(rows, 0, limit);
  const std::uint64_t last = page.empty() ? after : page.back().at("id").get<std::uint64_t>();
  return Json{{"events", std::move(page)}, {"last", last}};
}

}  // namespace tailor::http
