#include "coordinator/engine/recall.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

namespace tailor::engine {
namespace {

constexpr std::uint64_t kRowsPerPage = 10'000;
// Each try follows a sweep that the request is about and that came and went meanwhile: more than a
// few mean a bug.
constexpr std::uint32_t kTriesMax = 50;

class Reader {
 public:
  explicit Reader(const storage::Store& store) : store_(store) {}

  core::Recalled recalled;

  Status named(const std::string& name) {
    auto row = store_.sweep_by_name(name);
    if (!row) return missing_is_fine(row.error());
    TAILOR_ASSIGN_OR_RETURN(const auto candidates, store_.candidate_page(row->id, 0, 1));
    storage::TrialQuery query;
    query.sweep = row->id;
    query.limit = 1;
    TAILOR_ASSIGN_OR_RETURN(const auto trials, store_.trials(query));
    recalled.candidates = candidates.total;
    recalled.trials = trials.total;
    recalled.rows.sweeps.push_back(std::move(*row));
    return Status::ok();
  }

  Status sweep(SweepId id) {
    auto row = store_.sweep(id);
    if (!row) return missing_is_fine(row.error());
    recalled.rows.sweeps.push_back(std::move(*row));
    return Status::ok();
  }

  Status whole_sweep(SweepId id, bool for_retry) {
    if (!whole_.insert(id).second) return Status::ok();
    TAILOR_RETURN_IF_ERROR(sweep(id));
    TAILOR_ASSIGN_OR_RETURN(auto candidates, store_.candidates(id));
    std::move(candidates.begin(), candidates.end(), std::back_inserter(recalled.rows.candidates));
    TAILOR_ASSIGN_OR_RETURN(auto schedules, store_.schedules(id));
    std::move(schedules.begin(), schedules.end(), std::back_inserter(recalled.rows.schedules));
    storage::TrialQuery query;
    query.sweep = id;
    query.limit = kRowsPerPage;
    query.count = false;
    query.after = TrialId{};
    for (;;) {
      TAILOR_ASSIGN_OR_RETURN(storage::TrialPage page, store_.trials(query));
      for (storage::TrialRow& row : page.trials) {
        const bool again = row.state == storage::TrialState::kFailed ||
                           row.state == storage::TrialState::kCancelled;
        if (for_retry && again) TAILOR_RETURN_IF_ERROR(history(row));
        recalled.rows.trials.push_back(std::move(row));
      }
      if (page.trials.size() < query.limit) return Status::ok();
      query.after = recalled.rows.trials.back().id;
    }
  }

  Status measurement(const std::string& key) {
    TAILOR_ASSIGN_OR_RETURN(auto found, store_.measured(key));
    if (found) recalled.measured.push_back(*std::move(found));
    return Status::ok();
  }

  Status trial(TrialId id, bool with_sweep, bool for_retry) {
    auto row = store_.trial(id);
    if (!row) return missing_is_fine(row.error());
    if (with_sweep) return whole_sweep(row->sweep, for_retry);
    if (candidates_.insert({row->sweep, row->candidate}).second) {
      TAILOR_ASSIGN_OR_RETURN(auto candidate, store_.candidate(row->sweep, row->candidate));
      recalled.rows.candidates.push_back(std::move(candidate));
    }
    TAILOR_RETURN_IF_ERROR(history(*row));
    recalled.rows.trials.push_back(std::move(*row));
    return Status::ok();
  }

 private:
  static Status missing_is_fine(const Status& status) {
    return status.code() == Code::kNotFound ? Status::ok() : status;
  }

  Status history(const storage::TrialRow& row) {
    if (row.attempts == 0) return Status::ok();
    TAILOR_ASSIGN_OR_RETURN(auto attempts, store_.attempts(row.id));
    std::move(attempts.begin(), attempts.end(), std::back_inserter(recalled.rows.attempts));
    TAILOR_ASSIGN_OR_RETURN(const auto checkpoints, store_.checkpoints(row.id));
    const auto newest =
        std::max_element(checkpoints.begin(), checkpoints.end(), [](const auto& a, const auto& b) {
          return std::pair(a.attempt.number, a.step) < std::pair(b.attempt.number, b.step);
        });
    if (newest != checkpoints.end()) recalled.rows.checkpoints.push_back(*newest);
    return Status::ok();
  }

  const storage::Store& store_;
  std::set<SweepId> whole_;
  std::set<std::pair<SweepId, std::uint32_t>> candidates_;
};

}  // namespace

Result<core::Recalled> read_rows(const storage::Store& store, const core::RowsWanted& wanted) {
  Reader reader(store);
  reader.recalled.as_of = wanted.as_of;
  reader.recalled.asked.insert(wanted.trials.begin(), wanted.trials.end());
  if (!wanted.sweep_name.empty()) TAILOR_RETURN_IF_ERROR(reader.named(wanted.sweep_name));
  for (const std::string& key : wanted.measurements) {
    TAILOR_RETURN_IF_ERROR(reader.measurement(key));
  }
  if (wanted.sweep.valid()) TAILOR_RETURN_IF_ERROR(reader.sweep(wanted.sweep));
  if (wanted.whole_sweep.valid()) {
    TAILOR_RETURN_IF_ERROR(reader.whole_sweep(wanted.whole_sweep, wanted.for_retry));
  }
  for (const TrialId id : wanted.trials) {
    TAILOR_RETURN_IF_ERROR(reader.trial(id, wanted.sweeps_of_trials, wanted.for_retry));
  }
  return std::move(reader.recalled);
}

bool attach_rows(core::Event& event, core::Recalled rows) {
  return std::visit(
      [&rows](auto& e) {
        if constexpr (requires { e.recalled; }) {
          rows.tries = e.recalled == nullptr ? 1 : e.recalled->tries + 1;
          e.recalled = std::make_shared<const core::Recalled>(std::move(rows));
          return true;
        } else {
          return false;
        }
      },
      event);
}

Recaller::Reply Recaller::wrap(const core::Event& event, Reply reply) {
  return
      [this, event, reply = std::move(reply)](const Status& status, const core::ReplyBody& body) {
        const auto* wanted = std::get_if<core::RowsWanted>(&body);
        if (wanted == nullptr) return reply(status, body);
        ++pending_;
        const bool posted = pool_.post([this, event, wanted = *wanted, reply] {
          again(event, wanted, reply);
          --pending_;
          done_();
        });
        if (posted) return;
        --pending_;
        reply({Code::kUnavailable, "too many requests wait; try again later"}, {});
      };
}

void Recaller::again(core::Event event, const core::RowsWanted& wanted, const Reply& reply) {
  auto rows = read_rows(store_, wanted);
  if (!rows) return reply(rows.error(), {});
  const std::uint32_t tries = std::visit(
      [](const auto& e) -> std::uint32_t {
        if constexpr (requires { e.recalled; }) return e.recalled ? e.recalled->tries : 0;
        return 0;
      },
      event);
  if (tries >= kTriesMax || !attach_rows(event, std::move(*rows))) {
    return reply({Code::kAborted, "what this is about changes all the time; try again"}, {});
  }
  post_(std::move(event), reply);
}

}  // namespace tailor::engine
