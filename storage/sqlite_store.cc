// SqliteStore.
#include "storage/sqlite_store.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/logging.h"
#include "storage/backup.h"
#include "storage/checkpointer.h"
#include "storage/curves.h"
#include "storage/event_index.h"
#include "storage/file_guard.h"
#include "storage/generation.h"
#include "storage/guarded_query.h"
#include "storage/pruning.h"
#include "storage/series.h"
#include "storage/sqlite_connection.h"
#include "storage/sqlite_rows.h"
#include "storage/trial_pages.h"
#include "storage/writer.h"

namespace tailor::storage {
namespace {

constexpr int kWriterCacheKiB = 16'384;

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
  SqliteStore(std::string path, FileLock lock, std::unique_ptr<Writer> writer,
              std::span<const Migration> migrations, std::size_t readers_idle_max)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        migrations_(migrations),
        writer_(std::move(writer)),
        readers_(path_, readers_idle_max),
        checkpointer_(path_, *writer_, clock_) {}

  Result<Snapshot> load() override { return writer_->load(false); }
  Result<Snapshot> load_open() override { return writer_->load(true); }
  Status commit(std::span<const Mutation> batch) override {
    const Status status = writer_->commit(batch);
    checkpointer_.committed();
    return status;
  }
  Result<bool> maintain() override { return writer_->maintain(); }
  Result<Pruned> prune(const PruneRules& rules, WallMs now_ms) override {
    Result<Pruned> pruned = writer_->prune(rules, now_ms);
    checkpointer_.committed();
    return pruned;
  }
  Status still_there() const override { return writer_->still_there(); }
  StoreHealth health() const override {
    return {writer_->log_bytes(), writer_->tail().unsealed(), checkpointer_.held_since_ms(),
            checkpointer_.last_error()};
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
  Result<TrialCounts> trial_counts(SweepId sweep) const override {
    return read(
        [&](Connection& db) -> Result<TrialCounts> { return read_trial_counts(db, sweep); });
  }
  Result<TrialPage> trials(const TrialQuery& query) const override {
    TAILOR_RETURN_IF_ERROR(check_trial_query(query));
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
    std::set<std::string> names;
    for (const LivePoints& part : writer_->tail().live(trial, {}).series) names.insert(part.name);
    TAILOR_ASSIGN_OR_RETURN(std::vector<std::string> sealed,
                            read([&](Connection& db) -> Result<std::vector<std::string>> {
                              return read_sealed_names(db, trial);
                            }));
    names.insert(sealed.begin(), sealed.end());
    return std::vector<std::string>(names.begin(), names.end());
  }
  Result<Series> series(TrialId trial, std::string_view metric,
                        std::size_t points_max) const override {
    TAILOR_ASSIGN_OR_RETURN(std::vector<Series> found, curves_of(trial, metric));
    Series series;
    series.name = metric;
    return found.empty() ? series : thin(std::move(found.front()), points_max);
  }
  Result<CurvePage> curves(const CurveQuery& query) const override {
    const std::size_t limit = std::max<std::size_t>(query.trials_max, 1);
    // One more, to know whether another page follows.
    TAILOR_ASSIGN_OR_RETURN(const std::vector<TrialId> trials,
                            read([&](Connection& db) -> Result<std::vector<TrialId>> {
                              return read_trial_ids(db, query.sweep, query.after, limit + 1);
                            }));
    std::optional<std::string_view> metric;
    if (!query.metric.empty()) metric = query.metric;
    CurvePage page;
    std::size_t points = 0;
    for (std::size_t i = 0; i < trials.size(); ++i) {
      if (i == limit || points >= query.points_max) return page;
      TAILOR_ASSIGN_OR_RETURN(std::vector<Series> series, curves_of(trials[i], metric));
      for (const Series& one : series) points += one.steps.size();
      if (!series.empty()) page.trials.push_back({trials[i], std::move(series)});
      page.next = trials[i];
    }
    page.next.reset();
    return page;
  }
  Result<std::optional<PrunedTrial>> pruned(TrialId trial) const override {
    return read([&](Connection& db) -> Result<std::optional<PrunedTrial>> {
      return read_pruned(db, trial);
    });
  }
  Result<std::uint64_t> trials_without_points(SweepId sweep, TrialId after) const override {
    return read([&](Connection& db) -> Result<std::uint64_t> {
      return count_without_points(db, sweep, after);
    });
  }
  Result<std::vector<CheckpointRow>> checkpoints(TrialId trial) const override {
    return read([&](Connection& db) -> Result<std::vector<CheckpointRow>> {
      return read_checkpoints(db, trial);
    });
  }
  Result<std::optional<MeasurementRow>> measurement(TrialId trial) const override {
    return read([&](Connection& db) -> Result<std::optional<MeasurementRow>> {
      return read_measurement(db, trial);
    });
  }
  Result<std::optional<Measured>> measured(std::string_view key) const override {
    return read(
        [&](Connection& db) -> Result<std::optional<Measured>> { return read_measured(db, key); });
  }
  Result<std::vector<ScheduleRow>> schedules(SweepId sweep) const override {
    return read([&](Connection& db) -> Result<std::vector<ScheduleRow>> {
      return read_schedules(db, sweep);
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
  /// By name; of one metric when it is given.
  Result<std::vector<Series>> curves_of(TrialId trial,
                                        std::optional<std::string_view> metric) const {
    for (;;) {
      // Memory first: chunks that were made meanwhile are then found in the database.
      LiveCurves live = writer_->tail().live(trial, metric);
      TAILOR_ASSIGN_OR_RETURN(SealedCurves sealed,
                              read([&](Connection& db) -> Result<SealedCurves> {
                                return read_sealed(db, trial, metric);
                              }));
      auto joined = join_curves(std::move(live), std::move(sealed));
      if (joined) return *std::move(joined);
      std::this_thread::yield();  // the writer is between its commit and its memory
    }
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
  const FileLock lock_;  // given up last
  const std::span<const Migration> migrations_;
  const SystemClock clock_;
  const std::unique_ptr<Writer> writer_;
  // Closed before the writer, which then copies what is left of the log.
  mutable ReaderPool readers_;
  Checkpointer checkpointer_;
};

/// A new page size is taken by a file that is empty or rewritten whole.
void set_page_size(SQLite::Database& db, std::uint32_t bytes) {
  db.exec(fmt::format("PRAGMA page_size={}", bytes));
}

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
  db.db().exec("PRAGMA wal_autocheckpoint=0");  // Checkpointer
  db.db().exec(fmt::format("PRAGMA cache_size=-{}", kWriterCacheKiB));
  db.db().exec("PRAGMA trusted_schema=OFF");
  if (options.pages_max != 0) {
    // Answers with a row, and never sets less than the file has already.
    db.db().execAndGet(fmt::format("PRAGMA max_page_count={}", options.pages_max));
  }
  return {};
}

/// A file that a migration has rewritten for the most part is brought to the page size of new
/// files: small pages keep the log small. A convenience: where it fails the file serves as it is.
void rewrite_pages(SQLite::Database& db, const std::string& path, std::uint32_t page_bytes) {
  if (db.execAndGet("PRAGMA page_size").getInt() == static_cast<int>(page_bytes)) return;
  const Status status = guarded(db.getHandle(), path, [&]() -> Status {
    db.execAndGet("PRAGMA journal_mode=DELETE");  // WAL fixes the page size
    set_page_size(db, page_bytes);
    db.exec("VACUUM");
    return {};
  });
  if (!status.is_ok()) {
    log_warn("storage", "the database keeps its page size and will write more than it has to",
             {{"reason", status.to_string()}});
  }
}

Result<std::unique_ptr<Writer>> open_writer(const std::string& path, const SqliteOptions& options,
                                            std::span<const Migration> migrations) {
  const std::string changed = last_change(path);
  std::unique_ptr<Connection> writer;
  const auto step = [&](auto&& f) -> Status {
    return guarded(writer ? writer->handle() : nullptr, path, std::forward<decltype(f)>(f));
  };
  TAILOR_RETURN_IF_ERROR(step([&]() -> Status {
    writer = std::make_unique<Connection>(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    return {};
  }));
  std::error_code ec;
  const std::uintmax_t bytes = std::filesystem::file_size(path, ec);
  const bool is_new = !ec && bytes == 0;
  const Status whole = step([&]() -> Status {
    if (is_new) set_page_size(writer->db(), options.page_bytes);
    // Before WAL mode and anything else is written: is it ours, and whole?
    writer->db().execAndGet("SELECT count(*) FROM sqlite_schema");
    if (!is_new && bytes <= options.quick_check_bytes_max) {
      TAILOR_RETURN_IF_ERROR(check_integrity(writer->db(), path, true));
    }
    return {};
  });
  TAILOR_RETURN_IF_ERROR(whole);
  TAILOR_ASSIGN_OR_RETURN(const bool migrated, migrate(writer->db(), path, migrations));
  TAILOR_RETURN_IF_ERROR(verify_schema(writer->db(), path, migrations));
  if (migrated && !is_new) rewrite_pages(writer->db(), path, options.page_bytes);
  const Status settled = step([&]() -> Status {
    TAILOR_RETURN_IF_ERROR(configure_writer(*writer, path, options));
    TAILOR_ASSIGN_OR_RETURN(const std::string said, settle_generation(*writer, path, changed));
    if (!said.empty() && options.notice) options.notice(said);
    return {};
  });
  TAILOR_RETURN_IF_ERROR(settled);
  return Writer::begin(path, std::move(writer));
}

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite(const std::string& path, const SqliteOptions& options) {
  TAILOR_ASSIGN_OR_RETURN(const std::string absolute, resolve_database_path(path));
  std::error_code ec;
  const std::filesystem::path folder = std::filesystem::path(absolute).parent_path();
  if (!std::filesystem::is_directory(folder, ec)) {
    return error(Code::kNotFound, fmt::format("{}: the folder {} does not exist; make it first",
                                              absolute, folder.string()));
  }
  if (std::filesystem::is_directory(absolute, ec)) {
    return error(Code::kInvalidArgument, fmt::format("{} is a folder; give a file name", absolute));
  }
  if (!options.allow_network_file_system) TAILOR_RETURN_IF_ERROR(check_file_system(absolute));
  TAILOR_ASSIGN_OR_RETURN(const std::string_view network, network_file_system_of(absolute));
  TAILOR_ASSIGN_OR_RETURN(FileLock lock, FileLock::acquire(absolute, network.empty()));
  const std::span<const Migration> migrations =
      options.migrations.empty() ? embedded_migrations() : options.migrations;
  TAILOR_ASSIGN_OR_RETURN(std::unique_ptr<Writer> writer,
                          open_writer(absolute, options, migrations));
  return std::make_unique<SqliteStore>(absolute, std::move(lock), std::move(writer), migrations,
                                       options.readers_idle_max);
}

Result<std::string> database_identity(const Store& store) {
  TAILOR_ASSIGN_OR_RETURN(const Table table, store.query("SELECT name FROM identity", {}));
  if (table.rows.size() != 1 || table.rows[0].size() != 1) {
    return error(Code::kDataLoss, "the database has no identity");
  }
  return table.rows[0][0].text;
}

}  // namespace tailor::storage
