// Tailers: incremental readers of what a trainer writes while it runs.
//
// Both are asked ("what is there after ...?") and answer from the file as it is now; both may be
// asked to go back. A call reads at most a bounded piece, so that the loop thread never stays away
// for long. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/agent/event.h"

namespace tailor::agent {

/// A read-only descriptor that closes itself. -1 = none.
class ReadOnlyFile {
 public:
  explicit ReadOnlyFile(std::string path) : path_(std::move(path)) {}
  ~ReadOnlyFile() { close(); }
  ReadOnlyFile(ReadOnlyFile&& other) noexcept;
  ReadOnlyFile& operator=(ReadOnlyFile&&) = delete;

  /// At most `bytes_max` bytes from `offset`; fewer only at the end of the file, none when there is
  /// no file yet. Errors: kUnavailable and friends (I/O errors, no permission).
  Result<std::string> read(std::uint64_t offset, std::size_t bytes_max);
  /// 0 when there is no file yet.
  Result<std::uint64_t> size();
  void close();
  const std::string& path() const { return path_; }

 private:
  /// False when there is no file yet.
  Result<bool> open();

  std::string path_;
  int fd_ = -1;
};

/// DIR/reports.jsonl. A torn last line is no report and is looked at again when it has grown. A
/// complete line that is no report is passed over when the sequence goes on behind it, and ends the
/// reading (`damage`) when a sequence number is missing.
class ReportTailer {
 public:
  explicit ReportTailer(std::string path) : file_(std::move(path)) {}

  /// The reports after `after_sequence`, at most `count_max`. `at_end` is false when there may be
  /// more for the next call although fewer were found: a call parses about 1 MiB.
  ReportsRead read(const protocol::AttemptRef& ref, std::uint64_t after_sequence,
                   std::size_t count_max);

 private:
  /// Appends the next piece of the file to `pending_`. False at the end of the file.
  Result<bool> fill();

  ReadOnlyFile file_;
  std::uint64_t offset_ = 0;    // of the file: what follows pending_
  std::string pending_;         // read, not yet parsed
  std::size_t parsed_ = 0;      // of pending_
  std::uint64_t sequence_ = 0;  // last one parsed
  std::uint64_t line_ = 0;      // last one parsed, from 1
  std::uint64_t end_sequence_ = 0;
  std::string bad_line_;  // what is wrong with lines passed over since the last good one
};

/// How much of a long log is forwarded.
struct LogLimits {
  std::uint64_t head_bytes = 1 << 20;    ///< its beginning, always
  std::uint64_t tail_bytes = 3 << 20;    ///< its end, once the trainer has exited
  std::uint64_t live_bytes = 256 << 10;  ///< of what is newest, while the trainer writes too fast
};

/// DIR/log. Offsets are those of the file, until somebody cuts it: then a line says so, and the
/// file is read from its beginning again, at offsets that go on. Reading that is more than
/// `tail_bytes` behind the end of the file, and beyond the head, goes on near the end, at the start
/// of a line.
class LogTailer {
 public:
  explicit LogTailer(std::string path, LogLimits limits = {})
      : file_(std::move(path)), limits_(limits) {}
  LogRead read(const protocol::AttemptRef& ref, std::uint64_t offset, std::size_t bytes_max,
               bool after_exit);

 private:
  ReadOnlyFile file_;
  LogLimits limits_;
  std::uint64_t base_ = 0;  // the offset of the file's first byte
};

}  // namespace tailor::agent
