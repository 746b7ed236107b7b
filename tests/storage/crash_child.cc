// The process that crash_test.cc kills: commits numbered batches for ever and prints each number
// once it is acknowledged. storage_crash_child DATABASE FIRST
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "numbered_batch.h"
#include "storage/sqlite_store.h"

namespace {

using namespace tailor;           // NOLINT
using namespace tailor::storage;  // NOLINT

void acknowledge(std::uint64_t number) {
  const std::string line = fmt::format("{}\n", number);
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::_Exit(3);
}

int fail(const Status& status) {
  fmt::print(stderr, "{}\n", status.to_string());
  return 1;
}

int commit_directly(Store& store, std::uint64_t number) {
  for (;; ++number) {
    const Status status = store.commit(testing::numbered_batch(number));
    if (!status.is_ok()) return fail(status);
    acknowledge(number);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto store = open_sqlite(argv[1], {.allow_network_file_system = true});
  if (!store) return fail(store.error());
  const std::uint64_t first = std::strtoull(argv[2], nullptr, 10);
  return commit_directly(**store, first);
}
