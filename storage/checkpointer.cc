// The thread of checkpoints and upkeep.
#include "storage/checkpointer.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <utility>

#include "base/logging.h"

namespace tailor::storage {
namespace {

constexpr std::uint64_t kLogBytes = 8ull << 20;  // in the log, from which on it is copied
// What may be copied while the writer is held: a few milliseconds.
constexpr std::uint64_t kHeldPagesMax = 256;
constexpr int kPassesMax = 4;  // before the writer is held whatever is left
// That a log which readers hold back has grown so far (again) is worth a line.
constexpr std::uint64_t kLogBytesWarn = 8 * kLogBytes;
constexpr std::chrono::milliseconds kQuiet{20};  // without a commit, before upkeep begins
constexpr std::chrono::milliseconds kAfterFailure{1'000};
constexpr std::chrono::milliseconds kHeldRetry{1'000};  // while readers hold the log back

}  // namespace

Checkpointer::Checkpointer(std::string path, Writer& writer, const Clock& clock)
    : path_(std::move(path)), writer_(writer), clock_(clock), thread_([this] { run(); }) {}

Checkpointer::~Checkpointer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

void Checkpointer::committed() {
  if (writer_.log_bytes() < kLogBytes && !writer_.has_work()) return;
  const std::lock_guard lock(mutex_);
  if (poked_) return;
  poked_ = true;
  wake_.notify_one();
}

Status Checkpointer::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

void Checkpointer::note(const Status& status) {
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    is_new = status.code() != last_error_.code();
    last_error_ = status;
  }
  if (!is_new) return;
  if (status.is_ok()) {
    log_info("storage", "upkeep of the database works again");
  } else {
    log_warn("storage", "upkeep of the database failed; it is tried again and nothing is lost",
             {{"reason", status.to_string()}});
  }
}

void Checkpointer::run() {
  std::unique_lock lock(mutex_);
  poked_ = writer_.has_work();
  while (!stopping_) {
    const auto woken = [this] { return poked_ || stopping_; };
    if (held_since_ms_ == 0) {
      wake_.wait(lock, woken);
    } else {
      wake_.wait_for(lock, kHeldRetry, woken);
    }
    if (stopping_) break;
    poked_ = false;
    lock.unlock();
    const bool more = do_something();
    lock.lock();
    if (more) {
      poked_ = true;
      continue;
    }
    // Looks again a little later: a commit that came meanwhile may have left work.
    const auto pause = last_error_.is_ok() ? kQuiet : kAfterFailure;
    wake_.wait_for(lock, pause, [this] { return stopping_; });
    poked_ = poked_ || writer_.has_work();
  }
  lock.unlock();
  connection_.reset();
}

bool Checkpointer::do_something() {
  const bool is_new = writer_.commits() != commits_shortened_;
  const bool due = held_since_ms_ == 0 ? is_new && writer_.log_bytes() >= kLogBytes
                                       : clock_.now_ms() - tried_ms_ >= kHeldRetry.count();
  if (due) {
    const Status status = shorten_log();
    note(status);
    if (!status.is_ok()) return false;
  }
  const std::uint64_t commits = writer_.commits();
  if (std::exchange(commits_seen_, commits) != commits || !writer_.has_work()) return false;
  const Status status = upkeep();
  note(status);
  return status.is_ok() && writer_.has_work();
}

Status Checkpointer::upkeep() {
  // Until somebody wants to commit.
  while (!writer_.wanted()) {
    TAILOR_ASSIGN_OR_RETURN(const bool more, writer_.maintain());
    commits_seen_ = writer_.commits();
    if (!more) break;
  }
  return {};
}

Result<Checkpointer::Copied> Checkpointer::copy() {
  if (!connection_) {
    const Status opened = guarded(nullptr, path_, [&]() -> Status {
      connection_ = std::make_unique<Connection>(path_, SQLite::OPEN_READWRITE);
      connection_->db().exec("PRAGMA synchronous=FULL");
      connection_->db().exec("PRAGMA wal_autocheckpoint=0");
      return {};
    });
    if (!opened.is_ok()) {
      connection_.reset();
      return error(opened);
    }
  }
  int pages = 0;
  int done = 0;
  const int result = sqlite3_wal_checkpoint_v2(connection_->handle(), nullptr,
                                               SQLITE_CHECKPOINT_PASSIVE, &pages, &done);
  if (result != SQLITE_OK) {
    const Status failed = sqlite_status(SQLite::Exception(connection_->handle(), result),
                                        connection_->handle(), path_);
    connection_.reset();
    return error(failed.with_context("checkpoint"));
  }
  return Copied{static_cast<std::uint64_t>(std::max(pages, 0)),
                static_cast<std::uint64_t>(std::max(done, 0))};
}

Status Checkpointer::shorten_log() {
  Copied copied;
  for (int pass = 0; pass < kPassesMax; ++pass) {
    TAILOR_ASSIGN_OR_RETURN(copied, copy());
    if (copied.whole() || copied.pages - copied.done <= kHeldPagesMax) break;
  }
  // Held even when all was copied: only so no commit comes between, and the next one finds a log
  // that it can begin anew.
  Status status;
  writer_.hold([&] {
    Result<Copied> last = copy();
    if (last.has_value()) {
      copied = *last;
    } else {
      status = last.error();
    }
  });
  TAILOR_RETURN_IF_ERROR(status);
  commits_shortened_ = writer_.commits();
  tried_ms_ = clock_.now_ms();
  if (copied.whole()) {
    held_since_ms_ = 0;
    warned_bytes_ = 0;
    return {};
  }
  if (held_since_ms_ == 0) held_since_ms_ = clock_.now_ms();
  if (writer_.log_bytes() >= warned_bytes_ + kLogBytesWarn) {
    warned_bytes_ = writer_.log_bytes();
    log_warn("storage",
             "the write-ahead log grows, since somebody reads an old state of the database",
             {{"bytes", std::to_string(warned_bytes_)},
              {"since_ms", std::to_string(clock_.now_ms() - held_since_ms_)}});
  }
  return {};
}

}  // namespace tailor::storage
