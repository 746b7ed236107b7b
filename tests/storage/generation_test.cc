// Generations: a database that is not the one that was here last gives out tokens of its own.
#include "storage/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "rows.h"
#include "storage/migrations.h"
#include "storage/sqlite_store.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT
using test::TemporaryFolder;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Generations : public ::testing::Test {
 protected:
  void SetUp() override { path_ = folder_.file("a.db"); }

  std::unique_ptr<Store> open(const std::string& path) {
    SqliteOptions options;
    options.allow_network_file_system = true;
    options.notice = [this](const std::string& text) { notice_ = text; };
    notice_.clear();
    auto store = open_sqlite(path, options);
    EXPECT_TRUE(store.has_value()) << status_of(store).to_string();
    return store ? std::move(*store) : nullptr;
  }
  CountersRow counters(Store& store) { return store.load_open()->counters; }
  /// Gives out `tokens` more, as the core does: the row it loaded, with another number.
  void give_out(Store& store, std::uint64_t tokens) {
    CountersRow row = counters(store);
    row.next_token += tokens;
    ASSERT_TRUE(store.commit(std::vector<Mutation>{row}).is_ok());
  }
  /// A copy of the files as they are, as `cp` makes it.
  void copy(const std::string& from, const std::string& to) {
    for (const char* suffix : {"", "-wal", "-shm"}) {
      fs::remove(to + suffix);
      if (fs::exists(from + suffix)) fs::copy_file(from + suffix, to + suffix);
    }
  }

  const TemporaryFolder folder_;
  std::string path_;
  std::string notice_;
};

TEST_F(Generations, APlainRestartKeepsTheGeneration) {
  give_out(*open(path_), 5);
  for (int i = 0; i < 3; ++i) {
    const auto store = open(path_);
    EXPECT_EQ(counters(*store).generation, 0u);
    // The store takes tokens in blocks: some are left out, none comes twice.
    EXPECT_GE(counters(*store).next_token, 6u + static_cast<std::uint64_t>(i));
    EXPECT_LT(counters(*store).next_token, std::uint64_t{1} << kGenerationShift);
    EXPECT_EQ(notice_, "");
    give_out(*store, 1);
  }
}

TEST_F(Generations, ARestoredBackupBeginsAnotherOneAndSaysSo) {
  const std::string backup = folder_.file("backup.db");
  {
    const auto store = open(path_);
    give_out(*store, 5);
    ASSERT_TRUE(store->backup(backup).is_ok());
    give_out(*store, 1'000);  // lives on after the backup
  }
  // Into the same file, the same inode.
  fs::copy_file(backup, path_, fs::copy_options::overwrite_existing);
  fs::remove(path_ + "-wal");
  CountersRow first;
  {
    const auto store = open(path_);
    first = counters(*store);
    EXPECT_GT(first.generation, 0u);
    EXPECT_EQ(first.next_token, FencingToken{first.generation} << kGenerationShift);
    EXPECT_THAT(notice_, HasSubstr("backup"));
    const auto events = store->events(0, 10);
    ASSERT_EQ(events->size(), 1u);
    EXPECT_EQ(events->front().kind, EventKind::kDatabaseRestored);
    give_out(*store, 1);
  }
  {
    const auto store = open(path_);  // and stays with it
    EXPECT_EQ(counters(*store).generation, first.generation);
    EXPECT_GE(counters(*store).next_token, first.next_token + 1);
    EXPECT_EQ(counters(*store).next_token >> kGenerationShift, first.generation);
  }
  // The same backup again: above what the first restore gave out, and hardly the same.
  fs::copy_file(backup, path_, fs::copy_options::overwrite_existing);
  const auto store = open(path_);
  EXPECT_GT(counters(*store).generation, 0u);
}

TEST_F(Generations, ABackupOpenedElsewhereIsAnotherDatabase) {
  const std::string backup = folder_.file("backup.db");
  const auto store = open(path_);
  give_out(*store, 5);
  ASSERT_TRUE(store->backup(backup).is_ok());
  const auto other = open(backup);
  EXPECT_GT(counters(*other).generation, 0u);
  EXPECT_EQ(counters(*store).generation, 0u);
}

TEST_F(Generations, AnOlderCopyPutBackIsRecognised) {
  give_out(*open(path_), 5);
  const std::string copied = folder_.file("copy.db");
  {
    const auto store = open(path_);
    give_out(*store, 1);
    copy(path_, copied);  // while it is open, as nobody should
    give_out(*store, 100);
  }
  copy(copied, path_);
  const auto store = open(path_);
  EXPECT_GT(counters(*store).generation, 0u);
  EXPECT_THAT(notice_, HasSubstr("not the file"));
}

TEST_F(Generations, ACopyWithItsNoteInAnotherFolderIsRecognised) {
  give_out(*open(path_), 5);
  { const auto store = open(path_); }
  const std::string copied = folder_.file("copy.db");
  copy(path_, copied);
  fs::copy_file(path_ + ".id", copied + ".id");
  const auto store = open(copied);
  EXPECT_GT(counters(*store).generation, 0u);
}

// As `cp -a` does it: files that are written over keep their inodes, and PATH.id comes back too.
TEST_F(Generations, AFolderThatIsPutBackWholeIsRecognised) {
  fs::create_directory(folder_.file("state"));
  const std::string path = folder_.file("state/a.db");
  give_out(*open(path), 5);
  { const auto store = open(path); }
  fs::copy(folder_.file("state"), folder_.file("copy"), fs::copy_options::recursive);
  give_out(*open(path), 100);
  fs::copy(folder_.file("copy"), folder_.file("state"),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  {
    const auto store = open(path);
    EXPECT_GT(counters(*store).generation, 0u);
    EXPECT_THAT(notice_, HasSubstr("not the file"));
  }
  const std::uint32_t settled = counters(*open(path)).generation;
  EXPECT_EQ(counters(*open(path)).generation, settled) << "once";
}

TEST_F(Generations, AMigrationThatWritesTheFileAnewChangesNothing) {
  give_out(*open(path_), 5);
  { const auto store = open(path_); }
  std::vector<Migration> next(embedded_migrations().begin(), embedded_migrations().end());
  next.push_back({next.back().version + 1, "future", "CREATE TABLE future (id INTEGER) STRICT;"});
  SqliteOptions options;
  options.allow_network_file_system = true;
  options.migrations = next;
  options.page_bytes = 16'384;  // the whole file is rewritten
  const auto store = open_sqlite(path_, options);
  ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
  EXPECT_EQ(counters(**store).generation, 0u);
}

TEST_F(Generations, TokensOfAGenerationFitAndAscend) {
  {
    const auto store = open(path_);
    CountersRow row;
    row.generation = kGenerationMax - 1;
    row.next_token = FencingToken{row.generation} << kGenerationShift;
    ASSERT_TRUE(store->commit(std::vector<Mutation>{row}).is_ok());
  }
  fs::remove(path_ + ".id");
  {
    const auto store = open(path_);
    EXPECT_EQ(counters(*store).generation, kGenerationMax);
    EXPECT_LT(counters(*store).next_token, std::uint64_t{1} << 62);
  }
  fs::remove(path_ + ".id");
  SqliteOptions options;
  options.allow_network_file_system = true;
  const auto refused = open_sqlite(path_, options);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("no generation is left"));
}

}  // namespace
}  // namespace tailor::storage
