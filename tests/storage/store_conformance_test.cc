// Both stores against the one suite.
#include "store_conformance.h"

#include "storage/memory_store.h"
#include "storage/sqlite_store.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage::testing {
namespace {

class MemoryHolder final : public StoreHolder {
 public:
  Store& store() override { return store_; }

 private:
  MemoryStore store_;
};

class SqliteHolder final : public StoreHolder {
 public:
  SqliteHolder() { reopen(); }
  Store& store() override { return *store_; }
  void reopen() override {
    store_.reset();
    auto opened = open_sqlite(folder_.file("store.db"), {.allow_network_file_system = true});
    TAILOR_CHECK(opened.has_value(), "{}", status_of(opened).to_string());
    store_ = *std::move(opened);
  }

 private:
  test::TemporaryFolder folder_;
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreConformance,
    ::testing::Values(StoreKind{"Memory", [] { return std::make_unique<MemoryHolder>(); }},
                      StoreKind{"Sqlite", [] { return std::make_unique<SqliteHolder>(); }}),
    [](const ::testing::TestParamInfo<StoreKind>& kind) { return kind.param.name; });

}  // namespace
}  // namespace tailor::storage::testing
