// Writer: the storage thread. Batches that arrive while a commit runs go into the next transaction
// together (group commit): one sync for all of them, and none waits for a window to close when the
// disk is idle.
//
//   writer.submit(batch, [&](Status status) { mailbox.post(Committed{status}); });
//
// Ordering: batches are committed, and `done` is called, in the order of submission; `done` runs on
// the writer's thread after the commit, must return soon and must not call back into the Writer's
// `flush`. Threads: every method from any thread. The store's `commit` and `load` belong to the
// writer from its construction to its destruction.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "storage/store.h"

namespace tailor::storage {

struct WriterOptions {
  /// Mutations that may wait; a batch that does not fit is refused (unless nothing waits).
  std::size_t queued_mutations_max = 200'000;
  /// Mutations that one transaction takes at most, so that no caller waits for a huge one. A larger
  /// batch is a transaction of its own.
  std::size_t commit_mutations_max = 20'000;
};

struct WriterStats {
  std::uint64_t commits = 0;    ///< transactions that succeeded
  std::uint64_t batches = 0;    ///< batches in them
  std::uint64_t mutations = 0;  ///< rows in them
  std::uint64_t failed_commits = 0;
  std::uint64_t refused_batches = 0;  ///< by a full queue
  std::size_t queued_batches = 0;     ///< now, the running commit's included
  std::size_t queued_mutations = 0;
  Status last_error;  ///< of the latest failed commit; ok again after a good one
};

class Writer {
 public:
  using Done = std::function<void(Status)>;

  /// REQUIRES: `store` outlives the writer.
  explicit Writer(Store& store, WriterOptions options = {});
  /// Commits what is queued, then stops.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Takes the batch, which is committed whole or not at all; `done` gets the outcome. Errors,
  /// `done` then never being called: kResourceExhausted (the queue is full: slow down, try again),
  /// kUnavailable (the writer is stopping).
  Status submit(std::vector<Mutation> batch, Done done);

  /// Waits until everything submitted before is committed or failed, and its `done` has returned.
  void flush();

  WriterStats stats() const;

 private:
  struct Item {
    std::vector<Mutation> batch;
    Done done;
  };

  void run(const std::stop_token& stop);
  std::vector<Item> take(const std::stop_token& stop);
  void commit(std::vector<Item>& items);
  Status commit_counted(std::span<const Mutation> batch, std::size_t batches);

  Store& store_;
  const WriterOptions options_;

  mutable std::mutex mutex_;  // guards: everything below but the thread
  std::condition_variable_any work_;
  std::condition_variable idle_;
  std::deque<Item> queue_;
  std::uint64_t submitted_ = 0;  // batches ever
  std::uint64_t finished_ = 0;
  bool stopping_ = false;
  WriterStats stats_;

  std::jthread thread_;  // last: starts when the rest stands, joins first
};

}  // namespace tailor::storage
