#include "coordinator/engine/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/text.h"
#include "coordinator/core/explain.h"
#include "coordinator/core/step.h"
#include "sweep/spec.h"

namespace tailor::engine {
namespace {

constexpr std::uint64_t kNamesCompared = 1'000;
constexpr std::uint64_t kAllSweeps = 100'000;
// Views of ended sweeps that are kept: about a kilobyte each.
constexpr std::size_t kEndedKept = 4'096;
// Names of candidates are read and kept in chunks of so many; so many chunks, some 20 MB.
constexpr std::uint32_t kNamesChunk = 256;
constexpr std::size_t kChunksKept = 1'024;

/// The step a StartedReport says it resumed at. The text is protobuf JSON, where a 64-bit number
/// may stand in quotes and a name in either case style; anything else reads as "from scratch".
std::int64_t resumed_step_of(std::string_view started_json) {
  for (const std::string_view key : {"\"resumed_step\"", "\"resumedStep\""}) {
    const std::size_t at = started_json.find(key);
    if (at == std::string_view::npos) continue;
    std::string_view rest = started_json.substr(at + key.size());
    const std::size_t digit = rest.find_first_not_of(" \t:\"");
    if (digit == std::string_view::npos) return 0;
    rest = rest.substr(digit);
    std::int64_t step = 0;
    std::from_chars(rest.data(), rest.data() + rest.size(), step);
    return step;
  }
  return 0;
}

}  // namespace

Result<SweepId> Views::find_sweep(std::string_view reference) const {
  if (reference.empty()) return error(Code::kInvalidArgument, "which sweep? Give its name or id");
  if (const auto named = store_.sweep_by_name(reference); named.has_value()) {
    return named->id;
  } else if (named.error().code() != Code::kNotFound) {
    return error(named.error());
  }
  if (const auto id = SweepId::parse(reference); id.has_value()) {
    TAILOR_ASSIGN_OR_RETURN(const storage::SweepRow row, store_.sweep(*id));
    return row.id;
  }
  // Names to compare with: those of the newest, should there be very many.
  TAILOR_ASSIGN_OR_RETURN(const storage::SweepPage page,
                          store_.sweep_page(0, reference == "last" ? 1 : kNamesCompared));
  if (reference == "last") {
    if (page.sweeps.empty()) return error(Code::kNotFound, "there is no sweep yet");
    return page.sweeps.front().id;
  }
  std::vector<std::string_view> names;
  for (const auto& row : page.sweeps) names.push_back(row.name);
  std::string message = fmt::format("no sweep is called \"{}\"", reference);
  if (const std::string near = nearest_name(reference, names); !near.empty()) {
    message += fmt::format("; did you mean \"{}\"?", near);
  }
  return error(Code::kNotFound, std::move(message));
}

Result<WorkerId> Views::find_worker(std::string_view name_or_id) const {
  TAILOR_ASSIGN_OR_RETURN(const std::vector<storage::WorkerRow> rows, store_.workers());
  const auto id = WorkerId::parse(name_or_id);
  const storage::WorkerRow* named = nullptr;
  const storage::WorkerRow* numbered = nullptr;
  for (const auto& row : rows) {
    if (row.name == name_or_id) named = &row;
    if (id.has_value() && row.id == *id) numbered = &row;
  }
  if (named != nullptr && numbered != nullptr && named != numbered) {
    return error(
        Code::kInvalidArgument,
        fmt::format("\"{}\" is the name of worker {} and the id of worker \"{}\": say which by "
                    "\"{}\" or \"{}\"",
                    name_or_id, named->id.to_string(), numbered->name, named->id.to_string(),
                    numbered->name));
  }
  if (named != nullptr) return named->id;
  if (numbered != nullptr) return numbered->id;
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.name);
  std::string message = fmt::format("no worker is called \"{}\"", name_or_id);
  if (const std::string near = nearest_name(name_or_id, names); !near.empty()) {
    message += fmt::format("; did you mean \"{}\"?", near);
  }
  return error(Code::kNotFound, std::move(message));
}

Result<SweepView> Views::stored_sweep(const storage::SweepRow& head) const {
  {
    const std::scoped_lock lock(mutex_);
    const auto kept = ended_.find(head.id);
    if (kept != ended_.end() && kept->second.row.ended_ms == head.ended_ms &&
        kept->second.row.state == head.state && kept->second.row.priority == head.priority) {
      return kept->second;
    }
  }
  TAILOR_ASSIGN_OR_RETURN(const storage::SweepRow row, store_.sweep(head.id));
  const bool ended =
      row.state != storage::SweepState::kRunning && row.state != storage::SweepState::kPaused;
  SweepView view;
  TAILOR_ASSIGN_OR_RETURN(const auto candidates, store_.candidate_page(row.id, 0, 1));
  std::map<storage::TrialState, std::uint64_t> counts;
  using storage::TrialState;
  for (const TrialState state :
       {TrialState::kQueued, TrialState::kRunning, TrialState::kCompleted, TrialState::kStopped,
        TrialState::kFailed, TrialState::kCancelled}) {
    storage::TrialQuery query;
    query.sweep = row.id;
    query.state = state;
    query.limit = 1;
    TAILOR_ASSIGN_OR_RETURN(const storage::TrialPage page, store_.trials(query));
    counts[state] = page.total;
  }
  if (auto read = core::read_ended(row, candidates.total)) {
    read->counts = std::move(counts);
    view = view_of(*read);
  } else {
    view.row = row;
    view.row.toml.clear();
    view.candidates = candidates.total;
    view.counts = std::move(counts);
    view.unreadable = read.error().message();
    view.message = "cannot be read by this version: " + view.unreadable;
  }
  // A sweep that has ended changes no more, unless a trial of it is tried again.
  const bool final =
      ended && view.counts[TrialState::kQueued] == 0 && view.counts[TrialState::kRunning] == 0;
  if (final) {
    const std::scoped_lock lock(mutex_);
    if (ended_.size() >= kEndedKept) ended_.clear();
    ended_.insert_or_assign(row.id, view);
  }
  return view;
}

Result<SweepViewPage> Views::sweep_page(std::uint64_t offset, std::uint64_t limit) const {
  // Looked at before the rows: what leaves memory meanwhile is in them as it ended.
  const auto published = engine_.published();
  TAILOR_ASSIGN_OR_RETURN(const storage::SweepPage page, store_.sweep_page(offset, limit));
  SweepViewPage views;
  views.total = page.total;
  for (const storage::SweepRow& row : page.sweeps) {
    if (const auto view = published->sweep(row.id); view && view->row.state == row.state) {
      views.sweeps.push_back(*view);
      continue;
    }
    TAILOR_ASSIGN_OR_RETURN(SweepView view, stored_sweep(row));
    views.sweeps.push_back(std::move(view));
  }
  return views;
}

Result<std::vector<SweepView>> Views::sweeps() const {
  TAILOR_ASSIGN_OR_RETURN(SweepViewPage page, sweep_page(0, kAllSweeps));
  std::reverse(page.sweeps.begin(), page.sweeps.end());
  return std::move(page.sweeps);
}

Result<SweepView> Views::sweep(SweepId id) const {
  if (const auto view = engine_.published()->sweep(id)) return *view;
  TAILOR_ASSIGN_OR_RETURN(const storage::SweepRow row, store_.sweep(id));
  return stored_sweep(row);
}

Result<std::vector<storage::CandidateRow>> Views::candidates(SweepId sweep) const {
  return store_.candidates(sweep);
}

Result<Views::CandidateName> Views::candidate_name(SweepId sweep, std::uint32_t index) const {
  const std::pair key(sweep, index / kNamesChunk);
  {
    const std::scoped_lock lock(mutex_);
    const auto found = names_.find(key);
    if (found != names_.end() && index % kNamesChunk < found->second.size()) {
      return found->second[index % kNamesChunk];
    }
  }
  TAILOR_ASSIGN_OR_RETURN(const auto page,
                          store_.candidate_page(sweep, index - index % kNamesChunk, kNamesChunk));
  std::vector<CandidateName> names;
  for (const auto& row : page.candidates) names.push_back({row.name, row.parameters_body});
  const CandidateName name =
      index % kNamesChunk < names.size() ? names[index % kNamesChunk] : CandidateName{};
  const std::scoped_lock lock(mutex_);
  if (names_.size() >= kChunksKept) names_.clear();
  names_.insert_or_assign(key, std::move(names));
  return name;
}

Result<std::map<WorkerId, std::string>> Views::worker_names() const {
  TAILOR_ASSIGN_OR_RETURN(const auto rows, store_.workers());
  std::map<WorkerId, std::string> names;
  for (const auto& row : rows) names[row.id] = row.name;
  return names;
}

Result<TrialViewPage> Views::trials(const storage::TrialQuery& query) const {
  TAILOR_ASSIGN_OR_RETURN(storage::TrialPage page, store_.trials(query));
  TrialViewPage view;
  view.total = page.total;
  for (auto& row : page.trials) {
    TAILOR_ASSIGN_OR_RETURN(CandidateName name, candidate_name(row.sweep, row.candidate));
    view.trials.push_back({std::move(row), std::move(name.name), name.parameters_body});
  }
  return view;
}

Result<TrialDetail> Views::trial(TrialId id) const {
  TrialDetail detail;
  TAILOR_ASSIGN_OR_RETURN(detail.trial.row, store_.trial(id));
  TAILOR_ASSIGN_OR_RETURN(detail.candidate,
                          store_.candidate(detail.trial.row.sweep, detail.trial.row.candidate));
  detail.trial.candidate_name = detail.candidate.name;
  detail.trial.parameters_body = detail.candidate.parameters_body;
  TAILOR_ASSIGN_OR_RETURN(auto attempts, store_.attempts(id));
  TAILOR_ASSIGN_OR_RETURN(auto workers, worker_names());
  for (auto& row : attempts) {
    AttemptView attempt;
    attempt.worker_name = workers[row.worker];
    attempt.resumed_step = resumed_step_of(row.started_json);
    attempt.row = std::move(row);
    detail.attempts.push_back(std::move(attempt));
  }
  TAILOR_ASSIGN_OR_RETURN(detail.checkpoints, store_.checkpoints(id));
  TAILOR_ASSIGN_OR_RETURN(detail.metrics, store_.metric_names(id));
  TAILOR_ASSIGN_OR_RETURN(detail.profile, store_.profile(id));
  TAILOR_ASSIGN_OR_RETURN(const auto measurement, store_.measurement(id));
  if (measurement) detail.measure_failure = measurement->failure;
  TAILOR_ASSIGN_OR_RETURN(const auto pruned, store_.pruned(id));
  detail.pruned = pruned.value_or(storage::PrunedTrial{});
  return detail;
}

Result<storage::Series> Views::series(TrialId trial, std::string_view metric,
                                      std::size_t points_max) const {
  TAILOR_ASSIGN_OR_RETURN(const storage::TrialRow row, store_.trial(trial));
  return store_.series(row.id, metric, points_max);
}

Result<LogPiece> Views::log(TrialId trial, std::uint32_t attempt, std::uint64_t offset,
                            std::size_t bytes_max) const {
  TAILOR_ASSIGN_OR_RETURN(const storage::TrialRow row, store_.trial(trial));
  LogPiece piece;
  piece.offset = piece.next_offset = offset;
  // Read before the attempts: a final trial gets no further one.
  piece.trial_ended = storage::is_final(row.state);
  TAILOR_ASSIGN_OR_RETURN(const auto attempts, store_.attempts(row.id));
  piece.attempts = static_cast<std::uint32_t>(attempts.size());
  if (attempts.empty() && attempt == 0) {
    piece.ended = piece.trial_ended;
    return piece;  // not started yet: nothing, and more may come
  }
  const storage::AttemptRow* chosen = nullptr;
  for (const auto& candidate : attempts) {
    if (attempt == 0 || candidate.id.number == attempt) chosen = &candidate;
  }
  if (chosen == nullptr) {
    return error(Code::kNotFound, fmt::format("trial {} has no attempt {}; it made {}",
                                              trial.to_string(), attempt, attempts.size()));
  }
  TAILOR_ASSIGN_OR_RETURN(piece.bytes, store_.log(chosen->id, offset, bytes_max));
  if (piece.bytes.empty() && offset < chosen->log_bytes) {
    // What was asked for was not kept: go on behind it.
    TAILOR_ASSIGN_OR_RETURN(const auto next, store_.log_from(chosen->id, offset));
    piece.offset = next.value_or(chosen->log_bytes);
    TAILOR_ASSIGN_OR_RETURN(piece.bytes, store_.log(chosen->id, piece.offset, bytes_max));
  }
  piece.attempt = chosen->id.number;
  piece.next_offset = piece.offset + piece.bytes.size();
  piece.ended =
      chosen->state == storage::AttemptState::kEnded && piece.next_offset >= chosen->log_bytes;
  if (chosen->state == storage::AttemptState::kEnded)
    piece.end_class = protocol::end_class_name(chosen->end_class);
  if (offset == 0) {  // whoever goes on reading knows it
    TAILOR_ASSIGN_OR_RETURN(auto names, worker_names());
    piece.worker_name = names[chosen->worker];
  }
  return piece;
}

Result<LogPiece> Views::log_tail(TrialId trial, std::size_t bytes_max) const {
  TAILOR_ASSIGN_OR_RETURN(const auto attempts, store_.attempts(trial));
  std::uint64_t offset = 0;
  if (!attempts.empty() && attempts.back().log_bytes > bytes_max) {
    offset = attempts.back().log_bytes - bytes_max;
  }
  return log(trial, attempts.empty() ? 0 : attempts.back().id.number, offset, bytes_max);
}

Result<std::string> Views::chosen_baseline(SweepId sweep, std::string_view baseline) const {
  std::string chosen(baseline);
  TAILOR_ASSIGN_OR_RETURN(const SweepView view, this->sweep(sweep));
  if (chosen.empty()) chosen = view.baseline;
  if (view.candidates == 0) {
    return error(Code::kFailedPrecondition,
                 fmt::format("sweep {} has no candidate to compare{}{}", sweep.to_string(),
                             view.message.empty() ? " yet" : ": ", view.message));
  }
  return chosen;
}

Result<std::shared_ptr<const analysis::ComparisonTable>> Views::compare(
    SweepId sweep, std::string_view baseline, std::string_view objective) const {
  TAILOR_ASSIGN_OR_RETURN(const std::string chosen, chosen_baseline(sweep, baseline));
  return comparisons_.get(sweep, chosen, objective);
}

Result<Comparisons::Kept> Views::compare_soon(SweepId sweep, std::string_view baseline,
                                              std::string_view objective) const {
  constexpr std::chrono::milliseconds kPatience(100);
  TAILOR_ASSIGN_OR_RETURN(const std::string chosen, chosen_baseline(sweep, baseline));
  return comparisons_.get_or_kept(sweep, chosen, objective, kPatience);
}

Result<std::shared_ptr<const analysis::ScalingTable>> Views::scaling(
    SweepId sweep, std::string_view baseline, std::string_view objective) const {
  return comparisons_.scaling(sweep, baseline, objective);
}

Result<core::Why> Views::why(TrialId trial) const {
  TAILOR_ASSIGN_OR_RETURN(const storage::TrialRow row, store_.trial(trial));
  if (storage::is_final(row.state)) return core::why_ended(row);
  TAILOR_ASSIGN_OR_RETURN(const core::Why why,
                          engine_.ask([id = row.id](const core::State& state, core::Now now) {
                            return core::why(state, id, now);
                          }));
  if (why.code == core::WhyCode::kUnknown) {  // it has ended since its row was read
    TAILOR_ASSIGN_OR_RETURN(const storage::TrialRow ended, store_.trial(trial));
    if (storage::is_final(ended.state)) return core::why_ended(ended);
  }
  return why;
}

std::vector<WorkerView> Views::workers() const {
  std::vector<WorkerView> views;
  const auto published = engine_.published();  // keeps the list while it is walked
  for (const auto& view : *published->workers) views.push_back(*view);
  return views;
}

Totals Views::totals() const { return engine_.published()->totals; }

}  // namespace tailor::engine
