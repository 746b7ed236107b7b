#include "storage/query_memory.h"

#include <sqlite3.h>

#include <mutex>
#include <utility>

namespace tailor::storage {
namespace {

constexpr int kAllocationsBetween = 1000;  // two questions whether to stop

sqlite3_mem_methods g_plain{};  // SQLite's own, set once before any use
thread_local QueryMemory* t_query = nullptr;

void* counted_malloc(int bytes) {
  if (t_query != nullptr && !t_query->may_take(bytes)) return nullptr;
  return g_plain.xMalloc(bytes);
}

void counted_free(void* block) {
  if (t_query != nullptr && block != nullptr) t_query->give_back(g_plain.xSize(block));
  g_plain.xFree(block);
}

void* counted_realloc(void* block, int bytes) {
  if (t_query != nullptr && block != nullptr) {
    const int before = g_plain.xSize(block);
    if (bytes > before && !t_query->may_take(bytes - before)) return nullptr;
    if (bytes < before) t_query->give_back(before - bytes);
  }
  return g_plain.xRealloc(block, bytes);
}

}  // namespace

void install_query_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Both are refused once SQLite is in use: then queries are bounded by time and rows alone.
    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &g_plain) != SQLITE_OK) return;
    sqlite3_mem_methods counted = g_plain;
    counted.xMalloc = counted_malloc;
    counted.xFree = counted_free;
    counted.xRealloc = counted_realloc;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &counted);
  });
}

QueryMemory::QueryMemory(std::int64_t bytes_max, std::function<bool()> stop)
    : left_(bytes_max), stop_(std::move(stop)) {
  t_query = this;
}

QueryMemory::~QueryMemory() { t_query = nullptr; }

bool QueryMemory::may_take(std::int64_t bytes) {
  if (bytes > left_) {
    exceeded_ = true;
    return false;
  }
  if (--until_asked_ < 0) {
    until_asked_ = kAllocationsBetween;
    stopped_ = stopped_ || stop_();
  }
  if (stopped_) return false;
  left_ -= bytes;
  return true;
}

}  // namespace tailor::storage
