// SqliteStore.
#include "storage/sqlite_store.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <filesystem>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "storage/backup.h"
#include "storage/file_guard.h"
#include "storage/generation.h"
#include "storage/guarded_query.h"
#include "storage/metric_tail.h"
#include "storage/series.h"
#include "storage/sqlite_connection.h"
#include "storage/sqlite_rows.h"

namespace tailor::storage {
namespace {

constexpr std::uint64_t kTrialLimitMax = 10'000;
// Pages in the write-ahead log before a commit copies them into the file (8 MB). The log is not cut
// afterwards: writing over it needs no change of the file's size and so no journal write
// of the file system.
constexpr int kCheckpointPages = 2'000;

/// Read-only connections, handed out to one thread at a time. Threads: any.
class ReaderPool {
 public:
  ReaderPool(std::string path, std::size_t idle_max)
      : path_(std::move(path)), idle_max_(idle_max) {}

  /// Throws SQLite::Exception.
  std::unique_ptr<Connection> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Connection> connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return std::make_unique<Connection>(path_, SQLite::OPEN_READONLY);
  }

  void give_back(std::unique_ptr<Connection> connection) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < idle_max_) idle_.push_back(std::move(connection));
  }

 private:
  const std::string path_;
  const std::size_t idle_max_;
  std::mutex mutex_;  // guards: idle_
  std::vector<std::unique_ptr<Connection>> idle_;
};

class SqliteStore final : public Store {
 public:
  SqliteStore(std::string path, FileLock lock, std::unique_ptr<Connection> writer, MetricTail tail,
              std::span<const Migration> migrations, std::size_t readers_idle_max)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        migrations_(migrations),
        writer_(std::move(writer)),
        tail_(std::move(tail)),
        readers_(path_, readers_idle_max) {}

  ~SqliteStore() override { rename_generation(*writer_, path_); }

  Result<Snapshot> load() override {
    return guarded(writer_->handle(), path_,
                   [&]() -> Result<Snapshot> { return read_snapshot(*writer_); });
  }

  Result<Snapshot> load_open() override {
    return guarded(writer_->handle(), path_,
                   [&]() -> Result<Snapshot> { return read_open_snapshot(*writer_); });
  }

  Status commit(std::span<const Mutation> batch) override {
    for (const Mutation& mutation : batch) TAILOR_RETURN_IF_ERROR(check_row(mutation));
    const Status status = guarded(writer_->handle(), path_, [&]() -> Status {
      Query(writer_->statement("BEGIN IMMEDIATE")).run();
      for (const Mutation& mutation : batch) write(mutation);
      tail_.maintain(*writer_);
      Query(writer_->statement("COMMIT")).run();
      return {};
    });
    if (status.is_ok()) {
      tail_.committed();
    } else {
      roll_back();
    }
    return status;
  }

  Result<std::vector<SweepRow>> sweeps() const override {
    return read([](Connection& db) -> Result<std::vector<SweepRow>> { return read_sweeps(db); });
  }
  Result<SweepRow> sweep(SweepId id) const override {
    return read([&](Connection& db) -> Result<SweepRow> {
      std::optional<SweepRow> row = read_sweep(db, id);
      if (!row) return error(Code::kNotFound, fmt::format("no sweep {}", id.to_string()));
      return *std::move(row);
    });
  }
  Result<SweepRow> sweep_by_name(std::string_view name) const override {
    return read([&](Connection& db) -> Result<SweepRow> {
      std::optional<SweepRow> row = read_sweep(db, name);
      if (!row) return error(Code::kNotFound, fmt::format("no sweep `{}`", name));
      return *std::move(row);
    });
  }
  Result<std::vector<CandidateRow>> candidates(SweepId sweep) const override {
    return read([&](Connection& db) -> Result<std::vector<CandidateRow>> {
      return read_candidates(db, sweep);
    });
  }
  Result<SweepPage> sweep_page(std::uint64_t offset, std::uint64_t limit) const override {
    return read(
        [&](Connection& db) -> Result<SweepPage> { return read_sweep_page(db, offset, limit); });
  }
  Result<CandidatePage> candidate_page(SweepId sweep, std::uint64_t offset,
                                       std::uint64_t limit) const override {
    return read([&](Connection& db) -> Result<CandidatePage> {
      return read_candidate_page(db, sweep, offset, limit);
    });
  }
  Result<CandidateRow> candidate(SweepId sweep, std::uint32_t number) const override {
    return read([&](Connection& db) -> Result<CandidateRow> {
      CandidatePage page = read_candidate_page(db, sweep, number, 1);
      if (page.candidates.empty() || page.candidates.front().index != number) {
        return error(no_candidate(sweep, number));
      }
      return std::move(page.candidates.front());
    });
  }
  Result<TrialPage> trials(const TrialQuery& query) const override {
    const std::string& order = query.order;
    if (order != "id" && order != "objective" && order != "state" && order != "candidate") {
      return error(
          Code::kInvalidArgument,
          fmt::format("trials cannot be ordered by `{}`; allowed: id, objective, state, candidate",
                      order));
    }
    if (query.limit > kTrialLimitMax) {
      return error(Code::kInvalidArgument,
                   fmt::format("limit {} is over {}: ask for pages", query.limit, kTrialLimitMax));
    }
    if (query.after && order != "id") return error(after_without_id());
    return read([&](Connection& db) -> Result<TrialPage> { return read_trials(db, query); });
  }
  Result<TrialRow> trial(TrialId id) const override {
    return read([&](Connection& db) -> Result<TrialRow> {
      std::optional<TrialRow> row = read_trial(db, id);
      if (!row) return error(Code::kNotFound, fmt::format("no trial {}", id.to_string()));
      return *std::move(row);
    });
  }
  Result<std::vector<AttemptRow>> attempts(TrialId trial) const override {
    return read([&](Connection& db) -> Result<std::vector<AttemptRow>> {
      return read_attempts(db, trial);
    });
  }
  Result<std::vector<StartRow>> starts(SweepId sweep) const override {
    return read(
        [&](Connection& db) -> Result<std::vector<StartRow>> { return read_starts(db, sweep); });
  }
  Result<std::vector<WorkerRow>> workers() const override {
    return read([](Connection& db) -> Result<std::vector<WorkerRow>> { return read_workers(db); });
  }
  Result<std::vector<std::string>> metric_names(TrialId trial) const override {
    return read([&](Connection& db) -> Result<std::vector<std::string>> {
      return read_metric_names(db, trial);
    });
  }
  Result<Series> series(TrialId trial, std::string_view metric,
                        std::size_t points_max) const override {
    return read([&](Connection& db) -> Result<Series> {
      return thin(read_series(db, trial, metric), points_max);
    });
  }
  Result<std::vector<CheckpointRow>> checkpoints(TrialId trial) const override {
    return read([&](Connection& db) -> Result<std::vector<CheckpointRow>> {
      return read_checkpoints(db, trial);
    });
  }
  Result<std::vector<ProfileRow>> profile(TrialId trial) const override {
    return read(
        [&](Connection& db) -> Result<std::vector<ProfileRow>> { return read_profile(db, trial); });
  }
  Result<std::vector<EventRow>> events(std::uint64_t after, std::size_t limit,
                                       std::optional<SweepId> sweep,
                                       std::optional<TrialId> trial) const override {
    return read([&](Connection& db) -> Result<std::vector<EventRow>> {
      return read_events(db, after, limit, sweep, trial);
    });
  }
  Result<std::string> log(AttemptId attempt, std::uint64_t offset,
                          std::size_t bytes_max) const override {
    return read([&](Connection& db) -> Result<std::string> {
      return read_log(db, attempt, offset, bytes_max);
    });
  }
  Result<std::optional<std::uint64_t>> log_from(AttemptId attempt,
                                                std::uint64_t offset) const override {
    return read([&](Connection& db) -> Result<std::optional<std::uint64_t>> {
      return read_log_from(db, attempt, offset);
    });
  }
  Result<Table> query(std::string_view sql, const QueryLimits& limits) const override {
    return guarded_query(path_, sql, limits, clock_);
  }
  Status backup(const std::string& path) const override {
    return backup_database(path_, path, migrations_);
  }

 private:
  void write(const Mutation& mutation) {
    if (const auto* point = std::get_if<MetricPoint>(&mutation)) {
      tail_.add(*writer_, *point);
      return;
    }
    if (const auto* attempt = std::get_if<AttemptRow>(&mutation)) {
      if (attempt->state == AttemptState::kEnded) tail_.attempt_ended(attempt->id);
    }
    std::visit(
        [&](const auto& row) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(row)>, MetricPoint>)
            write_row(*writer_, row);
        },
        mutation);
  }

  void roll_back() {
    // SQLite rolls back by itself after some failures (full disk, I/O):
    // then there is no transaction.
    if (sqlite3_get_autocommit(writer_->handle()) == 0) (void)writer_->db().tryExec("ROLLBACK");
    tail_.rolled_back();
  }

  /// Runs `f` in one read transaction. A connection that failed is closed, not reused.
  template <typename F>
  auto read(F&& f) const -> std::invoke_result_t<F, Connection&> {
    using Out = std::invoke_result_t<F, Connection&>;
    return guarded(nullptr, path_, [&]() -> Out {
      std::unique_ptr<Connection> connection = readers_.take();
      Query(connection->statement("BEGIN")).run();
      Out out = f(*connection);
      Query(connection->statement("COMMIT")).run();
      readers_.give_back(std::move(connection));
      return out;
    });
  }

  const std::string path_;
  const FileLock lock_;
  const std::span<const Migration> migrations_;
  const SystemClock clock_;
  // The storage thread's.
  std::unique_ptr<Connection> writer_;
  MetricTail tail_;
  // Any thread's. Declared last: closed before the writer, which then checkpoints.
  mutable ReaderPool readers_;
};

Status configure_writer(Connection& db, const std::string& path, const SqliteOptions& options) {
  if (const std::string mode = db.db().execAndGet("PRAGMA journal_mode=WAL").getString();
      mode != "wal") {
    return Status(
        Code::kFailedPrecondition,
        fmt::format("{}: the file system of this folder cannot hold a write-ahead log (it gives no "
                    "shared memory); use a local disk",
                    path));
  }
  db.db().exec("PRAGMA synchronous=FULL");
  db.db().exec("PRAGMA foreign_keys=ON");
  db.db().exec(fmt::format("PRAGMA wal_autocheckpoint={}", kCheckpointPages));
  db.db().exec("PRAGMA trusted_schema=OFF");
  if (options.pages_max != 0) {
    // Answers with a row, and never sets less than the file has already.
    db.db().execAndGet(fmt::format("PRAGMA max_page_count={}", options.pages_max));
  }
  return {};
}

Status open_writer(const std::string& path, const SqliteOptions& options,
                   std::span<const Migration> migrations, std::unique_ptr<Connection>& writer,
                   MetricTail& tail) {
  const auto step = [&](auto&& f) -> Status {
    return guarded(writer ? writer->handle() : nullptr, path, std::forward<decltype(f)>(f));
  };
  TAILOR_RETURN_IF_ERROR(step([&]() -> Status {
    writer = std::make_unique<Connection>(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    return {};
  }));
  const Status whole = step([&]() -> Status {
    // Before WAL mode and anything else is written: is it ours, and whole?
    writer->db().execAndGet("SELECT count(*) FROM sqlite_schema");
    std::error_code ec;
    const std::uintmax_t bytes = std::filesystem::file_size(path, ec);
    if (!ec && bytes > 0 && bytes <= options.quick_check_bytes_max) {
      TAILOR_RETURN_IF_ERROR(check_integrity(writer->db(), path, true));
    }
    return {};
  });
  TAILOR_RETURN_IF_ERROR(whole);
  TAILOR_RETURN_IF_ERROR(migrate(writer->db(), path, migrations));
  TAILOR_RETURN_IF_ERROR(verify_schema(writer->db(), path, migrations));
  return step([&]() -> Status {
    TAILOR_RETURN_IF_ERROR(configure_writer(*writer, path, options));
    TAILOR_ASSIGN_OR_RETURN(const std::string said, settle_generation(*writer, path));
    if (!said.empty() && options.notice) options.notice(said);
    tail.load(*writer);
    return {};
  });
}

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite(const std::string& path, const SqliteOptions& options) {
  std::error_code ec;
  // Two names of one file must meet in one lock.
  std::filesystem::path whole = std::filesystem::absolute(path, ec);
  if (!ec) whole = std::filesystem::weakly_canonical(whole, ec);
  const std::string absolute = whole.string();
  if (path.empty() || ec || whole.filename().empty()) {
    return error(Code::kInvalidArgument, fmt::format("`{}` is no file name for a database", path));
  }
  const std::filesystem::path folder = std::filesystem::path(absolute).parent_path();
  if (!std::filesystem::is_directory(folder, ec)) {
    return error(Code::kNotFound, fmt::format("{}: the folder {} does not exist; make it first",
                                              absolute, folder.string()));
  }
  if (std::filesystem::is_directory(absolute, ec)) {
    return error(Code::kInvalidArgument, fmt::format("{} is a folder; give a file name", absolute));
  }
  if (!options.allow_network_file_system) TAILOR_RETURN_IF_ERROR(check_file_system(absolute));
  TAILOR_ASSIGN_OR_RETURN(FileLock lock, FileLock::acquire(absolute));
  const std::span<const Migration> migrations =
      options.migrations.empty() ? embedded_migrations() : options.migrations;
  std::unique_ptr<Connection> writer;
  MetricTail tail;
  TAILOR_RETURN_IF_ERROR(open_writer(absolute, options, migrations, writer, tail));
  return std::make_unique<SqliteStore>(absolute, std::move(lock), std::move(writer),
                                       std::move(tail), migrations, options.readers_idle_max);
}

}  // namespace tailor::storage
