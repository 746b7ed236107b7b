// Sweeps and their comparison.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/http/routes.h"

namespace tailor::http {
namespace {

constexpr std::uint64_t kCandidatesPageMax = 1'000;
constexpr std::uint64_t kSweepsPageMax = 1'000;
constexpr std::size_t kFileShownBytes = 64 * 1024;

}  // namespace

Result<Json> list_sweeps(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t offset,
                          number_of(request, "offset", 0, std::uint64_t{1} << 40));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t limit,
                          limit_of(request, kSweepsPageMax, kSweepsPageMax));
  TAILOR_ASSIGN_OR_RETURN(const auto sweeps, views.sweep_page(offset, limit));  // newest first
  Json page = page_of(sweeps.sweeps, 0, limit);
  const std::uint64_t given = page.size();
  std::reverse(page.begin(), page.end());
  return Json{{"sweeps", std::move(page)},
              {"total", sweeps.total},
              {"offset", offset},
              {"more", engine::is_more(offset, given, sweeps.total)}};
}

Result<Json> get_sweep(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t offset,
                          number_of(request, "offset", 0, std::uint64_t{1} << 40));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t limit, limit_of(request, 100, kCandidatesPageMax));
  TAILOR_ASSIGN_OR_RETURN(const SweepId id, views.find_sweep(arguments.path[0]));
  TAILOR_ASSIGN_OR_RETURN(const auto view, views.sweep(id));
  TAILOR_ASSIGN_OR_RETURN(const auto candidates, views.store().candidate_page(id, offset, limit));
  TAILOR_ASSIGN_OR_RETURN(const auto row, views.store().sweep(id));
  return Json{{"sweep", to_json(view)},
              {"candidates", page_of(candidates.candidates, 0, limit)},
              {"candidates_total", candidates.total},
              {"file", row.toml.substr(0, kFileShownBytes)},
              {"file_bytes", row.toml.size()}};
}

Result<Json> get_sweep_file(const engine::Views& views, const Arguments& arguments) {
  TAILOR_ASSIGN_OR_RETURN(const SweepId id, views.find_sweep(arguments.path[0]));
  TAILOR_ASSIGN_OR_RETURN(const auto row, views.store().sweep(id));
  return Json{{"name", row.name}, {"file", row.toml}};
}

Result<Json> get_compare(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  analysis::PageRequest page;
  TAILOR_ASSIGN_OR_RETURN(page.order, analysis::parse_row_order(text_of(request, "order")));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t descending, number_of(request, "descending", 0, 1));
  page.descending = descending != 0;
  TAILOR_ASSIGN_OR_RETURN(page.offset, number_of(request, "offset", 0, std::uint64_t{1} << 40));
  TAILOR_ASSIGN_OR_RETURN(page.limit, limit_of(request, 0, kCandidatesPageMax));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t differences, number_of(request, "differences", 1, 1));
  page.differences = differences != 0;
  TAILOR_ASSIGN_OR_RETURN(const SweepId id, views.find_sweep(text_of(request, "sweep")));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t fresh, number_of(request, "fresh", 0, 1));
  engine::Comparisons::Kept kept;
  if (fresh != 0) {
    TAILOR_ASSIGN_OR_RETURN(
        kept.table, views.compare(id, text_of(request, "baseline"), text_of(request, "objective")));
  } else {
    TAILOR_ASSIGN_OR_RETURN(
        kept, views.compare_soon(id, text_of(request, "baseline"), text_of(request, "objective")));
  }
  TAILOR_ASSIGN_OR_RETURN(page.ratio_to,
                          analysis::find_ratio(*kept.table, text_of(request, "ratio_to")));
  Json out = to_json(*kept.table, analysis::page_of(*kept.table, page));
  out["current"] = kept.current;
  out["age_ms"] = kept.age_ms;
  if (!kept.current) {
    out["notes"].push_back(
        fmt::format("this table was computed {:.1f} s ago, and more has happened to the sweep "
                    "since: a new one is being computed (ask again, or with fresh=1 wait for it)",
                    static_cast<double>(kept.age_ms) / 1000.0));
  }
  return out;
}

Result<Json> get_scaling(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  TAILOR_ASSIGN_OR_RETURN(const SweepId id, views.find_sweep(text_of(request, "sweep")));
  TAILOR_ASSIGN_OR_RETURN(const auto table, views.scaling(id, text_of(request, "baseline"),
                                                          text_of(request, "objective")));
  return to_json(*table);
}

}  // namespace tailor::http
