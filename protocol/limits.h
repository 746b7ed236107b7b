// What a worker, a trainer or a coordinator may put into a message: one table of limits, so that
// nobody's mistake fills the memory, the database or the terminal of somebody else.
//
//   names (of workers, metrics, devices, paths, hashes)   too long, wrongly empty or (but for
//                                                         paths) with control characters: refused,
//                                                         and the refusal names the field
//   free text (messages, reasons)                         cut, and the cut is said:
//                                                         "... (N bytes cut)"
//   numbers of things (slots, reports, metrics, ...)      too many: refused
//
// `convert` applies it to everything that arrives. Names inside a report are checked by
// `check_report` alone, because a bad report is no reason to end a worker's stream: it ends its
// attempt (core), or the attempt's own worker ends it on reading the line. docs/cli.md lists the
// numbers. Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "protocol/messages.h"
#include "protocol/report.h"

namespace tailor::protocol {

/// Bytes of a worker's, an instance's or a metric's name.
inline constexpr std::size_t kNameBytesMax = 200;
/// Bytes of a free text: messages of ends, reasons.
inline constexpr std::size_t kMessageBytesMax = 4'000;
/// Bytes of a path: PATH_MAX of Linux.
inline constexpr std::size_t kPathBytesMax = 4'096;
inline constexpr std::size_t kMetricsMax = 2'000;          ///< values of one report
inline constexpr std::size_t kProfileEntriesMax = 20'000;  ///< of one work profile
inline constexpr std::size_t kProfileValuesMax = 150'000;  ///< values of subsamples of all entries
inline constexpr std::size_t kProfileReasonBytesMax = 100'000;  ///< of reasons that differ
inline constexpr std::size_t kSubsamplesMax = 4'096;
inline constexpr std::size_t kReportsMax = 10'000;  ///< of one message
inline constexpr std::size_t kSlotsMax = 1'024;     ///< of one worker
inline constexpr std::size_t kHeldMax = 4'096;      ///< attempts of one worker
inline constexpr std::size_t kLabelsMax = 64;
inline constexpr std::size_t kLogChunkBytesMax = 1 << 20;
/// A message of reports is begun no further once it has so many bytes (`report_bytes`): with one
/// more report it is still below what gRPC takes, 4 MiB.
inline constexpr std::size_t kReportsBytesMax = 1 << 20;

/// `text` if it has at most `bytes_max` bytes; else its beginning, whole characters of UTF-8, and
/// "... (N bytes cut)", together at most `bytes_max`. REQUIRES: bytes_max >= 64.
std::string cut(std::string text, std::size_t bytes_max);

/// Cuts free texts to their limits.
void cut_texts(Report& report);
void cut_texts(WorkerMessage& message);
void cut_texts(CoordinatorMessage& message);

/// Names and numbers. Errors: kInvalidArgument naming the field, what it has and what it may have.
Status check_report(const Report& report);
/// All of a message but the reports in it.
Status check_message(const WorkerMessage& message);
Status check_message(const CoordinatorMessage& message);

/// About as many bytes as the report has in a message; never fewer.
std::size_t report_bytes(const Report& report);

/// Whether a program of version `theirs` may speak with one of version `ours`: the same major
/// number, minor numbers at most one apart. A version is "MAJOR.MINOR" with anything behind it; one
/// that is not known ("", "unknown") is not judged. Errors: kFailedPrecondition with both versions
/// and what to do; kInvalidArgument for a text that is no version.
Status check_version(std::string_view theirs, std::string_view ours);

}  // namespace tailor::protocol
