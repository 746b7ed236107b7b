// Users' SQL.
#include "storage/guarded_query.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <vector>

#include "storage/chunk.h"
#include "storage/query_memory.h"
#include "storage/sqlite_connection.h"

namespace tailor::storage {
namespace {

constexpr int kProgressInstructions = 1000;  // of SQLite's machine, between two looks at the clock
constexpr int kValueBytesMax = 16 << 20;     // of one value: above any that is stored
constexpr std::int64_t kQueryBytesMax = 256 << 20;  // that SQLite holds for one query
constexpr std::uint64_t kCellBytes = 16;            // of one value in an answer, beside its text
constexpr int kExpressionDepthMax = 100;
constexpr int kCompoundMax = 50;
constexpr int kPatternBytesMax = 500;  // of LIKE and GLOB
constexpr int kColumnsMax = 500;
constexpr std::array<std::string_view, 6> kForbiddenFunctions{
    "load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "sqlite_log"};

struct Guard {
  bool denied = false;
  std::string what;  // was denied
  MonotonicMs deadline_ms = 0;
  bool late = false;
  const Clock* clock = nullptr;
  const std::function<Status()>* stop = nullptr;
  Status stopped;  // what `stop` said
  const QueryMemory* memory = nullptr;
};

int authorize(void* context, int action, const char* first, const char* second, const char*,
              const char*) {
  auto& guard = *static_cast<Guard*>(context);
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_FUNCTION: {
      const std::string name = second != nullptr ? second : "";
      for (const std::string_view forbidden : kForbiddenFunctions) {
        if (sqlite3_stricmp(name.c_str(), std::string(forbidden).c_str()) == 0) {
          guard.denied = true;
          guard.what = "the function " + name;
          return SQLITE_DENY;
        }
      }
      return SQLITE_OK;
    }
    default:
      guard.denied = true;
      guard.what = first != nullptr && action == SQLITE_PRAGMA ? fmt::format("PRAGMA {}", first)
                                                               : std::string("anything but SELECT");
      return SQLITE_DENY;
  }
}

int progress(void* context) {
  auto& guard = *static_cast<Guard*>(context);
  guard.late = guard.late || guard.clock->now_ms() >= guard.deadline_ms;
  if (!guard.late && guard.stopped.is_ok() && *guard.stop) guard.stopped = (*guard.stop)();
  return guard.late || !guard.stopped.is_ok() ? 1 : 0;
}

std::string json_value(double value) {
  if (std::isnan(value)) return "null";
  if (std::isinf(value)) return value > 0 ? "9e999" : "-9e999";
  return fmt::format("{}", value);
}

std::string json_of(const Point& point) {
  return fmt::format("[{},{},{},{}]", point.step, point.tokens, point.wall_ms,
                     json_value(point.value));
}

std::string json_of(const TailPoint& one) {
  return fmt::format("[{},{},{},{},{},{}]", one.point.step, one.point.tokens, one.point.wall_ms,
                     json_value(one.point.value), one.series.attempt, one.series.metric);
}

// FUNCTION(BLOB) -> '[[step,tokens,wall_ms,value],…]', the value null for NaN; of a row of the tail
// with attempt and metric behind it.
template <auto Decode>
void points_json(sqlite3_context* context, int, sqlite3_value** arguments) {
  const void* data = sqlite3_value_blob(arguments[0]);
  const int size = sqlite3_value_bytes(arguments[0]);
  if (data == nullptr) {
    sqlite3_result_null(context);
    return;
  }
  try {
    const auto points =
        Decode(std::string_view(static_cast<const char*>(data), static_cast<std::size_t>(size)));
    if (!points) {
      sqlite3_result_error(context, points.error().message().c_str(), -1);
      sqlite3_result_error_code(context, SQLITE_CORRUPT);
      return;
    }
    std::string json = "[";
    for (const auto& point : *points) {
      if (json.size() > 1) json += ",";
      json += json_of(point);
    }
    json += "]";
    sqlite3_result_text(context, json.data(), static_cast<int>(json.size()), SQLITE_TRANSIENT);
  } catch (const std::bad_alloc&) {
    sqlite3_result_error_nomem(context);
  }
}

// Temporary views, since views of the schema may only use functions that every SQLite shell has.
// `place`: the number of the point in the tail, by which a series is in order.
constexpr const char* kMetricViews =
    "CREATE TEMP VIEW tail_point AS "
    "SELECT t.id + p.key AS place, json_extract(p.value, '$[4]') AS attempt, "
    "json_extract(p.value, '$[5]') AS metric, json_extract(p.value, '$[0]') AS step, "
    "json_extract(p.value, '$[1]') AS tokens, json_extract(p.value, '$[2]') AS wall_ms, "
    "CAST(json_extract(p.value, '$[3]') AS REAL) AS value "
    "FROM main.metric_tail t JOIN json_each(tailor_tail_json(t.data)) p;"
    "CREATE TEMP VIEW metric_view AS "
    "SELECT c.attempt >> 20 AS trial, c.attempt & 1048575 AS attempt, m.name AS metric, "
    "json_extract(p.value, '$[0]') AS step, json_extract(p.value, '$[1]') AS tokens, "
    "json_extract(p.value, '$[2]') AS wall_ms, CAST(json_extract(p.value, '$[3]') AS REAL) AS "
    "value "
    "FROM main.metric_chunk c JOIN main.metric m ON m.id = c.metric "
    "JOIN json_each(tailor_chunk_json(c.data)) p "
    "UNION ALL "
    "SELECT t.attempt >> 20, t.attempt & 1048575, m.name, t.step, t.tokens, t.wall_ms, t.value "
    "FROM tail_point t JOIN main.metric m ON m.id = t.metric "
    "WHERE t.place >= coalesce((SELECT c.tail_to FROM main.metric_chunk c WHERE "
    "c.attempt = t.attempt AND c.metric = t.metric ORDER BY c.id DESC LIMIT 1), 0);"
    "CREATE TEMP VIEW metric_latest_view AS "
    "SELECT l.attempt >> 20 AS trial, l.attempt & 1048575 AS attempt, m.name AS metric, l.step AS "
    "step, l.tokens AS tokens, l.wall_ms AS wall_ms, l.value AS value "
    "FROM (SELECT *, row_number() OVER (PARTITION BY attempt, metric ORDER BY place DESC) AS nth "
    "FROM (SELECT attempt, metric, place, json_extract(last, '$[0]') AS step, "
    "json_extract(last, '$[1]') AS tokens, json_extract(last, '$[2]') AS wall_ms, "
    "CAST(json_extract(last, '$[3]') AS REAL) AS value FROM "
    "(SELECT attempt, metric, tail_to - 1 AS place, "
    "json_extract(tailor_chunk_json(data), '$[#-1]') AS last FROM main.metric_chunk "
    "WHERE id IN (SELECT max(id) FROM main.metric_chunk GROUP BY attempt, metric)) "
    "UNION ALL SELECT attempt, metric, place, step, tokens, wall_ms, value FROM tail_point)) l "
    "JOIN main.metric m ON m.id = l.metric WHERE l.nth = 1;";

void prepare_connection(Connection& db, Guard& guard) {
  sqlite3* handle = db.handle();
  sqlite3_db_config(handle, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_create_function_v2(handle, "tailor_chunk_json", 1,
                             SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, nullptr,
                             points_json<decode_chunk>, nullptr, nullptr, nullptr);
  sqlite3_create_function_v2(handle, "tailor_tail_json", 1,
                             SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, nullptr,
                             points_json<decode_tail>, nullptr, nullptr, nullptr);
  db.db().exec(kMetricViews);
  db.db().exec("PRAGMA query_only = 1");
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kValueBytesMax);
  sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
  // SQLite recurses along all of these, and its defaults (1,000 levels, 500 SELECTs, patterns of
  // 50,000) want megabytes of a thread's stack.
  sqlite3_limit(handle, SQLITE_LIMIT_EXPR_DEPTH, kExpressionDepthMax);
  sqlite3_limit(handle, SQLITE_LIMIT_COMPOUND_SELECT, kCompoundMax);
  sqlite3_limit(handle, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, kPatternBytesMax);
  sqlite3_limit(handle, SQLITE_LIMIT_COLUMN, kColumnsMax);
  sqlite3_set_authorizer(handle, authorize, &guard);
  sqlite3_progress_handler(handle, kProgressInstructions, progress, &guard);
}

// The Status for whatever SQLite said to a user's statement.
Status user_status(const Guard& guard, Connection& db, int result, const QueryLimits& limits,
                   const std::string& path) {
  if (guard.denied) {
    return Status(Code::kPermissionDenied,
                  fmt::format("queries only read: {} is not allowed", guard.what));
  }
  if (guard.late) {
    return Status(Code::kDeadlineExceeded,
                  fmt::format("the query ran longer than {} ms; narrow it, or give it more time",
                              limits.time_ms_max));
  }
  if (!guard.stopped.is_ok()) return guard.stopped;
  if (guard.memory != nullptr && guard.memory->exceeded()) {
    return Status(Code::kResourceExhausted,
                  fmt::format("SQL: the query needs more than {} MiB of memory; narrow it",
                              kQueryBytesMax >> 20));
  }
  const std::string why = sqlite3_errmsg(db.handle());
  const int primary = result & 0xff;
  if (primary == SQLITE_ERROR || primary == SQLITE_TOOBIG || primary == SQLITE_RANGE ||
      primary == SQLITE_MISMATCH) {
    return Status(Code::kInvalidArgument, "SQL: " + why);
  }
  return sqlite_status(SQLite::Exception(db.handle(), result), db.handle(), path);
}

// Owns one statement of the C interface: SQLiteCpp's hides what comes after the first statement.
class RawStatement {
 public:
  RawStatement() = default;
  ~RawStatement() { sqlite3_finalize(statement_); }
  RawStatement(const RawStatement&) = delete;
  RawStatement& operator=(const RawStatement&) = delete;
  sqlite3_stmt** out() { return &statement_; }
  sqlite3_stmt* get() { return statement_; }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

Cell cell_of(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_NULL:
      return {};
    case SQLITE_INTEGER:
      return {Cell::Kind::kInteger, std::to_string(sqlite3_column_int64(statement, column))};
    case SQLITE_FLOAT:
      return {Cell::Kind::kReal, fmt::format("{}", sqlite3_column_double(statement, column))};
    case SQLITE_BLOB: {
      const auto* data = static_cast<const unsigned char*>(sqlite3_column_blob(statement, column));
      const int bytes = sqlite3_column_bytes(statement, column);
      return {Cell::Kind::kBytes, fmt::format("{:02x}", fmt::join(data, data + bytes, ""))};
    }
    default: {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
      const int bytes = sqlite3_column_bytes(statement, column);
      return {Cell::Kind::kText, std::string(text, static_cast<std::size_t>(bytes))};
    }
  }
}

}  // namespace

Result<Table> guarded_query(const std::string& path, std::string_view sql,
                            const QueryLimits& limits, const Clock& clock) {
  if (sql.size() > 1'000'000) return error(Code::kInvalidArgument, "SQL: the text is over 1 MB");
  if (sql.find('\0') != sql.npos) {  // the end of the text to SQLite
    return error(Code::kInvalidArgument, "SQL: the text holds a NUL byte");
  }
  Guard guard;
  guard.clock = &clock;
  guard.stop = &limits.stop;
  guard.deadline_ms = clock.now_ms() + std::max<std::int64_t>(limits.time_ms_max, 0);
  Result<Table> answer = guarded(nullptr, path, [&]() -> Result<Table> {
    install_query_memory();
    const QueryMemory memory(kQueryBytesMax, [&guard] { return progress(&guard) != 0; });
    guard.memory = &memory;
    Connection db(path, SQLite::OPEN_READONLY);
    prepare_connection(db, guard);
    RawStatement statement;
    const char* rest = nullptr;
    int result = sqlite3_prepare_v2(db.handle(), sql.data(), static_cast<int>(sql.size()),
                                    statement.out(), &rest);
    if (result != SQLITE_OK) return error(user_status(guard, db, result, limits, path));
    if (statement.get() == nullptr)
      return error(Code::kInvalidArgument, "SQL: there is no statement");
    RawStatement second;
    const auto left = static_cast<int>(sql.data() + sql.size() - rest);
    if (sqlite3_prepare_v2(db.handle(), rest, left, second.out(), nullptr) != SQLITE_OK ||
        second.get() != nullptr) {
      return error(Code::kInvalidArgument, "SQL: one statement at a time");
    }
    Table table;
    const int columns = sqlite3_column_count(statement.get());
    for (int i = 0; i < columns; ++i)
      table.columns.emplace_back(sqlite3_column_name(statement.get(), i));
    std::uint64_t bytes = 0;
    while ((result = sqlite3_step(statement.get())) == SQLITE_ROW) {
      if (table.rows.size() >= limits.rows_max) {
        table.truncated = true;
        return table;
      }
      std::vector<Cell> row;
      for (int i = 0; i < columns; ++i) {
        row.push_back(cell_of(statement.get(), i));
        bytes += row.back().text.size() + kCellBytes;
        if (bytes > limits.bytes_max) break;  // of one row alone
      }
      if (bytes > limits.bytes_max) {
        if (table.rows.empty()) {
          return error(
              Code::kInvalidArgument,
              fmt::format(
                  "SQL: the first row alone has over {} bytes; take substr() of long values",
                  limits.bytes_max));
        }
        table.truncated = true;
        return table;
      }
      table.rows.push_back(std::move(row));
    }
    if (result != SQLITE_DONE) return error(user_status(guard, db, result, limits, path));
    return table;
  });
  // An allocation that was refused on behalf of `stop` may have come before the statement.
  if (!answer && !guard.stopped.is_ok()) return error(guard.stopped);
  return answer;
}

}  // namespace tailor::storage
