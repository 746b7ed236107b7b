// Transactions.
#include "storage/writer.h"

#include <sqlite3.h>

#include <utility>

#include "storage/generation.h"
#include "storage/sqlite_rows.h"

namespace tailor::storage {
namespace {

int note_log_pages(void* pages, sqlite3*, const char*, int in_log) {
  static_cast<std::atomic<std::uint64_t>*>(pages)->store(static_cast<std::uint64_t>(in_log));
  return SQLITE_OK;
}

/// A disk may be writable again: what was open for writing once is worth another try.
Status worth_another_try(Status status) {
  if (status.code() != Code::kPermissionDenied) return status;
  return Status(Code::kUnavailable, status.message());
}

}  // namespace

Writer::Writer(std::string path, std::unique_ptr<Connection> connection)
    : path_(std::move(path)), connection_(std::move(connection)) {}

Result<std::unique_ptr<Writer>> Writer::begin(std::string path,
                                              std::unique_ptr<Connection> connection) {
  std::unique_ptr<Writer> writer(new Writer(std::move(path), std::move(connection)));
  Connection& db = *writer->connection_;
  const Status status = guarded(db.handle(), writer->path_, [&]() -> Status {
    writer->page_bytes_ =
        static_cast<std::uint64_t>(db.db().execAndGet("PRAGMA page_size").getInt64());
    writer->tail_.load(db);
    writer->rows_.load(db);
    // The log is there now: it was read.
    TAILOR_ASSIGN_OR_RETURN(writer->file_, FileIdentity::of(writer->path_));
    sqlite3_wal_hook(db.handle(), note_log_pages, &writer->log_pages_);
    return {};
  });
  if (!status.is_ok()) return error(status);
  writer->has_work_ = writer->tail_.has_work() || writer->rows_.events().has_work();
  return writer;
}

Writer::~Writer() {
  if (!still_there().is_ok()) return;
  const std::string file_id = rename_generation(*connection_, path_);
  connection_.reset();
  note_closed(file_id, path_);
}

Status Writer::commit(std::span<const Mutation> batch) {
  for (const Mutation& mutation : batch) TAILOR_RETURN_IF_ERROR(check_row(mutation));
  ++waiting_;
  const std::lock_guard lock(mutex_);
  --waiting_;
  return transaction([&]() -> Status {
    for (const Mutation& mutation : batch) write(mutation);
    tail_.store(*connection_);
    tail_.maintain(*connection_, MetricTail::Pace::kBatch);
    rows_.events().maintain(*connection_, false);
    return {};
  });
}

Result<Snapshot> Writer::load(bool open_only) {
  const std::lock_guard lock(mutex_);
  return guarded(connection_->handle(), path_, [&]() -> Result<Snapshot> {
    return open_only ? read_open_snapshot(*connection_) : read_snapshot(*connection_);
  });
}

Result<bool> Writer::maintain() {
  const std::lock_guard lock(mutex_);
  if (!tail_.has_work() && !rows_.events().has_work()) return false;
  TAILOR_RETURN_IF_ERROR(transaction([&]() -> Status {
    tail_.maintain(*connection_, MetricTail::Pace::kIdle);
    rows_.events().maintain(*connection_, true);
    return {};
  }));
  return has_work_.load();
}

Result<Pruned> Writer::prune(const PruneRules& rules, WallMs now_ms) {
  const std::lock_guard lock(mutex_);
  Pruned pruned;
  TAILOR_RETURN_IF_ERROR(transaction([&]() -> Status {
    pruned = pruning_.piece(*connection_, rows_.events().indexed(), rules, now_ms);
    return {};
  }));
  return pruned;
}

void Writer::hold(const std::function<void()>& f) {
  const std::lock_guard lock(mutex_);
  f();
}

Status Writer::transaction(const std::function<Status()>& body) {
  TAILOR_RETURN_IF_ERROR(file_.still_there());
  const Status status = guarded(connection_->handle(), path_, [&]() -> Status {
    Query(connection_->statement("BEGIN IMMEDIATE")).run();
    TAILOR_RETURN_IF_ERROR(body());
    TAILOR_RETURN_IF_ERROR(rows_.finish(*connection_));
    Query(connection_->statement("COMMIT")).run();
    return {};
  });
  if (!status.is_ok()) {
    roll_back();
    return worth_another_try(status);
  }
  tail_.committed();
  rows_.committed();
  ++commits_;
  has_work_ = tail_.has_work() || rows_.events().has_work();
  // What was written into a file that nobody can find again is not acknowledged.
  return file_.still_there();
}

void Writer::write(const Mutation& mutation) {
  if (const auto* point = std::get_if<MetricPoint>(&mutation)) {
    rows_.need({point->trial, point->attempt});
    tail_.add(*connection_, *point);
    return;
  }
  rows_.write(*connection_, mutation);
  if (const auto* attempt = std::get_if<AttemptRow>(&mutation)) {
    if (attempt->state == AttemptState::kEnded) tail_.attempt_ended(attempt->id);
  }
}

void Writer::roll_back() {
  // SQLite rolls back by itself after some failures (full disk, I/O):
  // then there is no transaction.
  if (sqlite3_get_autocommit(connection_->handle()) == 0) {
    (void)connection_->db().tryExec("ROLLBACK");
  }
  tail_.rolled_back();
  rows_.rolled_back();
}

}  // namespace tailor::storage
