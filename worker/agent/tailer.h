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
  void close();
  const std::string& path() const { return path_; }

 private:
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

/// DIR/log, cut after `bytes_max` with a line that says so.
/// Offsets count the bytes that are handed out.
class LogTailer {
 public:
  LogTailer(std::string path, std::uint64_t bytes_max)
      : file_(std::move(path)), bytes_max_(bytes_max) {}
  LogRead read(const protocol::AttemptRef& ref, std::uint64_t offset, std::size_t bytes_max);

 private:
  ReadOnlyFile file_;
  std::uint64_t bytes_max_;
};

}  // namespace tailor::agent
