// Ledger: what trainers wrote, what was committed, what was acknowledged, what was promised; and
// the rules between them. It stands outside the programs under test: it sees the trainers' pens,
// the disk and the wire.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "protocol/messages.h"
#include "storage/records.h"
#include "tests/simulation/context.h"

namespace tailor::simulation {

class Ledger {
 public:
  explicit Ledger(Context& context) : c_(context) {}

  /// A trainer starts in an empty folder. It may have run before, on a disk that is lost, as long
  /// as nobody heard of it.
  void began(const protocol::AttemptRef& ref);
  /// A trainer (or its worker, for the end it did not write itself) wrote a report to its disk.
  void wrote(const protocol::AttemptRef& ref, const protocol::Report& report);
  void wrote_log(const protocol::AttemptRef& ref, const std::string& bytes);
  /// A transaction is durable.
  void committed(std::span<const storage::Mutation> batch);
  /// The coordinator let an acknowledgement or an order out.
  void released(const protocol::CoordinatorMessage& message);
  /// A person asked for another try of failed trials: a final state may be left once more.
  void allow_retry(SweepId sweep) { retry_allowed_.insert(sweep); }
  /// Everything a completed attempt wrote is stored. At the end of a run.
  void check_completed();

  /// True when `token` is the one of the trial's committed live attempt.
  bool is_current(const protocol::AttemptRef& ref) const;

 private:
  void committed_trial(const storage::TrialRow& row);
  void committed_attempt(const storage::AttemptRow& row);
  void committed_point(const storage::MetricPoint& row);
  void committed_checkpoint(const storage::CheckpointRow& row);
  void committed_log(const storage::LogRow& row);
  void committed_candidate(const storage::CandidateRow& row);
  void committed_measurement(const storage::MeasurementRow& row);
  void committed_schedule(const storage::ScheduleRow& row);
  void assigned(const protocol::AttemptRef& ref);
  void acknowledged(const protocol::ReportsAck& ack);
  bool stored(AttemptId attempt, const protocol::Report& report) const;

  Context& c_;
  std::map<protocol::AttemptRef, std::map<std::uint64_t, protocol::Report>> written_;
  std::map<AttemptId, protocol::AttemptRef> ref_of_;  // the one that ever wrote under this number
  std::map<std::pair<AttemptId, std::int64_t>, double> written_points_;
  std::map<AttemptId, std::string> written_logs_;

  std::map<TrialId, storage::TrialRow> trials_;
  std::map<AttemptId, storage::AttemptRow> attempts_;
  std::map<std::pair<AttemptId, std::int64_t>, double> points_;
  std::set<std::pair<AttemptId, std::int64_t>> checkpoints_;
  std::map<AttemptId, std::string> logs_;
  using CandidateKey = std::pair<SweepId, std::uint32_t>;
  std::map<CandidateKey, storage::CandidateRow> candidates_;
  std::set<CandidateKey> begun_;  // candidates with an attempt
  std::map<AttemptId, storage::MeasurementRow> measurements_;
  std::map<CandidateKey, storage::ScheduleRow> schedules_;
  std::set<TrialId> waiting_and_running_;  // in the batch that is looked at
  std::set<SweepId> retry_allowed_;

  std::map<protocol::AttemptRef, std::uint64_t> acked_;
  std::map<AttemptId, FencingToken> assigned_;
  struct Last {
    std::uint32_t attempt = 0;
    FencingToken token = 0;
  };
  std::map<TrialId, Last> last_;  // that was sent out, of each trial
};

}  // namespace tailor::simulation
