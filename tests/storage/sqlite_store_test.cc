// What only the durable store has: ownership, refusals, backup.
#include "storage/sqlite_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "rows.h"
#include "storage/file_guard.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT
using test::TemporaryFolder;
using ::testing::HasSubstr;

const SqliteOptions kOptions{.allow_network_file_system = true};

std::unique_ptr<Store> open(const std::string& path, const SqliteOptions& options = kOptions) {
  auto store = open_sqlite(path, options);
  EXPECT_TRUE(store.has_value()) << status_of(store).to_string();
  return store ? *std::move(store) : nullptr;
}

Status open_status(const std::string& path, const SqliteOptions& options = kOptions) {
  return status_of(open_sqlite(path, options));
}

TEST(SqliteStore, ASecondCoordinatorIsRefusedAndToldWhoHasTheDatabase) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  const auto store = open(path);
  const Status second = open_status(path);
  EXPECT_EQ(second.code(), Code::kAlreadyExists);
  EXPECT_THAT(second.message(), HasSubstr("process " + std::to_string(::getpid())));
  EXPECT_THAT(second.message(), HasSubstr(path));
}

TEST(SqliteStore, ALinkToTheDatabaseIsTheSameDatabase) {
  const TemporaryFolder folder;
  const auto store = open(folder.file("a.db"));
  std::filesystem::create_symlink(folder.file("a.db"), folder.file("link.db"));
  EXPECT_EQ(open_status(folder.file("link.db")).code(), Code::kAlreadyExists);
}

TEST(SqliteStore, ADanglingLinkAndTheNameThatItLeadsToAreOneDatabase) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("data"));
  std::filesystem::create_symlink("data/a.db", folder.file("link.db"));
  std::filesystem::create_symlink("link.db", folder.file("second.db"));
  const auto store = open(folder.file("second.db"));  // nothing was there
  EXPECT_TRUE(std::filesystem::exists(folder.file("data/a.db")));
  EXPECT_EQ(open_status(folder.file("data/a.db")).code(), Code::kAlreadyExists);
  EXPECT_EQ(open_status(folder.file("link.db")).code(), Code::kAlreadyExists);
  std::filesystem::create_symlink(folder.file("data"), folder.file("folder"));
  EXPECT_EQ(open_status(folder.file("folder/a.db")).code(), Code::kAlreadyExists);
}

TEST(SqliteStore, LinksThatGoRoundAreRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(folder.file("b.db"), folder.file("a.db"));
  std::filesystem::create_symlink(folder.file("a.db"), folder.file("b.db"));
  EXPECT_EQ(open_status(folder.file("a.db")).code(), Code::kInvalidArgument);
}

TEST(SqliteStore, AHardLinkToTheDatabaseIsTheSameDatabase) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("a.db")).flush();  // an empty file is a new database
  std::filesystem::create_hard_link(folder.file("a.db"), folder.file("b.db"));
  const auto store = open(folder.file("a.db"));
  const Status second = open_status(folder.file("b.db"));
  EXPECT_EQ(second.code(), Code::kAlreadyExists) << second.to_string();
  EXPECT_THAT(second.message(), HasSubstr("b.db"));
}

TEST(SqliteStore, ADatabaseThatIsRemovedOrReplacedTakesNothingMore) {
  for (const std::string suffix : {"", "-wal"}) {
    for (const bool replaced : {false, true}) {
      const TemporaryFolder folder;
      const std::string path = folder.file("a.db");
      const auto store = open(path);
      ASSERT_TRUE(store->commit(make_base()).is_ok());
      EXPECT_TRUE(store->still_there().is_ok());
      std::filesystem::rename(path + suffix, folder.file("elsewhere"));
      if (replaced) std::ofstream(path + suffix) << "another file";
      const Status gone = store->still_there();
      EXPECT_EQ(gone.code(), Code::kDataLoss) << suffix << replaced;
      EXPECT_THAT(gone.message(), HasSubstr(path + suffix));
      EXPECT_THAT(gone.message(), HasSubstr(replaced ? "replaced" : "removed"));
      EXPECT_THAT(gone.message(), HasSubstr("backup"));
      EXPECT_EQ(store->commit(std::vector<Mutation>{make_sweep(2)}).code(), Code::kDataLoss);
      // Put back, it is the file that it was.
      std::filesystem::rename(folder.file("elsewhere"), path + suffix);
      EXPECT_TRUE(store->still_there().is_ok());
      EXPECT_TRUE(store->commit(std::vector<Mutation>{make_sweep(3)}).is_ok());
      EXPECT_EQ(store->sweeps()->size(), 2u) << "the refused batch is not there";
    }
  }
}

TEST(SqliteStore, TheDatabaseIsFreeAgainWhenTheStoreIsClosed) {
  const TemporaryFolder folder;
  open(folder.file("a.db"));
  open(folder.file("a.db"));
}

TEST(SqliteStore, NetworkFileSystemsAreKnownByTheirNumbers) {
  EXPECT_EQ(network_file_system_name(0x6969), "NFS");
  EXPECT_EQ(network_file_system_name(0xFF534D42), "CIFS");
  EXPECT_EQ(network_file_system_name(static_cast<std::int32_t>(0xFF534D42)),
            "CIFS");  // f_type is signed
  EXPECT_EQ(network_file_system_name(0x65735546), "FUSE");
  EXPECT_EQ(network_file_system_name(0xEF53), "");      // ext4
  EXPECT_EQ(network_file_system_name(0x01021994), "");  // tmpfs
  EXPECT_EQ(network_file_system_name(0x58465342), "");  // XFS
}

TEST(SqliteStore, MissingFoldersAndFoldersInThePlaceOfFilesAreRefused) {
  const TemporaryFolder folder;
  const Status missing = open_status(folder.file("no/such/a.db"));
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("no/such"));
  EXPECT_EQ(open_status(folder.path()).code(), Code::kInvalidArgument);
  EXPECT_EQ(open_status("").code(), Code::kInvalidArgument);
}

TEST(SqliteStore, AFileThatIsNoDatabaseIsRefusedAndLeftAlone) {
  const TemporaryFolder folder;
  const std::string text(5000, 'x');
  std::ofstream(folder.file("a.db")) << text;
  const Status status = open_status(folder.file("a.db"));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(folder.file("a.db")));
  EXPECT_THAT(status.message(), HasSubstr("backup"));
  EXPECT_EQ(*read_file(folder.file("a.db")), text);
}

TEST(SqliteStore, TheDatabaseOfAnotherProgramIsRefusedAndLeftAlone) {
  const TemporaryFolder folder;
  {
    SQLite::Database other(folder.file("a.db"), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    other.exec("CREATE TABLE bookmarks (url TEXT)");
  }
  const std::string before = *read_file(folder.file("a.db"));
  const Status status = open_status(folder.file("a.db"));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("another program"));
  EXPECT_EQ(*read_file(folder.file("a.db")), before);
}

TEST(SqliteStore, ADamagedOrCutFileIsRefusedWithWhatToDo) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  {
    const auto store = open(path);
    std::vector<Mutation> batch = make_base(200);
    ASSERT_TRUE(store->commit(batch).is_ok());
  }
  const std::string good = *read_file(path);
  const auto expect_refused = [&](const std::string& content, const std::string& what) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
    const Status status = open_status(path);
    EXPECT_EQ(status.code(), Code::kDataLoss) << what << ": " << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(path)) << what;
    EXPECT_THAT(status.message(), HasSubstr("backup")) << what;
  };
  expect_refused(good.substr(0, good.size() / 2), "cut in half");
  expect_refused(good.substr(0, 3000), "cut in the first page");
  std::string altered = good;
  for (std::size_t page = 1; page * 4096 < altered.size(); ++page) altered[page * 4096] = '\x77';
  expect_refused(altered, "page headers altered");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << good;
  EXPECT_TRUE(open_status(path).is_ok());
}

TEST(SqliteStore, AnAlteredChunkIsAnErrorOfItsSeriesOnly) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  {
    const auto store = open(path);
    std::vector<Mutation> batch = make_base(2);
    for (int step = 0; step < 600; ++step) {
      batch.emplace_back(make_point(1, 1, "loss", step, 1.0));
      batch.emplace_back(make_point(2, 1, "loss", step, 1.0));
    }
    ASSERT_TRUE(store->commit(batch).is_ok());
    while (store->maintain().value_or(false)) {
    }
  }
  {
    SQLite::Database db(path, SQLite::OPEN_READWRITE);
    ASSERT_EQ(db.exec("UPDATE metric_chunk SET data = substr(data, 1, 20) WHERE id = "
                      "(SELECT id FROM metric_chunk WHERE attempt >> 20 = 1 LIMIT 1)"),
              1);
  }
  const auto store = open(path);
  EXPECT_EQ(store->series(TrialId{1}, "loss").error().code(), Code::kDataLoss);
  EXPECT_EQ(store->series(TrialId{2}, "loss")->steps.size(), 600u);
  EXPECT_TRUE(store->trial(TrialId{1}).has_value());
}

TEST(SqliteStore, TheFileIsInWalModeWithFullSync) {
  const TemporaryFolder folder;
  const auto store = open(folder.file("a.db"));
  SQLite::Database db(folder.file("a.db"), SQLite::OPEN_READONLY);
  EXPECT_EQ(db.execAndGet("PRAGMA journal_mode").getString(), "wal");
}

// A commit never copies the log; the store's own thread does, and then it is begun anew.
TEST(SqliteStore, TheLogIsBoundedWhileNobodyReadsAnOldState) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  const auto store = open(path);
  ASSERT_TRUE(store->commit(make_base()).is_ok());
  const auto log_bytes = [&] { return std::filesystem::file_size(path + "-wal"); };
  const auto write = [&](std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t i = from; i < to; ++i) {
      const std::vector<Mutation> batch{
          LogRow{{TrialId{1}, 1}, i * 100'000, std::string(100'000, 'x')}};
      ASSERT_TRUE(store->commit(batch).is_ok());
    }
  };
  const auto wait_until = [&](const std::function<bool()>& condition) {
    const SystemClock clock;
    for (const MonotonicMs limit = clock.now_ms() + 60'000; clock.now_ms() < limit;) {
      if (condition()) return true;
      // What is begun anew is seen by a commit that writes something.
      const std::vector<Mutation> batch{EventRow{0, 1, EventKind::kTrialQueued, {}, {}, 0, {}, ""}};
      if (!store->commit(batch).is_ok()) return false;
      std::this_thread::yield();
    }
    return condition();
  };
  write(0, 100);  // 10 MB
  EXPECT_TRUE(wait_until([&] { return store->health().log_bytes < (4u << 20); }));
  {
    SQLite::Database reader(path, SQLite::OPEN_READONLY);
    reader.exec("BEGIN");
    reader.execAndGet("SELECT count(*) FROM trial");
    write(100, 300);  // 20 MB that the reader holds on to
    EXPECT_TRUE(wait_until([&] { return store->health().log_held_since_ms != 0; }));
    EXPECT_GT(log_bytes(), 20'000'000u);
  }
  write(300, 400);
  EXPECT_TRUE(wait_until([&] {
    return store->health().log_held_since_ms == 0 && store->health().log_bytes < (4u << 20);
  }));
  EXPECT_TRUE(store->health().upkeep.is_ok());
  EXPECT_EQ(store->log({TrialId{1}, 1}, 0, 50'000'000)->size(), 40'000'000u);
}

TEST(SqliteStore, ReadersSeeWholeBatchesWhileTheWriterWrites) {
  const TemporaryFolder folder;
  const auto store = open(folder.file("a.db"));
  ASSERT_TRUE(store->commit(make_base()).is_ok());
  std::atomic<bool> stop = false;
  std::atomic<int> torn = 0;
  std::atomic<int> failed = 0;
  std::atomic<int> reads = 0;
  std::vector<std::jthread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        // Every batch adds the same number of points: a part of one would show.
        const auto series = store->series(TrialId{1}, "loss");
        const auto trials = store->trials({});
        if (!series || !trials) {
          ++failed;
        } else if (series->steps.size() % 70 != 0) {
          ++torn;
        }
        ++reads;
      }
    });
  }
  std::int64_t step = 0;
  for (int batch_number = 0; batch_number < 60 || reads < 20; ++batch_number) {
    std::vector<Mutation> batch;
    for (int i = 0; i < 70; ++i, ++step) batch.emplace_back(make_point(1, 1, "loss", step, 1.0));
    ASSERT_TRUE(store->commit(batch).is_ok());
  }
  stop = true;
  readers.clear();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(store->series(TrialId{1}, "loss")->steps.size(), static_cast<std::size_t>(step));
}

TEST(SqliteStore, ABackupMadeWhileRunningOpensWithEverythingInIt) {
  const TemporaryFolder folder;
  const auto store = open(folder.file("a.db"));
  std::vector<Mutation> batch = make_base(3);
  for (int step = 0; step < 1000; ++step)
    batch.emplace_back(make_point(1, 1, "loss", step, 0.1 * step));
  ASSERT_TRUE(store->commit(batch).is_ok());
  const Status status = store->backup(folder.file("copy.db"));
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  ASSERT_TRUE(store->commit(std::vector<Mutation>{make_sweep(2)}).is_ok());
  ASSERT_TRUE(store->backup(folder.file("copy.db")).is_ok()) << "over an older backup";
  EXPECT_FALSE(std::filesystem::exists(folder.file("copy.db-wal")));
  const auto copy = open(folder.file("copy.db"));
  EXPECT_EQ(copy->sweeps()->size(), 2u);
  EXPECT_EQ(copy->series(TrialId{1}, "loss")->values, store->series(TrialId{1}, "loss")->values);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

TEST(SqliteStore, ABackupOntoItselfOrOntoAnOpenDatabaseIsRefused) {
  const TemporaryFolder folder;
  const auto store = open(folder.file("a.db"));
  const auto other = open(folder.file("b.db"));
  ASSERT_TRUE(store->commit(make_base()).is_ok());
  EXPECT_EQ(store->backup(folder.file("a.db")).code(), Code::kInvalidArgument);
  EXPECT_EQ(store->backup(folder.file("b.db")).code(), Code::kFailedPrecondition);
  EXPECT_EQ(store->backup(folder.file("no/such/c.db")).code(), Code::kNotFound);
  EXPECT_EQ(store->backup(folder.path()).code(), Code::kInvalidArgument);
  EXPECT_EQ(store->backup("").code(), Code::kInvalidArgument);
  EXPECT_EQ(store->sweeps()->size(), 1u);
}

TEST(SqliteStore, ABackupOfADamagedDatabaseIsNotCalledOne) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  {
    const auto store = open(path);
    ASSERT_TRUE(store->commit(make_base(300)).is_ok());
  }
  std::string altered = *read_file(path);
  altered[altered.size() - 4096] = '\x77';  // the header of the last page
  std::ofstream(path, std::ios::binary | std::ios::trunc) << altered;
  SqliteOptions trusting = kOptions;
  trusting.quick_check_bytes_max = 0;
  const auto store = open(path, trusting);
  const Status status = store->backup(folder.file("copy.db"));
  EXPECT_EQ(status.code(), Code::kDataLoss) << status.to_string();
  EXPECT_FALSE(std::filesystem::exists(folder.file("copy.db")));
}

}  // namespace
}  // namespace tailor::storage
