#include "tests/simulation/ledger.h"

#include <fmt/format.h>

#include <utility>

namespace tailor::simulation {

using protocol::AttemptRef;
using storage::AttemptState;

void Ledger::began(const AttemptRef& ref) {
  const std::string id = ref.attempt.to_string();
  const auto row = attempts_.find(ref.attempt);
  if (row == attempts_.end() || row->second.token != ref.token) {
    return c_.fail(fmt::format("{} was started before it was stored", id));
  }
  if (row->second.acked_sequence > 0 || row->second.log_bytes > 0) {
    return c_.fail(fmt::format("{} was started again after it had reported", id));
  }
  if (const auto before = written_.find(ref); before != written_.end()) {
    c_.count("attempt started again on a new disk");
    for (const auto& [sequence, report] : before->second) {
      const auto* metrics = std::get_if<protocol::MetricReport>(&report.body);
      if (metrics != nullptr) written_points_.erase({ref.attempt, metrics->step});
    }
    written_.erase(before);
    written_logs_.erase(ref.attempt);
  }
}

void Ledger::wrote(const AttemptRef& ref, const protocol::Report& report) {
  const auto [known, is_new] = ref_of_.emplace(ref.attempt, ref);
  if (!is_new && known->second != ref) {
    return c_.fail(fmt::format("{} was run under two tokens", ref.attempt.to_string()));
  }
  written_[ref][report.sequence] = report;
  if (const auto* metrics = std::get_if<protocol::MetricReport>(&report.body)) {
    written_points_[{ref.attempt, metrics->step}] = metrics->values.at("train_loss");
  }
}

void Ledger::wrote_log(const AttemptRef& ref, const std::string& bytes) {
  written_logs_[ref.attempt] += bytes;
}

void Ledger::committed(std::span<const storage::Mutation> batch) {
  for (const storage::Mutation& mutation : batch) {
    if (const auto* trial = std::get_if<storage::TrialRow>(&mutation)) committed_trial(*trial);
    if (const auto* attempt = std::get_if<storage::AttemptRow>(&mutation))
      committed_attempt(*attempt);
    if (const auto* point = std::get_if<storage::MetricPoint>(&mutation)) committed_point(*point);
    if (const auto* checkpoint = std::get_if<storage::CheckpointRow>(&mutation))
      committed_checkpoint(*checkpoint);
    if (const auto* log = std::get_if<storage::LogRow>(&mutation)) committed_log(*log);
    if (const auto* candidate = std::get_if<storage::CandidateRow>(&mutation))
      committed_candidate(*candidate);
    if (const auto* measurement = std::get_if<storage::MeasurementRow>(&mutation))
      committed_measurement(*measurement);
    if (const auto* schedule = std::get_if<storage::ScheduleRow>(&mutation))
      committed_schedule(*schedule);
  }
  for (const TrialId trial : std::exchange(waiting_and_running_, {})) {
    const auto schedule = schedules_.find({trials_.at(trial).sweep, trials_.at(trial).candidate});
    if (schedule->second.state == storage::ScheduleState::kCut) continue;
    c_.fail(fmt::format("{} runs before its widths are cut", trial.to_string()));
  }
}

void Ledger::committed_candidate(const storage::CandidateRow& row) {
  const CandidateKey key{row.sweep, row.index};
  const auto [found, is_new] = candidates_.emplace(key, row);
  if (is_new) return;
  if (found->second != row && begun_.contains(key)) {
    c_.fail(fmt::format("candidate {} of {} was changed after a trial of it had begun", row.index,
                        row.sweep.to_string()));
  }
  found->second = row;
}

void Ledger::committed_measurement(const storage::MeasurementRow& row) {
  if (!measurements_.emplace(row.attempt, row).second) {
    c_.fail(fmt::format("{} was measured twice", row.attempt.to_string()));
  }
}

void Ledger::committed_schedule(const storage::ScheduleRow& row) {
  using storage::ScheduleState;
  const CandidateKey key{row.sweep, row.candidate};
  const std::string what =
      fmt::format("the schedule of candidate {} of {}", row.candidate, row.sweep.to_string());
  if (row.state == ScheduleState::kCut || row.state == ScheduleState::kSame) {
    c_.count(fmt::format("schedule {}", storage::schedule_state_name(row.state)));
    const auto measured = measurements_.find(row.measured);
    if (measured == measurements_.end() || !measured->second.failure.empty()) {
      c_.fail(fmt::format("{} was cut from {}, which is not stored as measured", what,
                          row.measured.to_string()));
    } else if (measured->second.key != row.key) {
      c_.fail(fmt::format("{} was cut from another measurement than it waited for", what));
    }
  }
  const auto [found, is_new] = schedules_.emplace(key, row);
  if (is_new) return;
  if (found->second.state == ScheduleState::kCut && found->second != row) {
    c_.fail(fmt::format("{} was cut and then changed", what));
  }
  found->second = row;
}

void Ledger::committed_trial(const storage::TrialRow& row) {
  if (row.attempts > 0) begun_.insert({row.sweep, row.candidate});
  if (row.state == storage::TrialState::kRunning) {
    const auto schedule = schedules_.find({row.sweep, row.candidate});
    if (schedule != schedules_.end() && schedule->second.state != storage::ScheduleState::kCut) {
      waiting_and_running_.insert(row.id);
    }
  }
  const auto [found, is_new] = trials_.emplace(row.id, row);
  if (is_new) return;
  const storage::TrialRow& before = found->second;
  if (storage::is_final(before.state) && before.state != row.state &&
      !retry_allowed_.contains(row.sweep)) {
    c_.fail(fmt::format("{} ended as {} and then became {}", row.id.to_string(),
                        storage::trial_state_name(before.state),
                        storage::trial_state_name(row.state)));
  }
  if (before.state == storage::TrialState::kCompleted && row.state != before.state) {
    c_.fail(fmt::format("{} had completed and was run again", row.id.to_string()));
  }
  if (row.attempts < before.attempts) {
    c_.fail(fmt::format("{} went from {} attempts to {}", row.id.to_string(), before.attempts,
                        row.attempts));
  }
  found->second = row;
}

void Ledger::committed_attempt(const storage::AttemptRow& row) {
  const auto [found, is_new] = attempts_.emplace(row.id, row);
  if (is_new) return;
  const storage::AttemptRow& before = found->second;
  const std::string id = row.id.to_string();
  if (before.token != row.token || before.worker != row.worker) {
    c_.fail(fmt::format("{} changed its token or worker", id));
  }
  if (before.state == AttemptState::kEnded)
    c_.fail(fmt::format("{} was changed after its end", id));
  if (row.acked_sequence < before.acked_sequence || row.log_bytes < before.log_bytes) {
    c_.fail(fmt::format("{} forgot reports", id));
  }
  if (row.state == AttemptState::kEnded)
    c_.count("attempt " + std::string(protocol::end_class_name(row.end_class)));
  found->second = row;
}

void Ledger::committed_point(const storage::MetricPoint& row) {
  const AttemptId attempt{row.trial, row.attempt};
  const auto written = written_points_.find({attempt, row.step});
  if (written == written_points_.end() || written->second != row.value) {
    c_.fail(fmt::format("a point of {} at step {} was stored that nobody wrote",
                        attempt.to_string(), row.step));
  }
  if (!points_.emplace(std::pair(attempt, row.step), row.value).second) {
    c_.fail(
        fmt::format("the point of {} at step {} was stored twice", attempt.to_string(), row.step));
  }
}

void Ledger::committed_checkpoint(const storage::CheckpointRow& row) {
  if (!checkpoints_.emplace(row.attempt, row.step).second) {
    c_.fail(fmt::format("the checkpoint of {} at step {} was stored twice", row.attempt.to_string(),
                        row.step));
  }
}

void Ledger::committed_log(const storage::LogRow& row) {
  std::string& stored = logs_[row.attempt];
  const std::string& written = written_logs_[row.attempt];
  if (row.offset != stored.size() ||
      written.compare(row.offset, row.bytes.size(), row.bytes) != 0) {
    c_.fail(fmt::format("log of {} at offset {} is not what was written there",
                        row.attempt.to_string(), row.offset));
  }
  stored += row.bytes;
}

void Ledger::released(const protocol::CoordinatorMessage& message) {
  if (const auto* assign = std::get_if<protocol::Assign>(&message)) {
    assigned({{assign->spec.trial, assign->spec.attempt}, assign->spec.token});
  } else if (const auto* ack = std::get_if<protocol::ReportsAck>(&message)) {
    acknowledged(*ack);
  } else if (const auto* log = std::get_if<protocol::LogAck>(&message)) {
    if (logs_[log->ref.attempt].size() < log->through_offset) {
      c_.fail(fmt::format("log of {} was acknowledged through {} but only {} bytes are stored",
                          log->ref.attempt.to_string(), log->through_offset,
                          logs_[log->ref.attempt].size()));
    }
  } else if (const auto* stop = std::get_if<protocol::Stop>(&message)) {
    c_.count(stop->discard ? "stop: fenced"
                           : "stop: " + std::string(protocol::stop_reason_name(stop->reason)));
  } else if (const auto* welcome = std::get_if<protocol::Welcome>(&message)) {
    for (const protocol::HeldVerdict& verdict : welcome->held) {
      c_.count(verdict.keep ? "held: keep" : "held: discard");
    }
  }
}

void Ledger::assigned(const AttemptRef& ref) {
  const std::string id = ref.attempt.to_string();
  const auto row = attempts_.find(ref.attempt);
  if (row == attempts_.end() || row->second.token != ref.token) {
    return c_.fail(fmt::format("{} was sent out before it was stored", id));
  }
  const auto [known, is_new] = assigned_.emplace(ref.attempt, ref.token);
  if (!is_new) {
    c_.count("assign: again");
    if (known->second != ref.token) c_.fail(fmt::format("{} was sent out under two tokens", id));
    return;
  }
  // Of one trial: between trials an order whose commit was the coordinator's last may come late.
  Last& last = last_[ref.attempt.trial];
  if (ref.token <= last.token || ref.attempt.number <= last.attempt) {
    c_.fail(fmt::format("{} with token {} came after attempt {} and token {}", id, ref.token,
                        last.attempt, last.token));
  }
  last = {ref.attempt.number, ref.token};
}

bool Ledger::stored(AttemptId attempt, const protocol::Report& report) const {
  if (const auto* metrics = std::get_if<protocol::MetricReport>(&report.body)) {
    return points_.contains({attempt, metrics->step});
  }
  if (const auto* checkpoint = std::get_if<protocol::CheckpointReport>(&report.body)) {
    return checkpoints_.contains({attempt, checkpoint->step});
  }
  if (std::holds_alternative<protocol::ProfileReport>(report.body)) {
    return measurements_.contains(attempt);
  }
  const auto row = attempts_.find(attempt);
  if (row == attempts_.end()) return false;
  if (std::holds_alternative<protocol::EndReport>(report.body)) {
    // Rank 0's end of a gang is kept with its member until the others have ended too.
    const auto& members = row->second.members;
    return row->second.state == AttemptState::kEnded ||
           (!members.empty() && members.front().ended.has_value());
  }
  return !row->second.started_json.empty();
}

void Ledger::acknowledged(const protocol::ReportsAck& ack) {
  const std::string id = ack.ref.attempt.to_string();
  std::uint64_t& acked = acked_[ack.ref];
  if (ack.through_sequence < acked) {
    return c_.fail(fmt::format("{} was acknowledged through {} and then through {}", id, acked,
                               ack.through_sequence));
  }
  const auto& written = written_[ack.ref];
  for (std::uint64_t sequence = acked + 1; sequence <= ack.through_sequence; ++sequence) {
    const auto report = written.find(sequence);
    if (report == written.end()) {
      return c_.fail(
          fmt::format("report {} of {} was acknowledged but never written", sequence, id));
    }
    if (!stored(ack.ref.attempt, report->second)) {
      return c_.fail(
          fmt::format("report {} of {} was acknowledged but is not stored", sequence, id));
    }
    c_.count("reports acknowledged");
  }
  acked = ack.through_sequence;
}

void Ledger::check_completed() {
  for (const auto& [id, row] : attempts_) {
    if (row.end_class != protocol::EndClass::kCompleted) continue;
    for (const auto& [sequence, report] : written_[ref_of_.at(id)]) {
      if (!stored(id, report)) {
        return c_.fail(
            fmt::format("{} completed, but its report {} is not stored", id.to_string(), sequence));
      }
    }
  }
}

bool Ledger::is_current(const AttemptRef& ref) const {
  const auto row = attempts_.find(ref.attempt);
  return row != attempts_.end() && row->second.token == ref.token &&
         row->second.state != AttemptState::kEnded;
}

}  // namespace tailor::simulation
