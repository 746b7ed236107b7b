#include "tests/simulation/checked_store.h"

namespace tailor::simulation {

Status CheckedStore::commit(std::span<const storage::Mutation> batch) {
  if (full) {
    if (c_.faults.disk_read_only) {
      c_.count("commit: disk read-only");
      return {Code::kUnavailable, "the simulated disk is read-only"};
    }
    c_.count("commit: disk full");
    return {Code::kResourceExhausted, "the simulated disk is full"};
  }
  const Status status = store_.commit(batch);
  // Whatever the core asks to be written must fit the schema.
  if (!status.is_ok()) {
    c_.fail("the store refused a batch: " + status.to_string());
    return status;
  }
  ledger_.committed(batch);
  return status;
}

}  // namespace tailor::simulation
