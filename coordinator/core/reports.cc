// What trainers say: each report stored exactly once, in order,
// and acknowledged only after the commit.
#include <fmt/format.h>

#include "coordinator/core/json.h"
#include "coordinator/core/transition.h"

namespace tailor::core {

using protocol::EndClass;
using storage::AttemptState;

namespace {

void accept_started(Transition& t, Trial& trial, const protocol::StartedReport& started) {
  storage::AttemptRow& row = trial.live->row;
  row.started_json = started_to_json(started);
  if (trial.row.started_ms == 0) {
    trial.row.started_ms = t.now.wall_ms;
    t.touch(trial);
  }
  t.event("attempt_started", {trial.row.sweep, trial.row.id, row.id.number, row.worker},
          started.resumed_step > 0 ? fmt::format("resumed at step {}", started.resumed_step) : "");
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

void accept_profile(Transition& t, const Trial& trial, const protocol::ProfileReport& profile) {
  for (const protocol::WorkEntry& entry : profile.entries) {
    storage::ProfileRow row;
    row.attempt = trial.live->row.id;
    row.step = profile.step;
    row.layer = entry.layer;
    row.sub_block = entry.sub_block;
    row.geometry = entry.geometry;
    row.statistic = entry.statistic;
    row.value = entry.value;
    row.standard_error = entry.standard_error;
    row.tokens = profile.tokens;
    row.subsamples = profile.subsamples;
    row.linear_tokens = profile.linear_tokens;
    row.rho = profile.rho;
    row.seed = profile.seed;
    row.dropped = profile.dropped;
    t.append(std::move(row));
  }
}

/// Stores one report. An EndReport ends the attempt: `trial.live` is empty afterwards.
void accept(Transition& t, Trial& trial, const protocol::Report& report) {
  storage::AttemptRow& row = trial.live->row;
  row.acked_sequence = report.sequence;
  row.state = AttemptState::kRunning;
  t.touch(row);
  if (const auto* started = std::get_if<protocol::StartedReport>(&report.body)) {
    accept_started(t, trial, *started);
    t.touch(row);
  } else if (const auto* metrics = std::get_if<protocol::MetricReport>(&report.body)) {
    accept_metrics(t, trial, report.wall_ms, *metrics);
  } else if (const auto* checkpoint = std::get_if<protocol::CheckpointReport>(&report.body)) {
    t.append(storage::CheckpointRow{row.id, checkpoint->step, checkpoint->path, checkpoint->sha256,
                                    checkpoint->bytes, report.wall_ms});
  } else if (const auto* profile = std::get_if<protocol::ProfileReport>(&report.body)) {
    accept_profile(t, trial, *profile);
  } else if (const auto* end = std::get_if<protocol::EndReport>(&report.body)) {
    end_attempt(t, trial, end->end, end->message, end);
  }
}

}  // namespace

void on_reports(Transition& t, Worker& worker, const protocol::Reports& message) {
  Trial* trial = live_trial(t.state, worker, message.ref);
  if (trial == nullptr) {
    return t.send(worker.session, protocol::Stop{message.ref, protocol::StopReason::kFenced, true});
  }
  renew_lease(t, *trial);
  std::uint64_t through = trial->live->row.acked_sequence;
  for (const protocol::Report& report : message.reports) {
    if (report.sequence <= through) continue;  // stored already
    if (report.sequence != through + 1)
      break;  // a gap: the worker resends from the acknowledged one
    through = report.sequence;
    accept(t, *trial, report);
    if (!trial->live) break;  // nothing follows the end
  }
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
  Trial* trial = live_trial(t.state, worker, message.ref);
  if (trial == nullptr) {
    return t.send(worker.session, protocol::Stop{message.ref, protocol::StopReason::kFenced, true});
  }
  storage::AttemptRow& row = trial->live->row;
  const std::uint64_t stored = row.log_bytes;
  // What the worker left out on purpose is no gap: it will never come.
  const std::uint64_t left_out = std::min(message.left_out, message.offset);
  const std::uint64_t from = std::max(stored, message.offset);
  if (stored >= message.offset - left_out && message.offset + message.bytes.size() > from) {
    std::string news = message.bytes.substr(from - message.offset);
    row.log_bytes = from + news.size();
    row.state = AttemptState::kRunning;  // a trainer wrote this: the order was carried out
    t.append(storage::LogRow{row.id, from, std::move(news)});
    const std::uint64_t trimmed = trimmed_to(row.log_bytes);
    if (trimmed > trimmed_to(stored)) {
      t.append(storage::LogTrim{row.id, kLogHeadBytes, trimmed});
    }
    t.touch(row);
  }
  t.send(worker.session, protocol::LogAck{message.ref, row.log_bytes});
}

}  // namespace tailor::core
