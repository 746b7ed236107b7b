// Writer: the one connection that changes the database, what it keeps in memory beside it, and the
// lock that makes its users take turns. Internal to storage/. Threads: any; every call takes the
// lock, but those marked.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/status.h"
#include "storage/file_guard.h"
#include "storage/metric_tail.h"
#include "storage/pruning.h"
#include "storage/row_writer.h"
#include "storage/sqlite_connection.h"
#include "storage/store.h"

namespace tailor::storage {

class Writer {
 public:
  /// Takes over a connection that is set up, and reads what has to be in memory. Errors: those of
  /// the file.
  static Result<std::unique_ptr<Writer>> begin(std::string path,
                                               std::unique_ptr<Connection> connection);

  ~Writer();

  Status commit(std::span<const Mutation> batch);
  Result<Snapshot> load(bool open_only);
  /// A piece of upkeep in a transaction of its own; true when more is left.
  Result<bool> maintain();
  Result<Pruned> prune(const PruneRules& rules, WallMs now_ms);
  /// Runs `f` while nothing is written.
  void hold(const std::function<void()>& f);

  // Without the lock:
  const MetricTail& tail() const { return tail_; }
  Status still_there() const { return file_.still_there(); }
  /// Bytes of the write-ahead log that are in use, by the last commit.
  std::uint64_t log_bytes() const { return log_pages_ * page_bytes_; }
  /// Number of commits so far: equal twice = none in between.
  std::uint64_t commits() const { return commits_; }
  bool has_work() const { return has_work_; }
  /// Somebody waits for the lock to commit.
  bool wanted() const { return waiting_ > 0; }

 private:
  Writer(std::string path, std::unique_ptr<Connection> connection);

  /// Runs `body` as one transaction; memory follows its outcome. REQUIRES: the lock.
  Status transaction(const std::function<Status()>& body);
  void write(const Mutation& mutation);
  void roll_back();

  const std::string path_;
  FileIdentity file_;  // constant once begun
  std::atomic<std::uint64_t> log_pages_{0};
  std::atomic<std::uint64_t> commits_{0};
  std::atomic<bool> has_work_{false};
  std::atomic<int> waiting_{0};

  std::mutex mutex_;  // guards: everything below (the tail's readers have a lock of their own)
  std::unique_ptr<Connection> connection_;
  std::uint64_t page_bytes_ = 0;  // constant
  MetricTail tail_;
  RowWriter rows_;
  Pruning pruning_;
};

}  // namespace tailor::storage
