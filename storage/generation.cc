#include "storage/generation.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/file.h"
#include "storage/records.h"

namespace tailor::storage {
namespace {

constexpr std::string_view kBackup = "backup";
// A restore raises the generation by at most so much: enough that two restores of one backup hardly
// draw the same, little enough that generations last.
constexpr std::uint32_t kStepMax = 1u << 16;

Result<std::uint64_t> random_number() {
  std::uint64_t value = 0;
  if (::getrandom(&value, sizeof value, 0) != sizeof value) {
    return error(Code::kInternal, "the system gives no random numbers");
  }
  return value;
}

std::string beside(const std::string& path) { return path + ".id"; }

/// "NAME INODE": what lies beside the file while it is the one with that name. Beside a closed one
/// "NAME INODE CHANGED": nobody can set that time, so a folder that is put back whole, this note
/// and the inode with it, is seen too.
std::string note_of(const std::string& file_id, const std::string& path,
                    const std::string& changed = {}) {
  struct stat info {};
  const std::uint64_t inode = ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
  return fmt::format("{} {}{}{}\n", file_id, inode, changed.empty() ? "" : " ", changed);
}

struct Stored {
  std::uint32_t generation = 0;
  std::string file_id;
  FencingToken next_token = 1;
};

/// False for a schema before 004 (tests open them).
bool has_generations(Connection& db) {
  Query query(
      db.statement("SELECT count(*) FROM pragma_table_info('counters') "
                   "WHERE name = 'file_id'"));
  query.next();
  return query.integer(0) > 0;
}

std::optional<Stored> read_stored(Connection& db) {
  if (!has_generations(db)) return std::nullopt;
  Query query(db.statement("SELECT generation, file_id, next_token FROM counters"));
  if (!query.next()) return std::nullopt;
  return Stored{query.u32(0), query.text(1), query.u64(2)};
}

/// Both or, after a crash in between, one that raises the generation next time.
Result<std::string> name_anew(Connection& db, const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t number, random_number());
  const std::string file_id = fmt::format("{:016x}", number);
  Query(db.statement("UPDATE counters SET file_id = ?"), file_id).run();
  TAILOR_RETURN_IF_ERROR(write_file_atomic(beside(path), note_of(file_id, path), true));
  return file_id;
}

std::string why_not_the_same(const Stored& stored, const std::string& path,
                             const std::string& changed) {
  if (stored.file_id == kBackup) return "it is a backup that was put here";
  const Result<std::string> note = read_file(beside(path));
  if (!note) {
    return stored.file_id.empty() ? "" : fmt::format("{} is missing", beside(path));
  }
  if (*note == note_of(stored.file_id, path)) return "";
  if (*note == note_of(stored.file_id, path, changed)) return "";
  return fmt::format("it is not the file that {} belongs to", beside(path));
}

/// The next generation; tokens of it are above all earlier ones.
Result<std::uint32_t> next_generation(const Stored& stored, const std::string& path) {
  const auto reached = static_cast<std::uint32_t>(
      std::min<FencingToken>(stored.next_token >> kGenerationShift, kGenerationMax));
  const std::uint32_t from = std::max(stored.generation, reached);
  if (from >= kGenerationMax) {
    return error(Code::kResourceExhausted,
                 fmt::format("{}: the database was restored too often: no generation is left; "
                             "begin a new database",
                             path));
  }
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t number, random_number());
  const std::uint32_t step = std::clamp<std::uint32_t>((kGenerationMax - from) / 16, 1, kStepMax);
  return from + 1 + static_cast<std::uint32_t>(number % step);
}

}  // namespace

std::string last_change(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return fmt::format("{}.{:09}", info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

Result<std::string> settle_generation(Connection& db, const std::string& path,
                                      const std::string& changed) {
  const std::optional<Stored> stored = read_stored(db);
  if (!stored) return std::string();  // nothing was ever given out
  std::string said;
  if (const std::string why = why_not_the_same(*stored, path, changed); !why.empty()) {
    TAILOR_ASSIGN_OR_RETURN(const std::uint32_t generation, next_generation(*stored, path));
    said = fmt::format("the database goes on as generation {:x}: {}", generation, why);
    Query(db.statement("BEGIN IMMEDIATE")).run();
    Query(db.statement("UPDATE counters SET generation = ?, next_token = ?"), generation,
          FencingToken{generation} << kGenerationShift)
        .run();
    Query(db.statement("INSERT INTO event (wall_ms, kind, sweep, trial, attempt, worker, message) "
                       "VALUES (?, ?, 0, 0, 0, 0, ?)"),
          SystemClock().wall_ms(), event_kind_name(EventKind::kDatabaseRestored), said)
        .run();
    Query(db.statement("COMMIT")).run();
  }
  const auto named = name_anew(db, path);
  if (!named) return error(named.error());
  return said;
}

std::string rename_generation(Connection& db, const std::string& path) {
  std::string file_id;
  (void)guarded(db.handle(), path, [&]() -> Status {
    if (!read_stored(db)) return {};
    TAILOR_ASSIGN_OR_RETURN(file_id, name_anew(db, path));
    return {};
  });
  return file_id;
}

void note_closed(const std::string& file_id, const std::string& path) {
  if (file_id.empty()) return;
  (void)write_file_atomic(beside(path), note_of(file_id, path, last_change(path)), true);
}

void mark_backup(Connection& copy) {
  if (!has_generations(copy)) return;
  // Also of a database that has given out nothing yet: what lives after the backup will have.
  Query(copy.statement("INSERT INTO counters (id, next_sweep, next_trial, next_worker, next_token, "
                       "file_id) VALUES (1, 1, 1, 1, 1, ?1) ON CONFLICT (id) DO UPDATE SET "
                       "file_id = excluded.file_id"),
        kBackup)
      .run();
}

}  // namespace tailor::storage
