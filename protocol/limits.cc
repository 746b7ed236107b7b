#include "protocol/limits.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tailor::protocol {
namespace {

enum class Empty { kAllowed, kRefused };
enum class Controls { kAllowed, kRefused };

/// A name that may not be longer.
struct NameLimit {
  std::string_view field;
  std::size_t bytes_max;
  Empty empty = Empty::kAllowed;
  /// Control characters: they would reach terminals, logs and metrics by the name.
  Controls controls = Controls::kRefused;
};

/// A path is what its file system says that it is.
constexpr NameLimit path_limit(std::string_view field, Empty empty = Empty::kAllowed) {
  return {field, kPathBytesMax, empty, Controls::kAllowed};
}

// ---- the table. A field that is named in none of these visitors is a number, or bounded by what
// it is a list of.

constexpr std::size_t kShortBytesMax = 100;  // versions, hashes, classes

template <typename Visit>
void names(const Hello& m, Visit visit) {
  visit(m.worker_name, NameLimit{"Hello.worker_name", kNameBytesMax, Empty::kRefused});
  visit(m.instance, NameLimit{"Hello.instance", kNameBytesMax});
  visit(m.version, NameLimit{"Hello.version", kShortBytesMax});
  visit(m.host, NameLimit{"Hello.host", kNameBytesMax});
  visit(m.folder, path_limit("Hello.folder"));
  visit(m.address, NameLimit{"Hello.address", kNameBytesMax});
  for (const Slot& slot : m.slots) visit(slot.name, NameLimit{"Slot.name", kNameBytesMax});
  for (const auto& label : m.labels) {
    visit(label, NameLimit{"Hello.labels", kNameBytesMax, Empty::kRefused});
  }
}
template <typename Visit>
void names(const Rendezvous& m, Visit visit) {
  visit(m.address, NameLimit{"Rendezvous.address", kNameBytesMax, Empty::kRefused});
}
template <typename Visit>
void names(const Assign& m, Visit visit) {
  for (const auto& path : m.spec.resume_from) {
    visit(path, path_limit("TrialSpec.resume_from"));
  }
  for (const StoredCheckpoint& stored : m.stored) {
    visit(stored.sha256, NameLimit{"StoredCheckpoint.sha256", kShortBytesMax});
  }
}
template <typename Message, typename Visit>
void names(const Message&, Visit) {}  // the others hold no names

template <typename Visit>
void report_names(const StartedReport& m, Visit visit) {
  visit(m.host, NameLimit{"StartedReport.host", kNameBytesMax});
  visit(m.device, NameLimit{"StartedReport.device", kNameBytesMax});
  visit(m.version, NameLimit{"StartedReport.version", kNameBytesMax});
  visit(m.data_hash, NameLimit{"StartedReport.data_hash", kNameBytesMax});
  visit(m.resumed_from, path_limit("StartedReport.resumed_from"));
}
template <typename Visit>
void report_names(const MetricReport& m, Visit visit) {
  for (const auto& [name, value] : m.values) {
    visit(name, NameLimit{"a metric's name", kNameBytesMax, Empty::kRefused});
  }
}
template <typename Visit>
void report_names(const CheckpointReport& m, Visit visit) {
  visit(m.path, path_limit("CheckpointReport.path", Empty::kRefused));
  visit(m.sha256, NameLimit{"CheckpointReport.sha256", kShortBytesMax});
}
template <typename Visit>
void report_names(const ProfileReport& m, Visit visit) {
  for (const WorkEntry& entry : m.entries) {
    visit(entry.geometry, NameLimit{"WorkEntry.geometry", kShortBytesMax, Empty::kRefused});
    visit(entry.statistic, NameLimit{"WorkEntry.statistic", kShortBytesMax, Empty::kRefused});
  }
}
template <typename Visit>
void report_names(const EndReport& m, Visit visit) {
  for (const auto& [name, value] : m.values) {
    visit(name, NameLimit{"a final metric's name", kNameBytesMax, Empty::kRefused});
  }
}

// Free texts.
void cut_in(ProfileReport& m) {
  m.failure = cut(std::move(m.failure), kMessageBytesMax);
  m.dimension_failure = cut(std::move(m.dimension_failure), kMessageBytesMax);
}
void cut_in(EndReport& m) { m.message = cut(std::move(m.message), kMessageBytesMax); }
void cut_in(Heartbeat& m) { m.unfit = cut(std::move(m.unfit), kMessageBytesMax); }
void cut_in(Draining& m) { m.reason = cut(std::move(m.reason), kMessageBytesMax); }
void cut_in(Refused& m) { m.reason = cut(std::move(m.reason), kMessageBytesMax); }
void cut_in(MemberEnded& m) { m.message = cut(std::move(m.message), kMessageBytesMax); }
void cut_in(Reports& m) {
  for (Report& report : m.reports) cut_texts(report);
}
template <typename Message>
void cut_in(Message&) {}  // the others hold no free text

std::size_t subsample_values(const ProfileReport& m) {
  std::size_t values = 0;
  for (const WorkEntry& entry : m.entries) values += entry.subsample_values.size();
  return values;
}

// As they travel: an entry's reason only where it is another than the profile's.
std::size_t reason_bytes(const ProfileReport& m) {
  std::size_t bytes = m.no_error.size();
  for (const WorkEntry& entry : m.entries) {
    if (entry.no_error != m.no_error) bytes += entry.no_error.size();
  }
  return bytes;
}

struct CountLimit {
  std::string_view what;
  std::size_t count;
  std::size_t most;
};

template <typename Visit>
void counts(const Hello& m, Visit visit) {
  visit(CountLimit{"slots of a worker", m.slots.size(), kSlotsMax});
  visit(CountLimit{"attempts of a worker", m.held.size(), kHeldMax});
  visit(CountLimit{"labels of a worker", m.labels.size(), kLabelsMax});
  for (const HeldAttempt& held : m.held) {
    visit(CountLimit{"slots of an attempt", held.slots.size(), kSlotsMax});
  }
}
template <typename Visit>
void counts(const Heartbeat& m, Visit visit) {
  visit(CountLimit{"attempts of a heartbeat", m.running.size(), kHeldMax});
}
template <typename Visit>
void counts(const Reports& m, Visit visit) {
  visit(CountLimit{"reports of a message", m.reports.size(), kReportsMax});
}
template <typename Visit>
void counts(const LogChunk& m, Visit visit) {
  visit(CountLimit{"bytes of a piece of a log", m.bytes.size(), kLogChunkBytesMax});
}
template <typename Visit>
void counts(const MetricReport& m, Visit visit) {
  visit(CountLimit{"metrics of a report", m.values.size(), kMetricsMax});
}
template <typename Visit>
void counts(const EndReport& m, Visit visit) {
  visit(CountLimit{"final metrics of a report", m.values.size(), kMetricsMax});
}
template <typename Visit>
void counts(const ProfileReport& m, Visit visit) {
  visit(CountLimit{"entries of a work profile", m.entries.size(), kProfileEntriesMax});
  visit(CountLimit{"subsamples of a work profile", m.subsample_tokens.size(), kSubsamplesMax});
  visit(
      CountLimit{"values of subsamples of a work profile", subsample_values(m), kProfileValuesMax});
  visit(CountLimit{"bytes of reasons in a work profile", reason_bytes(m), kProfileReasonBytesMax});
}
template <typename Visit>
void counts(const Welcome& m, Visit visit) {
  visit(CountLimit{"attempts of a welcome", m.held.size(), kHeldMax});
}
template <typename Visit>
void counts(const Assign& m, Visit visit) {
  visit(CountLimit{"slots of an attempt", m.slots.size(), kSlotsMax});
}
template <typename Message, typename Visit>
void counts(const Message&, Visit) {}

// ---- what is done with it

/// The first thing that is wrong.
class Checker {
 public:
  void operator()(const std::string& text, const NameLimit& limit) {
    if (!status_.is_ok()) return;
    if (text.empty() && limit.empty == Empty::kRefused) {
      fail(fmt::format("{} is empty", limit.field));
    } else if (text.size() > limit.bytes_max) {
      fail(fmt::format("{} (\"{}\") has {} bytes, more than {}", limit.field, short_text(text, 40),
                       text.size(), limit.bytes_max));
    } else if (limit.controls == Controls::kRefused && escape_controls(text) != text) {
      fail(fmt::format("{} (\"{}\") has control characters", limit.field, short_text(text, 40)));
    }
  }
  void operator()(const CountLimit& limit) {
    if (!status_.is_ok() || limit.count <= limit.most) return;
    fail(fmt::format("{} {}, more than {}", limit.count, limit.what, limit.most));
  }
  Status status() && { return std::move(status_); }

 private:
  void fail(std::string what) { status_ = Status(Code::kInvalidArgument, std::move(what)); }
  Status status_;
};

template <typename Message>
Status check_variant(const Message& message) {
  Checker checker;
  std::visit(
      [&](const auto& body) {
        names(body, std::ref(checker));
        counts(body, std::ref(checker));
      },
      message);
  return std::move(checker).status();
}

struct Version {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
};

std::optional<Version> parse_version(std::string_view text) {
  Version version;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  if (minor.ec != std::errc()) return std::nullopt;
  return version;
}

bool is_known(std::string_view version) { return !version.empty() && version != "unknown"; }

std::size_t bytes_of(const std::map<std::string, double>& values) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : values) bytes += name.size() + 20;
  return bytes;
}

}  // namespace

std::string cut(std::string text, std::size_t bytes_max) {
  TAILOR_CHECK(bytes_max >= 64, "bytes_max={}", bytes_max);
  if (text.size() <= bytes_max) return text;
  constexpr std::size_t kMarkBytes = 40;  // of the longest mark
  std::size_t keep = bytes_max - kMarkBytes;
  // Not inside a character: bytes 10xxxxxx go on with one.
  while (keep > 0 && (static_cast<unsigned char>(text[keep]) & 0xC0) == 0x80) --keep;
  const std::size_t gone = text.size() - keep;
  text.resize(keep);
  return text + fmt::format("... ({} bytes cut)", gone);
}

void cut_texts(Report& report) {
  std::visit([](auto& body) { cut_in(body); }, report.body);
}

void cut_texts(WorkerMessage& message) {
  std::visit([](auto& body) { cut_in(body); }, message);
}

void cut_texts(CoordinatorMessage& message) {
  std::visit([](auto& body) { cut_in(body); }, message);
}

Status check_report(const Report& report) {
  if (!report.unreadable.empty()) return {Code::kInvalidArgument, report.unreadable};
  Checker checker;
  std::visit(
      [&](const auto& body) {
        report_names(body, std::ref(checker));
        counts(body, std::ref(checker));
      },
      report.body);
  return std::move(checker).status().with_context(fmt::format("report {}", report.sequence));
}

Status check_message(const WorkerMessage& message) { return check_variant(message); }

Status check_message(const CoordinatorMessage& message) { return check_variant(message); }

std::size_t report_bytes(const Report& report) {
  struct Bytes {
    std::size_t operator()(const StartedReport& m) const {
      return m.host.size() + m.device.size() + m.version.size() + m.data_hash.size() +
             m.resumed_from.size() + 100;
    }
    std::size_t operator()(const MetricReport& m) const { return bytes_of(m.values) + 30; }
    std::size_t operator()(const CheckpointReport& m) const {
      return m.path.size() + m.sha256.size() + 40;
    }
    std::size_t operator()(const ProfileReport& m) const {
      std::size_t bytes = 100;
      for (const WorkEntry& entry : m.entries) {
        bytes += entry.geometry.size() + entry.statistic.size() + (entry.energies ? 55 + 60 : 55);
      }
      return bytes + 8 * subsample_values(m) + 10 * m.subsample_tokens.size() + reason_bytes(m);
    }
    std::size_t operator()(const EndReport& m) const {
      return m.message.size() + bytes_of(m.values) + 30;
    }
  };
  return std::visit(Bytes(), report.body) + 40;
}

Status check_version(std::string_view theirs, std::string_view ours) {
  if (!is_known(theirs) || !is_known(ours)) return Status::ok();
  const auto known = parse_version(ours);
  if (!known) return Status::ok();
  const auto given = parse_version(theirs);
  if (!given) {
    return {Code::kInvalidArgument,
            fmt::format("\"{}\" is no version; expected MAJOR.MINOR", short_text(theirs, 40))};
  }
  const auto apart = std::abs(static_cast<std::int64_t>(given->minor) - known->minor);
  if (given->major == known->major && apart <= 1) return Status::ok();
  return {Code::kFailedPrecondition,
          fmt::format("version {} does not speak with version {}: at most one minor version may "
                      "lie between them; install the same version on both sides",
                      short_text(theirs, 40), ours)};
}

}  // namespace tailor::protocol
