// CheckedStore: the disk of the coordinator. A MemoryStore that outlives crashes, can be full, and
// tells the ledger what became durable.
#pragma once

#include <span>

#include "coordinator/engine/recall.h"
#include "storage/memory_store.h"
#include "tests/simulation/ledger.h"

namespace tailor::simulation {

class CheckedStore {
 public:
  CheckedStore(Context& context, Ledger& ledger) : c_(context), ledger_(ledger) {}

  bool full = false;  ///< or read-only: it takes nothing

  Result<storage::Snapshot> load() { return store_.load_open(); }
  Result<core::Recalled> rows(const core::RowsWanted& wanted) {
    return engine::read_rows(store_, wanted);
  }
  Status commit(std::span<const storage::Mutation> batch);

 private:
  Context& c_;
  Ledger& ledger_;
  storage::MemoryStore store_;
};

}  // namespace tailor::simulation
