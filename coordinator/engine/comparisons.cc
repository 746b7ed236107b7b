#include "coordinator/engine/comparisons.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json.h"

namespace tailor::engine {
namespace {

/// Tables that are kept: one of 10,000 candidates x 25 seeds takes 10 MB.
constexpr std::size_t kTablesMax = 8;
constexpr std::uint64_t kTrialsPage = 10'000;

std::string text_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// What cannot be read is not known.
analysis::Provenance provenance_of(const storage::StartRow& row) {
  analysis::Provenance provenance;
  provenance.trial = row.trial;
  const auto started = parse_json(row.started_json);
  if (!started.has_value() || !started->is_object()) return provenance;
  provenance.data_hash = text_in(*started, "data_hash");
  provenance.version = text_in(*started, "version");
  return provenance;
}

Result<std::vector<storage::TrialRow>> trials_of(const storage::Store& store, SweepId sweep) {
  storage::TrialQuery query;
  query.sweep = sweep;
  query.limit = kTrialsPage;
  query.count = false;
  std::vector<storage::TrialRow> trials;
  for (;;) {
    TAILOR_ASSIGN_OR_RETURN(storage::TrialPage page, store.trials(query));
    const bool last = page.trials.size() < kTrialsPage;
    std::move(page.trials.begin(), page.trials.end(), std::back_inserter(trials));
    if (last) return trials;
    query.after = trials.back().id;
  }
}

}  // namespace

std::uint64_t Comparisons::computed() const {
  const std::scoped_lock lock(mutex_);
  return computed_;
}

std::shared_ptr<const analysis::ComparisonTable> Comparisons::kept(
    SweepId sweep, std::string_view baseline, std::string_view objective) const {
  const std::scoped_lock lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.sweep == sweep && entry.baseline == baseline && entry.objective == objective) {
      return entry.table;
    }
  }
  return nullptr;
}

void Comparisons::keep(Entry entry) {
  const std::scoped_lock lock(mutex_);
  ++computed_;
  std::erase_if(entries_, [&](const Entry& old) {
    return old.sweep == entry.sweep && old.baseline == entry.baseline &&
           old.objective == entry.objective;
  });
  entries_.push_back(std::move(entry));
  if (entries_.size() > kTablesMax) entries_.pop_front();
}

Result<std::uint64_t> Comparisons::newest_event(SweepId sweep, std::uint64_t known) const {
  // Galloping, then bisection: about 2 log2 of the distance short reads.
  std::uint64_t stride = 1;
  for (;;) {
    TAILOR_ASSIGN_OR_RETURN(const auto rows, store_.events(known + stride - 1, 1, sweep));
    if (rows.empty()) break;
    known = rows.front().id;
    stride *= 2;
  }
  std::uint64_t none_after = known + stride - 1;
  while (known < none_after) {
    const std::uint64_t middle = known + (none_after - known) / 2;
    TAILOR_ASSIGN_OR_RETURN(const auto rows, store_.events(middle, 1, sweep));
    if (rows.empty()) {
      none_after = middle;
    } else {
      known = rows.front().id;
    }
  }
  return known;
}

Result<analysis::ComparisonTable> Comparisons::compute(SweepId sweep, std::string_view baseline,
                                                       std::string_view objective) const {
  TAILOR_ASSIGN_OR_RETURN(const auto candidates, store_.candidates(sweep));
  if (candidates.empty()) {
    return error(Code::kFailedPrecondition,
                 fmt::format("sweep {} has no candidate to compare yet", sweep.to_string()));
  }
  TAILOR_ASSIGN_OR_RETURN(const auto trials, trials_of(store_, sweep));
  TAILOR_ASSIGN_OR_RETURN(const auto starts, store_.starts(sweep));
  std::vector<analysis::Provenance> provenance;
  provenance.reserve(starts.size());
  for (const storage::StartRow& row : starts) provenance.push_back(provenance_of(row));
  return analysis::compare(candidates, trials, provenance, baseline, objective);
}

Result<Comparisons::Known> Comparisons::known(SweepId sweep, std::string_view baseline,
                                              std::string_view objective) const {
  Known known{kept(sweep, baseline, objective), false};
  if (known.table == nullptr) return known;
  TAILOR_ASSIGN_OR_RETURN(const auto later, store_.events(known.table->as_of, 1, sweep));
  known.holds = later.empty();
  return known;
}

Result<std::shared_ptr<const analysis::ComparisonTable>> Comparisons::get(
    SweepId sweep, std::string_view baseline, std::string_view objective) {
  TAILOR_ASSIGN_OR_RETURN(Known now, known(sweep, baseline, objective));
  if (now.holds) return now.table;
  const std::scoped_lock computing(computing_);
  // Whoever had the lock before may have computed just this one.
  TAILOR_ASSIGN_OR_RETURN(now, known(sweep, baseline, objective));
  if (now.holds) return now.table;
  // The event first: what happens while the rows are read makes the table old, not wrong.
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t as_of,
                          newest_event(sweep, now.table == nullptr ? 0 : now.table->as_of));
  TAILOR_ASSIGN_OR_RETURN(analysis::ComparisonTable fresh, compute(sweep, baseline, objective));
  fresh.as_of = as_of;
  auto table = std::make_shared<const analysis::ComparisonTable>(std::move(fresh));
  keep({sweep, std::string(baseline), std::string(objective), table});
  return table;
}

}  // namespace tailor::engine
