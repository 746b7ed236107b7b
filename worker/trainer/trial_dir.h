// The trial directory as the trainer sees it: the spec, the lease, and the report log. No LibTorch.
//
//   DIR/spec.json       protobuf JSON of tailor.v1.TrialSpec
//   DIR/lease           deadline in ms of the node's boot clock, decimal; absent = no lease (run by
//                       hand)
//   DIR/trained.json    the trainer's own: the spec as it was last run
//   DIR/reports.jsonl   one report a line, sequence numbers from 1 without gaps
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "protocol/report.h"
#include "protocol/trial_spec.h"

namespace tailor::trainer {

/// Reads DIR/spec.json. Errors: kNotFound, kInvalidArgument, naming the file.
Result<protocol::TrialSpec> read_spec(const std::string& directory);

/// DIR/trained.json: the spec that DIR was last run with, defaults filled in. Written when training
/// starts, so that a later run sees what was changed in spec.json. nullopt when there is none.
/// Errors: as read_spec.
Result<std::optional<protocol::TrialSpec>> read_trained(const std::string& directory);
Status write_trained(const std::string& directory, const protocol::TrialSpec& spec);

/// Appends reports. One log, one process: the file is locked while it is open. Threads: one.
class ReportLog {
 public:
  /// Opens or creates DIR/reports.jsonl. A torn last line, left by a crash, is cut off; numbering
  /// continues after the last whole line. Errors: kFailedPrecondition when another trainer has the
  /// log; kDataLoss when a whole line is no report; the system's reason.
  static Result<ReportLog> open(const std::string& directory, const Clock& clock);
  ReportLog(ReportLog&& other) noexcept;
  ReportLog& operator=(ReportLog&&) = delete;
  ~ReportLog();

  /// Appends one line; the sequence is filled in, and the wall time where it is 0. `durable`:
  /// fsynced before it returns. Errors: kResourceExhausted (disk full; the log then ends in a whole
  /// line again), kUnavailable.
  Status append(protocol::Report report, bool durable);

  std::uint64_t last_sequence() const { return last_sequence_; }
  /// The class of the end that the log held when it was opened, if its last report was an end.
  std::optional<protocol::EndClass> earlier_end() const { return earlier_end_; }
  /// `data_hash` of the last start that the log held when it was opened; "" = none.
  const std::string& earlier_data_hash() const { return earlier_data_hash_; }

 private:
  ReportLog(int descriptor, std::string path, const Clock& clock)
      : descriptor_(descriptor), path_(std::move(path)), clock_(&clock) {}

  int descriptor_;
  std::string path_;
  const Clock* clock_;
  std::uint64_t last_sequence_ = 0;
  std::int64_t size_ = 0;
  std::optional<protocol::EndClass> earlier_end_;
  std::string earlier_data_hash_;
};

/// DIR/lease, looked at no more than once a second.
class Lease {
 public:
  Lease(std::string directory, const Clock& clock) : path_(directory + "/lease"), clock_(clock) {}
  /// Why the right to run has ended, or nullopt while it lasts. A lease that is no number counts as
  /// over: nobody could renew it.
  std::optional<std::string> expired();

 private:
  static constexpr std::int64_t kCheckEveryMs = 1000;
  std::string path_;
  const Clock& clock_;
  std::optional<MonotonicMs> checked_ms_;
};

/// The exit code that says the same as an end.
protocol::TrainerExit exit_of(protocol::EndClass end);

}  // namespace tailor::trainer
