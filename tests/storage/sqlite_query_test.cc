// Users' SQL: what it answers, and everything that it must not be able to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "rows.h"
#include "storage/sqlite_store.h"
#include "tests/support/small_stack.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Cells = std::vector<std::optional<std::string>>;

class SqliteQuery : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_sqlite(folder_.file("a.db"), {.allow_network_file_system = true});
    ASSERT_TRUE(opened.has_value()) << status_of(opened).to_string();
    store_ = *std::move(opened);
    std::vector<Mutation> batch = make_base();
    TrialRow trial = make_trial(1);
    trial.state = TrialState::kCompleted;
    trial.objective = 3.25;
    batch.emplace_back(trial);
    for (int step = 0; step < 700; ++step)
      batch.emplace_back(make_point(1, 1, "loss", step, 0.5 * step));
    batch.emplace_back(make_point(1, 1, "lr", 0, 0.001));
    ASSERT_TRUE(store_->commit(batch).is_ok());
    while (store_->maintain().value_or(false)) {  // seals
    }
  }
  /// An answer as text, NULL as nullopt.
  struct Texts {
    std::vector<std::string> columns;
    std::vector<Cells> rows;
    bool truncated = false;
  };
  Texts rows(const std::string& sql, const QueryLimits& limits = {}) {
    auto table = store_->query(sql, limits);
    EXPECT_TRUE(table.has_value()) << sql << ": " << status_of(table).to_string();
    if (!table) return {};
    Texts texts{table->columns, {}, table->truncated};
    for (const auto& row : table->rows) {
      Cells& cells = texts.rows.emplace_back();
      for (const Cell& cell : row) {
        cells.push_back(cell.kind == Cell::Kind::kNull ? std::nullopt : std::optional(cell.text));
      }
    }
    return texts;
  }
  Status status(const std::string& sql, const QueryLimits& limits = {}) {
    return status_of(store_->query(sql, limits));
  }

  TemporaryFolder folder_;
  std::unique_ptr<Store> store_;
};

TEST_F(SqliteQuery, AnswersWithColumnsAndNulls) {
  const Texts table =
      rows("SELECT 1 AS one, 'x' AS text, NULL AS missing, 0.1 AS real, x'00ff' AS blob");
  EXPECT_THAT(table.columns, ElementsAre("one", "text", "missing", "real", "blob"));
  EXPECT_THAT(table.rows, ElementsAre(Cells{"1", "x", std::nullopt, "0.1", "00ff"}));
  EXPECT_FALSE(table.truncated);
}

TEST_F(SqliteQuery, TheTrialViewNamesThings) {
  const Texts table = rows(
      "SELECT sweep, candidate, seed, state, objective, parameters_body, point FROM trial_view");
  EXPECT_THAT(table.rows, ElementsAre(Cells{"sweep-1", "k=1", "1", "completed", "3.25", "1000000",
                                            R"({"ffn.k":1})"}));
}

TEST_F(SqliteQuery, TheMetricViewsReadSealedAndNewPoints) {
  EXPECT_THAT(rows("SELECT count(*), min(step), max(step), sum(value) FROM metric_view WHERE "
                   "metric = 'loss'")
                  .rows,
              ElementsAre(Cells{"700", "0", "699", "122325"}));  // 0.5 * 699 * 700 / 2
  EXPECT_THAT(rows("SELECT metric, step, value FROM metric_latest_view ORDER BY metric").rows,
              ElementsAre(Cells{"loss", "699", "349.5"}, Cells{"lr", "0", "0.001"}));
  EXPECT_NE(rows("SELECT count(*) FROM metric_chunk").rows[0][0], "0")
      << "nothing was sealed: not tested";
}

TEST_F(SqliteQuery, TheRowLimitCutsAndSaysSo) {
  const Texts table = rows("SELECT step FROM metric_view", {.rows_max = 10, .stop = {}});
  EXPECT_EQ(table.rows.size(), 10u);
  EXPECT_TRUE(table.truncated);
  EXPECT_FALSE(rows("SELECT 1 UNION SELECT 2", {.rows_max = 2, .stop = {}}).truncated);
}

TEST_F(SqliteQuery, EverythingButReadingIsDenied) {
  const std::string before = *read_file(folder_.file("a.db"));
  for (const char* sql : {"DELETE FROM trial",
                          "INSERT INTO event VALUES (1,1,'k',0,0,0,0,'')",
                          "UPDATE trial SET seed = 1",
                          "DROP TABLE trial",
                          "CREATE TABLE x (a)",
                          "CREATE TEMP TABLE x (a)",
                          "CREATE INDEX i ON trial (seed)",
                          "ATTACH ':memory:' AS other",
                          "DETACH main",
                          "PRAGMA user_version",
                          "PRAGMA journal_mode = DELETE",
                          "PRAGMA query_only = 0",
                          "BEGIN",
                          "COMMIT",
                          "SAVEPOINT s",
                          "VACUUM",
                          "VACUUM INTO '/tmp/out.db'",
                          "REINDEX",
                          "ANALYZE",
                          "ALTER TABLE trial RENAME TO t",
                          "SELECT load_extension('x')",
                          "SELECT * FROM pragma_table_info('trial')",
                          "DROP VIEW metric_view",
                          "CREATE TRIGGER t AFTER INSERT ON event BEGIN SELECT 1; END"}) {
    const Status denied = status(sql);
    EXPECT_EQ(denied.code(), Code::kPermissionDenied) << sql << ": " << denied.to_string();
  }
  EXPECT_EQ(*read_file(folder_.file("a.db")), before);
  EXPECT_TRUE(store_->trial(TrialId{1}).has_value());
}

TEST_F(SqliteQuery, WrongSqlIsTheUsersAndSaysWhere) {
  EXPECT_EQ(status("SELEC 1").code(), Code::kInvalidArgument);
  EXPECT_THAT(status("SELECT nme FROM trial").message(), HasSubstr("nme"));
  EXPECT_EQ(status("").code(), Code::kInvalidArgument);
  EXPECT_EQ(status("  -- nothing").code(), Code::kInvalidArgument);
  EXPECT_EQ(status("SELECT abs(-9223372036854775808)").code(), Code::kInvalidArgument);
}

TEST_F(SqliteQuery, NestingThatNeedsADeepStackIsRefused) {
  const auto times = [](int n, const std::string& part) {
    std::string text;
    for (int i = 0; i < n; ++i) text += part;
    return text;
  };
  test::on_small_stack([&] {
    for (const int n : {95, 900, 5000, 30'000}) {
      // Within the limits or refused, but the program goes on.
      for (const std::string& sql :
           {"SELECT 1" + times(n, "+1"), "SELECT " + times(n, "(") + "1" + times(n, ")"),
            "SELECT " + times(n, "NOT ") + "1", "SELECT " + times(n, "- ") + "1",
            "SELECT " + times(n, "abs(") + "1" + times(n, ")"),
            "SELECT " + times(n, "CASE WHEN ") + "1" + times(n, " THEN 1 END"),
            "SELECT * FROM " + times(n, "(SELECT * FROM ") + "trial_view" + times(n, ")"),
            "SELECT 1" + times(n, " UNION SELECT 1"), "SELECT 1" + times(n, ",1"),
            "SELECT 1" + times(n, " || 'x'"), "SELECT 1" + times(n, " AND 1"),
            "SELECT '" + times(n, "a") + "' LIKE '" + times(n, "%a") + "b'",
            "SELECT '" + times(n, "a") + "' GLOB '" + times(n, "*a") + "b'",
            "SELECT json('" + times(n, "[") + times(n, "]") + "')",
            "SELECT json_extract('" + times(n, "[") + times(n, "]") + "', '$" + times(n, "[0]") +
                "')"}) {
        (void)store_->query(sql, {});
      }
    }
    EXPECT_EQ(status("SELECT 1" + times(900, "+1")).code(), Code::kInvalidArgument);
    EXPECT_EQ(status("SELECT 'a' LIKE '" + times(1000, "%a") + "'").code(), Code::kInvalidArgument);
  });
  EXPECT_EQ(rows("SELECT 1" + times(90, "+1")).rows, (std::vector<Cells>{{"91"}}));
  EXPECT_EQ(rows("SELECT 1" + times(40, " UNION ALL SELECT 1")).rows.size(), 41u);
}

TEST_F(SqliteQuery, BytesBehindANulAreNotPassedOver) {
  EXPECT_EQ(status(std::string("SELECT 1\0 garbage", 17)).code(), Code::kInvalidArgument);
  EXPECT_EQ(status(std::string("SELECT 1\0", 9)).code(), Code::kInvalidArgument);
}

TEST_F(SqliteQuery, OneStatementAtATime) {
  EXPECT_EQ(status("SELECT 1; SELECT 2").code(), Code::kInvalidArgument);
  EXPECT_EQ(status("SELECT 1; DELETE FROM trial").code(), Code::kInvalidArgument);
  EXPECT_EQ(status("SELECT 1; nonsense").code(), Code::kInvalidArgument);
  EXPECT_TRUE(status("SELECT 1;  -- the end").is_ok());
}

TEST_F(SqliteQuery, AnEndlessQueryIsStopped) {
  const Status late =
      status("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
             {.time_ms_max = 50, .stop = {}});
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.to_string();
  EXPECT_TRUE(store_->trial(TrialId{1}).has_value());
}

// SQLite writes a table expression out once for each place that names it: 2^30 here.
TEST_F(SqliteQuery, AQueryThatNeedsAllMemoryIsRefused) {
  std::string sql = "WITH a0 AS (SELECT 1 x)";
  for (int i = 1; i <= 30; ++i) {
    sql += ", a" + std::to_string(i) + " AS (SELECT * FROM a" + std::to_string(i - 1) +
           " UNION ALL SELECT * FROM a" + std::to_string(i - 1) + ")";
  }
  const Status refused = status(sql + " SELECT count(*) FROM a30");
  EXPECT_TRUE(refused.code() == Code::kResourceExhausted ||
              refused.code() == Code::kDeadlineExceeded)
      << refused.to_string();
  EXPECT_TRUE(store_->trial(TrialId{1}).has_value());
}

TEST_F(SqliteQuery, AHugeValueIsRefused) {
  EXPECT_EQ(status("SELECT zeroblob(1000000000)").code(), Code::kInvalidArgument);
}

TEST_F(SqliteQuery, ValuesKeepTheirTypesAndTheirLastBit) {
  const auto table = store_->query(
      "SELECT 9223372036854775807, -9223372036854775808, 0.1, 5.0, 9e999, -9e999, NULL, '12', "
      "x'00ff', ''",
      {});
  ASSERT_TRUE(table.has_value()) << status_of(table).to_string();
  using Kind = Cell::Kind;
  EXPECT_THAT(table->rows, ElementsAre(std::vector<Cell>{{Kind::kInteger, "9223372036854775807"},
                                                         {Kind::kInteger, "-9223372036854775808"},
                                                         {Kind::kReal, "0.1"},
                                                         {Kind::kReal, "5"},
                                                         {Kind::kReal, "inf"},
                                                         {Kind::kReal, "-inf"},
                                                         {Kind::kNull, ""},
                                                         {Kind::kText, "12"},
                                                         {Kind::kBytes, "00ff"},
                                                         {Kind::kText, ""}}));
}

TEST_F(SqliteQuery, TheBestViewHasFiniteObjectivesInTheirOrderAndNothingElse) {
  std::vector<Mutation> batch = {make_sweep(2), make_candidate(2, 0)};
  const auto add = [&](std::uint64_t id, std::uint64_t sweep, TrialState state,
                       std::optional<double> objective) {
    TrialRow trial = make_trial(id, sweep);
    trial.state = state;
    trial.objective = objective;
    batch.emplace_back(trial);
  };
  add(10, 1, TrialState::kFailed, std::nullopt);
  add(11, 1, TrialState::kCompleted, 2.5);
  add(12, 1, TrialState::kFailed, std::nan(""));
  add(13, 1, TrialState::kCompleted, std::numeric_limits<double>::infinity());
  add(14, 1, TrialState::kCompleted, 2.5);
  add(15, 2, TrialState::kCompleted, 9.0);
  ASSERT_TRUE(store_->commit(batch).is_ok());
  EXPECT_THAT(
      rows("SELECT place, trial, objective FROM best_view WHERE sweep = 'sweep-1' ORDER BY place")
          .rows,
      ElementsAre(Cells{"1", "11", "2.5"}, Cells{"2", "14", "2.5"}, Cells{"3", "1", "3.25"}));
  EXPECT_THAT(rows("SELECT place, trial FROM best_view WHERE sweep = 'sweep-2'").rows,
              ElementsAre(Cells{"1", "15"}));
  EXPECT_THAT(rows("SELECT trial FROM trial_view ORDER BY objective NULLS LAST LIMIT 1").rows,
              ElementsAre(Cells{"11"}));
}

TEST_F(SqliteQuery, ARunningQueryEndsWhenItsCallerSaysSo) {
  int asked = 0;
  QueryLimits limits;
  limits.stop = [&asked]() -> Status {
    return ++asked < 3 ? Status::ok() : Status(Code::kCancelled, "the caller left");
  };
  const Status stopped =
      status("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
             limits);
  EXPECT_EQ(stopped.code(), Code::kCancelled) << stopped.to_string();
  EXPECT_EQ(stopped.message(), "the caller left");
  EXPECT_EQ(asked, 3);
}

TEST_F(SqliteQuery, AnAnswerIsCutBeforeItIsTooLargeToBeSent) {
  const std::string many =
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
      "SELECT hex(zeroblob(500)) FROM n";
  const Texts cut = rows(many, {.bytes_max = 10'000, .stop = {}});
  EXPECT_TRUE(cut.truncated);
  EXPECT_EQ(cut.rows.size(), 9u);  // of 1,016 bytes each
  const Status one = status(many, {.bytes_max = 500, .stop = {}});
  EXPECT_EQ(one.code(), Code::kInvalidArgument);
  EXPECT_THAT(one.message(), HasSubstr("first row"));
}

}  // namespace
}  // namespace tailor::storage
