// Outboxes: what one attempt has said and the coordinator has not yet acknowledged, in memory.
//
// The files of the trial directory are the real queue; an outbox is a bounded window over them. It
// only holds what was read after the last acknowledgement, so days without a coordinator cost no
// memory: the window fills, reading stops, and goes on when acknowledgements arrive.
//
//     acked  <=  sent  <=  read          (sequence numbers, or byte offsets of the log)
//
// Pure values, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "protocol/report.h"

namespace tailor::agent {

/// Reports of one attempt. Sequence numbers count from 1 without gaps.
class ReportOutbox {
 public:
  std::uint64_t acked() const { return acked_; }
  std::uint64_t sent_through() const { return sent_; }
  /// The last sequence number that was read or acknowledged: reading goes on after it.
  std::uint64_t read_through() const { return acked_ + queue_.size(); }
  /// How many more reports may be read before some are acknowledged.
  std::size_t room(std::size_t window) const {
    return queue_.size() >= window ? 0 : window - queue_.size();
  }

  /// Appends what follows `read_through()`; repeated reports are skipped. False, with everything up
  /// to the gap taken, when a sequence number is missing.
  bool add(std::vector<protocol::Report> reports);

  /// Everything through `sequence` is committed. True when that is news.
  bool acknowledge(std::uint64_t sequence);
  /// The newest checkpoint among the reports that `acknowledge(sequence)` would let go.
  std::optional<protocol::CheckpointReport> checkpoint_through(std::uint64_t sequence) const;

  /// A new stream: the coordinator says what it has. Lower than `acked()` (it was restored from a
  /// backup) empties the window, so that reading starts again from there.
  void restart(std::uint64_t acked);

  /// Forgets what was sent but not acknowledged: it will be taken again.
  void resend() { sent_ = acked_; }

  /// The next reports to send, at most `count_max` and about protocol::kReportsBytesMax bytes, now
  /// counted as sent. The EndReport is held back unless `end_allowed`.
  std::vector<protocol::Report> take(std::size_t count_max, bool end_allowed);

 private:
  std::uint64_t acked_ = 0;
  std::uint64_t sent_ = 0;
  std::deque<protocol::Report> queue_;  // acked_ + 1, acked_ + 2, ...
};

/// Bytes of one attempt's log, addressed by offset.
class LogOutbox {
 public:
  std::uint64_t acked() const { return acked_; }
  std::uint64_t sent_through() const { return sent_; }
  std::uint64_t read_through() const {
    return pieces_.empty() ? acked_ : pieces_.back().begin + pieces_.back().bytes.size();
  }
  std::size_t room(std::size_t window) const;

  /// Appends what was read `left_out` bytes behind `read_through()`.
  void add(std::string_view bytes, std::uint64_t left_out = 0);
  bool acknowledge(std::uint64_t offset);
  void restart(std::uint64_t offset);
  void resend() { sent_ = acked_; }

  struct Taken {
    std::uint64_t offset = 0;    ///< of the first byte
    std::uint64_t left_out = 0;  ///< bytes before it that are not sent
    std::string bytes;
  };
  /// The next bytes to send, at most `bytes_max`, now counted as sent. Empty: there are none.
  Taken take(std::size_t bytes_max);

 private:
  /// What was read without leaving anything out; between two pieces, something was.
  struct Piece {
    std::uint64_t begin = 0;
    std::uint64_t left_out = 0;
    std::string bytes;
  };
  std::uint64_t acked_ = 0;
  std::uint64_t sent_ = 0;
  std::deque<Piece> pieces_;  // ascending, none empty, none wholly before acked_
};

}  // namespace tailor::agent
