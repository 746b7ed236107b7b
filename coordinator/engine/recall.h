// Recall: rows of what has ended, for requests that are about it. The engine keeps in memory only
// what has something to do; a request about more is answered RowsWanted (core/effect.h), the rows
// are read here, and the request is posted again with them. Whoever asks sees nothing of that.
#pragma once

#include <atomic>
#include <functional>

#include "base/status.h"
#include "coordinator/core/effect.h"
#include "coordinator/core/event.h"
#include "coordinator/engine/work_pool.h"
#include "storage/store.h"

namespace tailor::engine {

/// The rows that were asked for. What does not exist is left out. Cost: what was asked for; a whole
/// sweep is all its candidates and trials. Errors: those of the store.
Result<core::Recalled> read_rows(const storage::Store& store, const core::RowsWanted& wanted);

/// Puts `rows` into the request; false for events that take none.
bool attach_rows(core::Event& event, core::Recalled rows);

/// Threads: any. What is given to the constructor must outlive it.
class Recaller {
 public:
  using Reply = std::function<void(const Status&, const core::ReplyBody&)>;
  using Post = std::function<void(core::Event, Reply)>;

  /// `post` is how a request is posted again; `done` is called, on a thread of the recaller, after
  /// each time that rows were read.
  Recaller(const storage::Store& store, Post post, std::function<void()> done)
      : store_(store), post_(std::move(post)), done_(std::move(done)) {}

  /// A handler for the answer to `event`: `reply`, or, when rows are wanted, reading them on a
  /// thread of its own and posting the request again. Gives up with kAborted when what it reads is
  /// out of date each time.
  Reply wrap(const core::Event& event, Reply reply);
  /// True while no rows are being read for anyone. Any thread.
  bool idle() const { return pending_ == 0; }
  /// Finishes what is being read. Idempotent.
  void stop() { pool_.stop(); }

 private:
  void again(core::Event event, const core::RowsWanted& wanted, const Reply& reply);

  const storage::Store& store_;
  const Post post_;
  const std::function<void()> done_;
  std::atomic<int> pending_{0};
  WorkPool pool_{1, 4'096};
};

}  // namespace tailor::engine
