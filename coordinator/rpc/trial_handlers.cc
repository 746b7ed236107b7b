// Trials: listed, shown, explained; their curves and logs. (Controlled: trial_control.cc.)
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "coordinator/rpc/call.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/paging.h"
#include "coordinator/rpc/pull_stream.h"
#include "protocol/limits.h"

namespace tailor::rpc {
namespace {

constexpr std::uint64_t kTrialsPage = 100;
constexpr std::uint64_t kLogBytesMax = 1u << 20;
constexpr std::uint64_t kExportTrials = 1'000;  // read at a time

/// The part of `list` that a request with `offset` and `limit` means, counted from its end.
template <typename Row>
std::span<const Row> newest(const std::vector<Row>& list, std::uint64_t offset,
                            std::uint64_t limit) {
  const std::uint64_t end = list.size() - std::min<std::uint64_t>(offset, list.size());
  const std::uint64_t first = end - std::min(limit, end);
  return std::span<const Row>(list).subspan(first, end - first);
}

v1::GetTrialResponse trial_page(const engine::TrialDetail& detail, std::uint64_t offset,
                                std::uint64_t limit) {
  v1::GetTrialResponse out;
  *out.mutable_trial() = to_proto(detail.trial);
  *out.mutable_candidate() = to_proto(detail.candidate);
  PageBudget budget;
  // Newest first, so that these are there when there is no room for all; then in order again.
  const auto attempts = newest(detail.attempts, offset, limit);
  for (auto it = attempts.rbegin(); it != attempts.rend(); ++it) {
    v1::Attempt attempt = to_proto(*it);
    if (!budget.take(attempt)) break;
    out.add_attempts()->Swap(&attempt);
  }
  std::reverse(out.mutable_attempts()->pointer_begin(), out.mutable_attempts()->pointer_end());
  const auto checkpoints = newest(detail.checkpoints, offset, limit);
  for (auto it = checkpoints.rbegin(); it != checkpoints.rend(); ++it) {
    v1::Checkpoint checkpoint = to_proto(*it);
    if (!budget.take(checkpoint)) break;
    out.add_checkpoints()->Swap(&checkpoint);
  }
  std::reverse(out.mutable_checkpoints()->pointer_begin(),
               out.mutable_checkpoints()->pointer_end());
  const std::uint64_t metrics = detail.metrics.size();
  for (std::uint64_t i = offset; i < metrics && i - offset < limit; ++i) {
    out.add_metrics(utf8(detail.metrics[i]));
  }
  out.set_attempts_total(detail.attempts.size());
  out.set_checkpoints_total(detail.checkpoints.size());
  out.set_metrics_total(metrics);
  out.set_logs_pruned_ms(detail.pruned.logs_ms);
  out.set_points_pruned_ms(detail.pruned.points_ms);
  out.set_measure_failure(utf8(detail.measure_failure));
  if (offset == 0) out.set_profile_more(!add_profile(detail.profile, budget, out));
  return out;
}

/// Points `offset` .. `offset + count - 1` of a series.
v1::Series series_page(const storage::Series& series, std::uint64_t offset, std::uint64_t count) {
  v1::Series out;
  out.set_metric(utf8(series.name));
  const auto take = [&](const auto& from, auto* to) {
    if (offset >= from.size()) return;
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(offset);
    const auto left = static_cast<std::uint64_t>(from.end() - first);
    to->Add(first, first + static_cast<std::ptrdiff_t>(std::min(count, left)));
  };
  take(series.steps, out.mutable_steps());
  take(series.tokens, out.mutable_tokens());
  take(series.values, out.mutable_values());
  return out;
}

/// Makes the messages of ExportCurves one by one, from pages of curves; who a trial is comes from
/// pages of trials, which are read beside them.
class CurveReader {
 public:
  CurveReader(const engine::Views& views, SweepId sweep, const std::string& metric, TrialId after)
      : views_(views), asked_after_(after) {
    curve_query_.sweep = sweep;
    trial_query_.sweep = sweep;
    curve_query_.after = after;
    curve_query_.metric = metric;
    trial_query_.after = after;
    trial_query_.limit = kExportTrials;
    trial_query_.count = false;
  }

  Result<std::optional<v1::ExportCurvesResponse>> next() {
    v1::ExportCurvesResponse out;
    PageBudget budget;
    for (;;) {
      while (!curves_.empty()) {
        if (!budget.take(curves_.front())) return out;
        bytes_ -= curves_.front().ByteSizeLong();
        out.add_curves()->Swap(&curves_.front());
        curves_.pop_front();
      }
      if (ended_) break;
      TAILOR_RETURN_IF_ERROR(read_curves());
    }
    if (said_last_) return std::optional<v1::ExportCurvesResponse>();
    TAILOR_ASSIGN_OR_RETURN(const std::uint64_t pruned,
                            views_.store().trials_without_points(curve_query_.sweep, asked_after_));
    out.set_trials_pruned(pruned);
    said_last_ = true;
    return out;
  }
  /// Of the curves that were read and not given yet.
  std::size_t bytes() const { return bytes_; }

 private:
  Status read_curves() {
    TAILOR_ASSIGN_OR_RETURN(const storage::CurvePage page, views_.store().curves(curve_query_));
    ended_ = !page.next.has_value();
    if (page.next) curve_query_.after = *page.next;
    for (const storage::TrialCurves& curves : page.trials) {
      TAILOR_RETURN_IF_ERROR(go_to(curves.trial));
      for (const storage::Series& series : curves.series) add(trials_.front(), series);
    }
    return Status::ok();
  }

  /// Makes `trial` the front of `trials_`. Both kinds of pages are in the order of ids.
  Status go_to(TrialId trial) {
    for (;;) {
      while (!trials_.empty() && trials_.front().row.id < trial) trials_.pop_front();
      if (!trials_.empty() && trials_.front().row.id == trial) return Status::ok();
      if (trials_.empty()) {
        TAILOR_ASSIGN_OR_RETURN(auto page, views_.trials(trial_query_));
        trials_.assign(std::make_move_iterator(page.trials.begin()),
                       std::make_move_iterator(page.trials.end()));
        if (!trials_.empty()) trial_query_.after = trials_.back().row.id;
      }
      if (trials_.empty() || trials_.front().row.id > trial) {
        return {Code::kDataLoss,
                fmt::format("there are curves of {} and no trial", trial.to_string())};
      }
    }
  }

  void add(const engine::TrialView& trial, const storage::Series& series) {
    for (std::uint64_t at = 0; at < series.steps.size(); at += kSeriesPointsMax) {
      v1::Curve curve;
      curve.set_trial(trial.row.id.value);
      curve.set_candidate_name(utf8(trial.candidate_name));
      curve.set_seed(trial.row.seed);
      *curve.mutable_series() = series_page(series, at, kSeriesPointsMax);
      bytes_ += curve.ByteSizeLong();
      curves_.push_back(std::move(curve));
    }
  }

  const engine::Views& views_;
  const TrialId asked_after_;
  storage::CurveQuery curve_query_;
  storage::TrialQuery trial_query_;
  bool ended_ = false;  // no curve is left to read
  bool said_last_ = false;
  std::deque<engine::TrialView> trials_;  // of the last page, from the current one on
  std::deque<v1::Curve> curves_;
  std::size_t bytes_ = 0;  // of curves_
};

}  // namespace

grpc::ServerUnaryReactor* CoordinatorServiceImpl::ListTrials(Context*,
                                                             const v1::ListTrialsRequest* request,
                                                             v1::ListTrialsResponse* response) {
  return answer(
      reads_, "ListTrials", response, options_.on_call,
      [this, request = *request]() -> Result<v1::ListTrialsResponse> {
        storage::TrialQuery query;
        if (request.has_sweep() && request.sweep().by_case() != v1::SweepRef::BY_NOT_SET) {
          TAILOR_ASSIGN_OR_RETURN(query.sweep, find(request.sweep()));
        }
        TAILOR_ASSIGN_OR_RETURN(query.state, from_proto(request.state()));
        if (!request.order().empty()) query.order = request.order();
        if (query.order != "id" && query.order != "objective" && query.order != "state" &&
            query.order != "candidate") {
          return error(Code::kInvalidArgument,
                       fmt::format("cannot order trials by \"{}\"; allowed: id, objective, state, "
                                   "candidate",
                                   query.order));
        }
        query.descending = request.descending();
        query.offset = request.offset();
        query.limit =
            std::min(request.limit() == 0 ? kTrialsPage : request.limit(), kTrialsPageMax);
        if (request.after() != 0) {
          if (request.offset() != 0) {
            return error(Code::kInvalidArgument, "give `after` or `offset`, not both");
          }
          query.after = TrialId{request.after()};
          query.count = false;  // the first page said it
        }
        TAILOR_ASSIGN_OR_RETURN(const auto page, views_.trials(query));
        v1::ListTrialsResponse out;
        PageBudget budget;
        for (const auto& view : page.trials) {
          v1::Trial trial = to_proto(view);
          if (!budget.take(trial)) break;
          out.add_trials()->Swap(&trial);
        }
        out.set_total(page.total);
        const auto given = static_cast<std::uint64_t>(out.trials_size());
        // Behind a trial it is not known how many are left: a full page may be followed by nothing.
        out.set_more(given < page.trials.size() ||
                     (query.after ? given == query.limit
                                  : engine::is_more(query.offset, given, page.total)));
        return out;
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetTrial(Context*,
                                                           const v1::GetTrialRequest* request,
                                                           v1::GetTrialResponse* response) {
  return answer(
      reads_, "GetTrial", response, options_.on_call,
      [this, request = *request]() -> Result<v1::GetTrialResponse> {
        TAILOR_ASSIGN_OR_RETURN(const auto detail, views_.trial(TrialId{request.trial()}));
        return trial_page(detail, request.offset(), page_limit(request.limit(), kPageMax));
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetSeries(Context*,
                                                            const v1::GetSeriesRequest* request,
                                                            v1::GetSeriesResponse* response) {
  return answer(
      reads_, "GetSeries", response, options_.on_call,
      [this, request = *request]() -> Result<v1::GetSeriesResponse> {
        TAILOR_ASSIGN_OR_RETURN(
            const auto series,
            views_.series(TrialId{request.trial()}, request.metric(), request.points_max()));
        v1::GetSeriesResponse out;
        *out.mutable_series() = series_page(series, request.offset(), kSeriesPointsMax);
        out.set_total(series.steps.size());
        out.set_more(engine::is_more(request.offset(), kSeriesPointsMax, series.steps.size()));
        return out;
      });
}

grpc::ServerWriteReactor<v1::ExportCurvesResponse>* CoordinatorServiceImpl::ExportCurves(
    Context* context, const v1::ExportCurvesRequest* request) {
  using Stream = PullStream<v1::ExportCurvesResponse>;
  // Found in the pool, with the first message.
  return Stream::start(
      context, reads_, unread_, "ExportCurves", options_.on_call,
      [this, request = *request, reader = std::shared_ptr<CurveReader>()](
          Stream& stream) mutable -> Result<std::optional<v1::ExportCurvesResponse>> {
        if (reader == nullptr) {
          TAILOR_ASSIGN_OR_RETURN(const SweepId sweep, find(request.sweep()));
          reader = std::make_shared<CurveReader>(views_, sweep, request.metric(),
                                                 TrialId{request.after()});
        }
        auto message = reader->next();
        TAILOR_RETURN_IF_ERROR(stream.keep(reader->bytes()));
        return message;
      });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Explain(Context*,
                                                          const v1::ExplainRequest* request,
                                                          v1::ExplainResponse* response) {
  return answer(reads_, "Explain", response, options_.on_call,
                [this, id = TrialId{request->trial()}]() -> Result<v1::ExplainResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const core::Why why, views_.why(id));
                  v1::ExplainResponse out;
                  out.set_text(utf8(protocol::cut(why.sentence, protocol::kMessageBytesMax)));
                  out.set_state(std::string(storage::trial_state_name(why.state)));
                  out.set_reason(std::string(core::why_code_name(why.code)));
                  out.set_since_ms(why.since_ms);
                  for (const auto& [name, detail] : why.details) {
                    (*out.mutable_details())[utf8(name)] = utf8(detail);
                  }
                  return out;
                });
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetLog(Context*, const v1::GetLogRequest* request,
                                                         v1::GetLogResponse* response) {
  return answer(
      reads_, "GetLog", response, options_.on_call,
      [this, request = *request]() -> Result<v1::GetLogResponse> {
        const std::uint64_t bytes =
            request.bytes_max() == 0 ? kLogBytesMax : std::min(request.bytes_max(), kLogBytesMax);
        TAILOR_ASSIGN_OR_RETURN(auto piece, views_.log(TrialId{request.trial()}, request.attempt(),
                                                       request.offset(), bytes));
        v1::GetLogResponse out;
        out.set_data(std::move(piece.bytes));
        out.set_next_offset(piece.next_offset);
        out.set_attempt(piece.attempt);
        out.set_ended(piece.ended);
        out.set_offset(piece.offset);
        out.set_trial_ended(piece.trial_ended);
        out.set_attempts(piece.attempts);
        out.set_worker(piece.worker_name);
        out.set_end_class(piece.end_class);
        return out;
      });
}

}  // namespace tailor::rpc
