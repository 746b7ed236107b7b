// What trainers say: each report stored exactly once, in order,
// and acknowledged only after the commit.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/core/json.h"
#include "coordinator/core/transition.h"
#include "protocol/limits.h"

namespace tailor::core {

using protocol::EndClass;
using storage::AttemptState;

namespace {

/// "", or how the attempt did not go on where the trial had come to.
std::string resume_text(const State& state, const Trial& trial, std::int64_t resumed_step) {
  if (!trial.checkpoint || trial.checkpoint->step <= resumed_step) {
    return resumed_step > 0 ? fmt::format("resumed at step {}", resumed_step) : "";
  }
  const CheckpointNote& newest = *trial.checkpoint;
  const Worker& holder = state.workers.at(newest.worker);
  const bool elsewhere = !can_be_fetched(state, trial) &&
                         folder_of(holder) != folder_of(state.workers.at(trial.live->row.worker));
  return fmt::format(
      "{}, although there is a checkpoint of step {}{}",
      resumed_step > 0 ? fmt::format("resumed at step {}", resumed_step) : "starts over at step 0",
      newest.step,
      elsewhere ? fmt::format(": it lies in the trials folder of {}, which this "
                              "worker cannot read",
                              holder.row.name)
                : "");
}

void accept_started(Transition& t, Trial& trial, const protocol::StartedReport& started) {
  LiveAttempt& live = *trial.live;
  live.row.started_json = started_to_json(started);
  check_data(t, t.sweep_of(trial), trial, started.data_hash);
  live.resumed_step = started.resumed_step;
  // Reports before this one are those that an earlier attempt wrote and nobody stored.
  live.row.awaits_step = started.resumed_step > 0;
  live.progress_ms = t.now.mono_ms;
  trial.not_started = 0;
  trial.not_started_on.clear();
  if (trial.row.started_ms == 0) {
    trial.row.started_ms = t.now.wall_ms;
    t.touch(trial);
  }
  watch_limits(t.state, trial);
  const About about{trial.row.sweep, trial.row.id, live.row.id.number, live.row.worker};
  const bool behind = trial.checkpoint && trial.checkpoint->step > started.resumed_step;
  const std::string text = resume_text(t.state, trial, started.resumed_step);
  t.event(EventKind::kAttemptStarted, about, text);
  if (behind) t.event(EventKind::kAttemptBehind, about, text);
}

/// "", or the number in the report that no trainer can mean.
std::string bad_number(const protocol::Report& report) {
  if (const auto* metrics = std::get_if<protocol::MetricReport>(&report.body)) {
    if (metrics->step < 0) return fmt::format("step {}", metrics->step);
  } else if (const auto* checkpoint = std::get_if<protocol::CheckpointReport>(&report.body)) {
    if (checkpoint->step < 0) return fmt::format("a checkpoint of step {}", checkpoint->step);
  } else if (const auto* started = std::get_if<protocol::StartedReport>(&report.body)) {
    if (started->resumed_step < 0) return fmt::format("resumed step {}", started->resumed_step);
  }
  return "";
}

/// Ok, or what is wrong with a report, for people. Such a report ends its attempt: it cannot be
/// stored, and those after it must not be stored without it.
Status check_report(const LiveAttempt& live, const protocol::Report& report) {
  const Status sound = protocol::check_report(report);
  const std::string number = bad_number(report);
  if (!sound.is_ok() || !number.empty()) {
    return {Code::kInvalidArgument,
            number.empty() ? "its trainer said what cannot be stored: " + sound.message()
                           : fmt::format("its trainer said what cannot be stored: report {}: {}",
                                         report.sequence, number)};
  }
  const auto* metrics = std::get_if<protocol::MetricReport>(&report.body);
  if (metrics == nullptr || !live.row.awaits_step || metrics->step >= live.resumed_step) {
    return Status::ok();
  }
  return {Code::kDataLoss,
          fmt::format("RESUME_MISMATCH: its trainer said that it resumed at step {} and then "
                      "reported step {}; its curve would not be one of one run",
                      live.resumed_step, metrics->step)};
}

/// The newest checkpoint is known; one that is newer than what the trial had when the attempt began
/// is progress, after which earlier failures do not count any more.
void accept_checkpoint(Transition& t, Trial& trial, const protocol::CheckpointReport& checkpoint) {
  LiveAttempt& live = *trial.live;
  const std::uint32_t attempt = live.row.id.number;
  if (!trial.checkpoint || trial.checkpoint->attempt != attempt ||
      trial.checkpoint->step <= checkpoint.step) {
    trial.checkpoint = CheckpointNote{checkpoint.step, live.row.worker, attempt};
  }
  if (checkpoint.step <= live.first_step || trial.failures.empty()) return;
  trial.failures.clear();
  trial.failed_on.clear();
  trial.row.failures_json = failures_to_json({});
  t.touch(trial);
}

/// A new step is progress in the eyes of limits, and shows that a probed worker can train.
void note_step(Transition& t, Trial& trial, std::int64_t step) {
  LiveAttempt& live = *trial.live;
  if (step > live.step) {
    live.step = step;
    live.progress_ms = t.now.mono_ms;
  }
  if (live.resumed_step < 0) return;
  live.row.awaits_step = false;
  if (live.probe) probe_succeeded(t, trial);
}

void accept_metrics(Transition& t, const Trial& trial, WallMs wall_ms,
                    const protocol::MetricReport& metrics) {
  for (const auto& [name, value] : metrics.values) {
    storage::MetricPoint point;
    point.trial = trial.row.id;
    point.attempt = trial.live->row.id.number;
    point.name = name;
    point.step = metrics.step;
    point.tokens = metrics.tokens;
    point.wall_ms = wall_ms;
    point.value = value;
    t.append(std::move(point));
  }
}

/// Stores one report; its attempt's row is left to the caller, once for many. An EndReport ends the
/// attempt: `trial.live` is empty afterwards.
void accept(Transition& t, Trial& trial, const protocol::Report& report) {
  storage::AttemptRow& row = trial.live->row;
  row.acked_sequence = report.sequence;
  row.state = AttemptState::kRunning;
  if (const auto* started = std::get_if<protocol::StartedReport>(&report.body)) {
    accept_started(t, trial, *started);
  } else if (const auto* metrics = std::get_if<protocol::MetricReport>(&report.body)) {
    accept_metrics(t, trial, report.wall_ms, *metrics);
    note_step(t, trial, metrics->step);
  } else if (const auto* checkpoint = std::get_if<protocol::CheckpointReport>(&report.body)) {
    t.append(storage::CheckpointRow{row.id, checkpoint->step, checkpoint->path, checkpoint->sha256,
                                    checkpoint->bytes, report.wall_ms});
    accept_checkpoint(t, trial, *checkpoint);
  } else if (const auto* profile = std::get_if<protocol::ProfileReport>(&report.body)) {
    accept_profile(t, trial, *profile);
  } else if (const auto* end = std::get_if<protocol::EndReport>(&report.body)) {
    trial.row.final_values = end->values;
    trial.live->step = std::max(trial.live->step, end->step);
    t.touch(trial);
    end_member(t, trial, row.worker, end->end, end->message);
  }
}

/// What its trainer says cannot be stored: the attempt ends here, and is ended there.
void drop_attempt(Transition& t, Trial& trial, Worker& worker, const protocol::AttemptRef& ref,
                  const Status& why) {
  // A trainer that says nonsense says so everywhere; one that loses its way may have been unlucky.
  const EndClass end = why.code() == Code::kDataLoss ? EndClass::kInfrastructure : EndClass::kUser;
  end_member(t, trial, worker.row.id, end, why.message());
  t.send(worker.session, protocol::Stop{ref, protocol::StopReason::kFenced, true});
}

}  // namespace

void on_reports(Transition& t, Worker& worker, const protocol::Reports& message) {
  const LiveMember found = live_member(t.state, worker, message.ref);
  if (!found.speaks()) {
    return t.send(worker.session, protocol::Stop{message.ref, protocol::StopReason::kFenced, true});
  }
  Trial& trial = *found.trial;
  renew_lease(t, trial, *found.member);
  const std::uint64_t before = trial.live->row.acked_sequence;
  std::uint64_t through = before;
  Status sound = Status::ok();
  for (const protocol::Report& report : message.reports) {
    if (report.sequence <= through) continue;  // stored already
    if (report.sequence != through + 1)
      break;  // a gap: the worker resends from the acknowledged one
    sound = check_report(*trial.live, report);
    if (!sound.is_ok()) break;
    through = report.sequence;
    accept(t, trial, report);
    // Nothing follows the end.
    if (!trial.live || trial.live->members.front().row.ended) break;
  }
  if (through > before && trial.live) t.touch(*trial.live);
  if (!sound.is_ok()) return drop_attempt(t, trial, worker, message.ref, sound);
  t.send(worker.session, protocol::ReportsAck{message.ref, through});
}

namespace {

// Of a long log the beginning and the end are kept. Pieces are let go a quantum at a time, so that
// few batches delete.
constexpr std::uint64_t kLogHeadBytes = 1 << 20;
constexpr std::uint64_t kLogTailBytes = 3 << 20;
constexpr std::uint64_t kLogTrimQuantum = 256 << 10;

/// Up to where a log that is stored through `through` has lost its middle.
std::uint64_t trimmed_to(std::uint64_t through) {
  if (through <= kLogHeadBytes + kLogTailBytes) return kLogHeadBytes;
  const std::uint64_t spare = through - kLogHeadBytes - kLogTailBytes;
  return kLogHeadBytes + spare / kLogTrimQuantum * kLogTrimQuantum;
}

}  // namespace

void on_log_chunk(Transition& t, Worker& worker, const protocol::LogChunk& message) {
  const LiveMember found = live_member(t.state, worker, message.ref);
  if (!found.speaks()) {
    return t.send(worker.session, protocol::Stop{message.ref, protocol::StopReason::kFenced, true});
  }
  storage::AttemptRow& row = found.trial->live->row;
  const std::uint64_t stored = row.log_bytes;
  // What the worker left out on purpose is no gap: it will never come.
  const std::uint64_t left_out = std::min(message.left_out, message.offset);
  const std::uint64_t from = std::max(stored, message.offset);
  if (stored >= message.offset - left_out && message.offset + message.bytes.size() > from) {
    std::string news = message.bytes.substr(from - message.offset);
    row.log_bytes = from + news.size();
    watch_log(t, worker, *found.trial->live, news);
    row.state = AttemptState::kRunning;  // a trainer wrote this: the order was carried out
    t.append(storage::LogRow{row.id, from, std::move(news)});
    const std::uint64_t trimmed = trimmed_to(row.log_bytes);
    if (trimmed > trimmed_to(stored)) {
      t.append(storage::LogTrim{row.id, kLogHeadBytes, trimmed});
    }
    t.touch(*found.trial->live);
  }
  t.send(worker.session, protocol::LogAck{message.ref, row.log_bytes});
}

}  // namespace tailor::core
