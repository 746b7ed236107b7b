#include "coordinator/engine/comparisons.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json.h"
#include "coordinator/core/json.h"
#include "model/shape/architecture.h"
#include "model/shape/count.h"
#include "sweep/candidate.h"
#include "sweep/compare_keys.h"

namespace tailor::engine {
namespace {

/// Tables that are kept: one of 10,000 candidates x 25 seeds takes 10 MB.
constexpr std::size_t kTablesMax = 8;
constexpr std::uint64_t kTrialsPage = 10'000;
constexpr std::size_t kRenewalsMax = 64;

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

Result<std::vector<analysis::Provenance>> provenance_of(const storage::Store& store,
                                                        SweepId sweep) {
  TAILOR_ASSIGN_OR_RETURN(const auto starts, store.starts(sweep));
  std::vector<analysis::Provenance> provenance;
  provenance.reserve(starts.size());
  const std::string* text = nullptr;
  for (const storage::StartRow& row : starts) {
    // Most trials of a sweep say the same words.
    if (text != nullptr && *text == row.started_json) {
      provenance.push_back(provenance.back());
      provenance.back().trial = row.trial;
      continue;
    }
    text = &row.started_json;
    provenance.push_back(provenance_of(row));
  }
  return provenance;
}

/// The row that trains `named`: of its name, or the candidate that has the same architecture and
/// recipe and is trained once for both. Null = none.
const storage::CandidateRow* row_of(const sweep::Spec& spec, const sweep::NamedCandidate& named,
                                    const std::vector<storage::CandidateRow>& rows) {
  for (const storage::CandidateRow& row : rows) {
    if (row.name == named.name) return &row;
  }
  const auto resolved = sweep::resolve(spec, named.name, named.overrides);
  if (!resolved) return nullptr;
  for (const storage::CandidateRow& row : rows) {
    if (row.hash == resolved->hash) return &row;
  }
  return nullptr;
}

/// Sizes as they were stored: the architecture is the row's, only the recipe comes from the file.
Result<analysis::ScalingPoint> point_of(const sweep::Spec& spec, const storage::CandidateRow& row) {
  TAILOR_ASSIGN_OR_RETURN(sweep::Point point, core::point_from_json(row.point_json));
  TAILOR_ASSIGN_OR_RETURN(auto architecture, shape::architecture_from_json(row.architecture_json));
  TAILOR_ASSIGN_OR_RETURN(
      const sweep::Candidate candidate,
      sweep::restore(spec, row.name, std::move(point), std::move(architecture), row.hash));
  analysis::ScalingPoint out;
  out.name = row.name;
  out.candidate = row.index;
  out.parameters_body = row.parameters_body;
  out.flops = shape::training_flops_per_token(candidate.architecture, spec.data.sequence_length) *
              static_cast<double>(candidate.train.tokens);
  return out;
}

Result<analysis::ScalingDesign> design_of(const sweep::Spec& spec,
                                          const std::vector<storage::CandidateRow>& rows) {
  analysis::ScalingDesign design;
  design.families = spec.scaling.families;
  design.sizes = spec.scaling.sizes;
  design.baseline = spec.scaling.baseline;
  for (const std::string& family : design.families) {
    for (const std::string& size : design.sizes) {
      const std::string name = sweep::scaling_candidate_name(family, size);
      const auto named =
          std::find_if(spec.candidates.begin(), spec.candidates.end(),
                       [&](const auto& candidate) { return candidate.name == name; });
      const storage::CandidateRow* row =
          named == spec.candidates.end() ? nullptr : row_of(spec, *named, rows);
      analysis::ScalingPoint point;
      point.name = name;
      if (row != nullptr) {
        TAILOR_ASSIGN_OR_RETURN(point, point_of(spec, *row));
      }
      design.points.push_back(std::move(point));
    }
  }
  return design;
}

}  // namespace

Comparisons::Comparisons(const storage::Store& store) : store_(store), renewals_(1, kRenewalsMax) {}

std::uint64_t Comparisons::computed() const {
  const std::scoped_lock lock(mutex_);
  return computed_;
}

template <typename Table>
void Comparisons::keep(Entries<Table>& entries, Entry<Table> entry) {
  const std::scoped_lock lock(mutex_);
  ++computed_;
  std::erase_if(entries, [&](const Entry<Table>& old) {
    return old.sweep == entry.sweep && old.baseline == entry.baseline &&
           old.objective == entry.objective;
  });
  entries.push_back(std::move(entry));
  if (entries.size() > kTablesMax) entries.pop_front();
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
  TAILOR_ASSIGN_OR_RETURN(const storage::SweepRow row, store_.sweep(sweep));
  // Also of a file that this version cannot read otherwise.
  const auto file = sweep::compare_of_file(row.toml, row.name);
  analysis::CompareSettings settings;
  if (file) settings = {file->primary, file->smallest_effect};
  TAILOR_ASSIGN_OR_RETURN(const auto trials, trials_of(store_, sweep));
  TAILOR_ASSIGN_OR_RETURN(const auto provenance, provenance_of(store_, sweep));
  TAILOR_ASSIGN_OR_RETURN(
      analysis::ComparisonTable table,
      analysis::compare(candidates, trials, provenance, baseline, objective, settings));
  if (!file) {
    table.notes.push_back(
        "[compare] of the sweep file cannot be read, so no comparison counts as "
        "the primary one: " +
        file.error().message());
  }
  return table;
}

Result<analysis::ScalingTable> Comparisons::compute_scaling(SweepId sweep,
                                                            std::string_view baseline,
                                                            std::string_view objective) const {
  TAILOR_ASSIGN_OR_RETURN(const storage::SweepRow row, store_.sweep(sweep));
  const auto spec = sweep::parse(row.toml, row.name, row.base_dir, sweep::Origin::kStored);
  if (!spec) {
    return error(Code::kFailedPrecondition,
                 fmt::format("this version cannot read the file of sweep {}: {}", row.name,
                             spec.error().message()));
  }
  TAILOR_ASSIGN_OR_RETURN(const auto candidates, store_.candidates(sweep));
  TAILOR_ASSIGN_OR_RETURN(const analysis::ScalingDesign design, design_of(*spec, candidates));
  TAILOR_ASSIGN_OR_RETURN(const auto trials, trials_of(store_, sweep));
  TAILOR_ASSIGN_OR_RETURN(const auto provenance, provenance_of(store_, sweep));
  return analysis::compare_scaling(design, trials, provenance, baseline, objective);
}

template <typename Table>
Result<Comparisons::Known<Table>> Comparisons::known(const Entries<Table>& entries, SweepId sweep,
                                                     std::string_view baseline,
                                                     std::string_view objective) const {
  Known<Table> known;
  std::int64_t ended_ms = 0;
  {
    const std::scoped_lock lock(mutex_);
    for (const Entry<Table>& entry : entries) {
      if (entry.sweep == sweep && entry.baseline == baseline && entry.objective == objective) {
        known.table = entry.table;
        ended_ms = entry.ended_ms;
        known.read_ms = entry.read_ms;
      }
    }
  }
  if (known.table == nullptr) return known;
  TAILOR_ASSIGN_OR_RETURN(const auto later, store_.events(known.table->as_of, 1, sweep));
  TAILOR_ASSIGN_OR_RETURN(const storage::SweepRow row, store_.sweep(sweep));
  known.holds = later.empty() && row.ended_ms == ended_ms;
  return known;
}

template <typename Table, typename Compute>
Result<std::shared_ptr<const Table>> Comparisons::get_or_compute(Entries<Table>& entries,
                                                                 SweepId sweep,
                                                                 std::string_view baseline,
                                                                 std::string_view objective,
                                                                 const Compute& make) {
  TAILOR_ASSIGN_OR_RETURN(Known<Table> now, known(entries, sweep, baseline, objective));
  if (now.holds) return now.table;
  const std::scoped_lock computing(computing_);
  // Whoever had the lock before may have computed just this one.
  TAILOR_ASSIGN_OR_RETURN(now, known(entries, sweep, baseline, objective));
  if (now.holds) return now.table;
  const MonotonicMs read_ms = clock_.now_ms();
  // The event first: what happens while the rows are read makes the table old, not wrong.
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t as_of,
                          newest_event(sweep, now.table == nullptr ? 0 : now.table->as_of));
  const auto row = store_.sweep(sweep);  // what is wrong with it, `make` says
  TAILOR_ASSIGN_OR_RETURN(Table fresh, make());
  fresh.as_of = as_of;
  auto table = std::make_shared<const Table>(std::move(fresh));
  keep(entries, Entry<Table>{sweep, std::string(baseline), std::string(objective),
                             row ? row->ended_ms : 0, table, read_ms});
  return table;
}

Result<std::shared_ptr<const analysis::ComparisonTable>> Comparisons::get(
    SweepId sweep, std::string_view baseline, std::string_view objective) {
  return get_or_compute(entries_, sweep, baseline, objective,
                        [&] { return compute(sweep, baseline, objective); });
}

Comparisons::Renewed Comparisons::renew(SweepId sweep, std::string_view baseline,
                                        std::string_view objective) {
  const std::tuple key(sweep, std::string(baseline), std::string(objective));
  const std::scoped_lock lock(mutex_);
  const auto under_way = renewing_.find(key);
  if (under_way != renewing_.end()) return under_way->second;
  const auto promise = std::make_shared<std::promise<Status>>();
  Renewed renewed = promise->get_future().share();
  const bool posted = renewals_.post([this, key, promise] {
    const auto& [id, of, what] = key;
    const auto made = get(id, of, what);
    {
      const std::scoped_lock done(mutex_);
      renewing_.erase(key);
    }
    promise->set_value(status_of(made));
  });
  if (!posted) return {};
  renewing_.emplace(key, renewed);
  return renewed;
}

Result<Comparisons::Kept> Comparisons::get_or_kept(SweepId sweep, std::string_view baseline,
                                                   std::string_view objective,
                                                   std::chrono::milliseconds patience) {
  const auto kept = [this](const Known<analysis::ComparisonTable>& now) {
    return Kept{now.table, now.holds, clock_.now_ms() - now.read_ms};
  };
  TAILOR_ASSIGN_OR_RETURN(auto now, known(entries_, sweep, baseline, objective));
  if (now.holds) return kept(now);
  if (now.table == nullptr) {
    TAILOR_ASSIGN_OR_RETURN(auto table, get(sweep, baseline, objective));
    return Kept{std::move(table), true, 0};
  }
  const Renewed renewed = renew(sweep, baseline, objective);
  if (!renewed.valid() || renewed.wait_for(patience) != std::future_status::ready) return kept(now);
  TAILOR_RETURN_IF_ERROR(Status(renewed.get()));
  TAILOR_ASSIGN_OR_RETURN(auto fresh, known(entries_, sweep, baseline, objective));
  // Others' tables may have taken its place meanwhile.
  return kept(fresh.table == nullptr ? now : fresh);
}

Result<std::shared_ptr<const analysis::ScalingTable>> Comparisons::scaling(
    SweepId sweep, std::string_view baseline, std::string_view objective) {
  return get_or_compute(scalings_, sweep, baseline, objective,
                        [&] { return compute_scaling(sweep, baseline, objective); });
}

}  // namespace tailor::engine
