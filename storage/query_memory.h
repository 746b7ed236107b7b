// Bounds what SQLite allocates for one query. SQLite copies a table expression once for each place
// that names it while it prepares a statement, and looks at no deadline meanwhile: 2 kB of SQL can
// ask for all memory there is.
#pragma once

#include <cstdint>
#include <functional>

namespace tailor::storage {

/// Makes SQLite's allocations countable; call before the process opens its first connection, as
/// Connection does. Later calls do nothing.
void install_query_memory();

/// While it lives, allocations of SQLite on this thread fail once `bytes_max` more bytes are held
/// than at the start, or once `stop`, which is asked now and then, says so. Connections must be
/// opened and closed within it. One at a time on a thread.
class QueryMemory {
 public:
  QueryMemory(std::int64_t bytes_max, std::function<bool()> stop);
  ~QueryMemory();
  QueryMemory(const QueryMemory&) = delete;
  QueryMemory& operator=(const QueryMemory&) = delete;

  /// True when an allocation has failed since too much was held.
  bool exceeded() const { return exceeded_; }

  // For the allocator.
  bool may_take(std::int64_t bytes);
  void give_back(std::int64_t bytes) { left_ += bytes; }

 private:
  std::int64_t left_;
  const std::function<bool()> stop_;
  int until_asked_ = 0;
  bool stopped_ = false;
  bool exceeded_ = false;
};

}  // namespace tailor::storage
