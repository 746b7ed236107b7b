// Reports and log of an attempt: read, kept in a window, sent, acknowledged. See stepper.h.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "worker/agent/stepper.h"

namespace tailor::agent {

using protocol::EndReport;
using protocol::Report;

void Stepper::receive(const protocol::ReportsAck& ack) {
  AgentAttempt* attempt = find(ack.ref);
  if (attempt == nullptr) return;
  upload_through(*attempt, ack.through_sequence);
  if (!attempt->reports.acknowledge(ack.through_sequence)) return;
  attempt->progress_at_ms = now_;
  request_reads(*attempt);
  pump(*attempt);
}

void Stepper::upload_through(const AgentAttempt& attempt, std::uint64_t sequence) {
  auto checkpoint = attempt.reports.checkpoint_through(sequence);
  if (!checkpoint) return;
  s_.uploads[attempt.ref] = checkpoint->step;
  effects_.push_back(UploadCheckpoint{attempt.ref, *std::move(checkpoint)});
}

void Stepper::on(const CheckpointUploaded& event) {
  const auto found = s_.uploads.find(event.ref);
  if (found != s_.uploads.end() && found->second <= event.step) s_.uploads.erase(found);
}

void Stepper::receive(const protocol::LogAck& ack) {
  AgentAttempt* attempt = find(ack.ref);
  if (attempt == nullptr || !attempt->log.acknowledge(ack.through_offset)) return;
  attempt->log_progress_at_ms = now_;
  request_reads(*attempt);
  pump(*attempt);
}

/// Takes note of news; gives the end of a trainer that was stopped for a limit its class.
void Stepper::heed(AgentAttempt& attempt, const ReportsRead& event,
                   std::vector<protocol::Report>& reports) {
  if (!event.at_end) attempt.stepped_at_ms = now_;  // more is there than was read
  for (Report& report : reports) {
    if (const auto* metric = std::get_if<protocol::MetricReport>(&report.body)) {
      if (metric->step <= attempt.last_step) continue;  // the same over and over is no progress
      attempt.last_step = metric->step;
    }
    attempt.stepped_at_ms = now_;
    auto* end = std::get_if<EndReport>(&report.body);
    if (end == nullptr || attempt.timeout.empty() || end->end != protocol::EndClass::kStopped)
      continue;
    end->end = protocol::EndClass::kTimeout;
    end->message = attempt.timeout + "; it saved a checkpoint if it could (" + end->message + ")";
  }
}

void Stepper::on(const ReportsRead& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || !attempt->reading_reports) return;
  const bool last = std::exchange(attempt->reading_reports_last, false);
  attempt->reading_reports = false;
  if (attempt->stop == StopKind::kDiscard) return;
  if (event.after_sequence != attempt->reports.read_through()) {  // asked before a Welcome moved us
    return request_reads(*attempt);
  }
  std::string damage = event.damage;
  // Nothing counts after the EndReport.
  std::vector<Report> reports = event.reports;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (std::holds_alternative<EndReport>(reports[i].body)) {
      reports.resize(i + 1);
      attempt->end_sequence = reports[i].sequence;
      attempt->own_end.reset();
    }
  }
  if (event.end_sequence != 0 && !attempt->own_end) attempt->end_sequence = event.end_sequence;
  const bool some = !reports.empty();
  heed(*attempt, event, reports);
  if (!attempt->reports.add(std::move(reports)) && damage.empty()) {
    damage =
        fmt::format("report {} is missing in reports.jsonl", attempt->reports.read_through() + 1);
  }
  if (!damage.empty() && attempt->failure.empty()) {
    attempt->failure = "the trainer's reports cannot be read: " + damage;
    attempt->damaged = true;
    say(LogLevel::kError, "reports cannot be read", attempt, damage);
    if (attempt->phase == Phase::kRunning && !attempt->kill_at_ms) {
      effects_.push_back(SignalTrainer{attempt->ref, TrainerSignal::kTerm});
      attempt->kill_at_ms = now_ + o_.stop_grace_ms;
    }
  }
  const bool has_end = attempt->end_sequence != 0 && !attempt->own_end;
  if (has_end && attempt->phase == Phase::kRunning && !attempt->kill_at_ms) {
    // It has said its last word; a process that then hangs would hold the slot for ever.
    attempt->kill_at_ms = now_ + o_.stop_grace_ms;
  }
  const bool all_read = last && event.at_end && attempt->phase == Phase::kExited;
  if (!has_end && attempt->phase == Phase::kExited && (all_read || !attempt->failure.empty())) {
    write_own_end(*attempt);
  }
  pump(*attempt);
  if (some || (attempt->phase == Phase::kExited && !last)) request_reads(*attempt);
}

void Stepper::on(const LogRead& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || !attempt->reading_log) return;
  const bool last = std::exchange(attempt->reading_log_last, false);
  attempt->reading_log = false;
  if (attempt->stop == StopKind::kDiscard) return;
  if (event.offset != attempt->log.read_through()) return request_reads(*attempt);
  attempt->log.add(event.bytes, event.left_out);
  if (event.offset >= o_.log_free_bytes) {
    // A trainer that writes without end must not fill the coordinator's disk.
    const auto bytes = static_cast<std::int64_t>(event.bytes.size());
    attempt->log_read_at_ms = now_ + bytes * 1000 / o_.log_bytes_per_s;
  }
  if (last && event.at_end) attempt->log_complete = true;
  pump(*attempt);
  if (!event.bytes.empty() || (attempt->phase == Phase::kExited && !last)) request_reads(*attempt);
}

/// Asks for what the windows have room for.
void Stepper::request_reads(AgentAttempt& attempt) {
  if (attempt.phase != Phase::kRunning && attempt.phase != Phase::kExited) return;
  if (attempt.stop == StopKind::kDiscard || is_silent(attempt)) return;
  const bool after_exit = attempt.phase == Phase::kExited;
  const bool end_read =
      attempt.end_sequence != 0 && attempt.reports.read_through() >= attempt.end_sequence;
  const std::size_t room = attempt.reports.room(o_.reports_window);
  if (room == 0) attempt.stepped_at_ms = now_;  // what it tells is not read at the moment
  if (!attempt.reading_reports && !attempt.persisting_end && !end_read && room > 0) {
    if (!attempt.failure.empty()) {
      // Unreadable, or never written: what is known is all there will be.
      if (after_exit) {
        write_own_end(attempt);
      }
    } else {
      attempt.reading_reports = true;
      attempt.reading_reports_last = after_exit;
      effects_.push_back(ReadReports{attempt.ref, attempt.reports.read_through(), room});
    }
  }
  const std::size_t log_room = attempt.log.room(o_.log_window_bytes);
  const bool may_read = after_exit || now_ >= attempt.log_read_at_ms;
  if (!attempt.reading_log && !attempt.log_complete && log_room > 0 && may_read) {
    attempt.reading_log = true;
    attempt.reading_log_last = after_exit;
    effects_.push_back(ReadLog{attempt.ref, attempt.log.read_through(),
                               std::min(log_room, o_.log_batch_bytes), after_exit});
  }
}

/// Sends what the windows hold, log first: the end comes last,
/// so that no log tail is lost behind it.
void Stepper::pump(AgentAttempt& attempt) {
  if (!welcomed() || attempt.stop == StopKind::kDiscard || is_silent(attempt)) return;
  if (attempt.log.sent_through() == attempt.log.acked()) attempt.log_progress_at_ms = now_;
  for (;;) {
    LogOutbox::Taken taken = attempt.log.take(o_.log_batch_bytes);
    if (taken.bytes.empty()) break;
    send(protocol::LogChunk{attempt.ref, taken.offset, std::move(taken.bytes), taken.left_out});
  }
  const bool log_sent =
      attempt.log_complete && attempt.log.sent_through() == attempt.log.read_through();
  const bool end_allowed = attempt.phase == Phase::kExited &&
                           (log_sent || now_ - attempt.exited_at_ms >= o_.flush_limit_ms);
  if (attempt.reports.sent_through() == attempt.reports.acked()) attempt.progress_at_ms = now_;
  for (;;) {
    std::vector<Report> reports = attempt.reports.take(o_.reports_batch, end_allowed);
    if (reports.empty()) break;
    send(protocol::Reports{attempt.ref, std::move(reports)});
  }
}

}  // namespace tailor::agent
