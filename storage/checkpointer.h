// Checkpointer: the thread that keeps the write-ahead log short and, when nothing else is written,
// does the writer's upkeep. Commits never copy pages into the database and never wait for the disk
// on its behalf, but for the moments when the log has to be brought to its end under load.
// Internal to storage/.
//
// The log is copied (PASSIVE, in the way of nobody) once it holds kLogBytes. SQLite writes it from
// the start again when all of it is copied and no reader uses it; under load new pages come while
// old ones are copied, so the last few are copied while the writer is held. The file keeps its
// size: writing over it needs no change of the file's size and so no journal write of the file
// system.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "storage/sqlite_connection.h"
#include "storage/writer.h"

namespace tailor::storage {

class Checkpointer {
 public:
  /// Starts the thread. `writer` and `clock` must outlive it.
  Checkpointer(std::string path, Writer& writer, const Clock& clock);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// After a commit. Threads: any.
  void committed();

  /// Since when readers hold the log back; 0 = they do not. Threads: any.
  MonotonicMs held_since_ms() const { return held_since_ms_; }
  /// The last failure, ok once it works again. Threads: any.
  Status last_error() const;

 private:
  struct Copied {
    std::uint64_t pages = 0;  // in the log
    std::uint64_t done = 0;   // of those, in the database
    bool whole() const { return done >= pages; }
  };

  void run();
  /// False when there was nothing to do or it failed.
  bool do_something();
  Status shorten_log();
  Result<Copied> copy();
  Status upkeep();
  void note(const Status& status);

  const std::string path_;
  Writer& writer_;
  const Clock& clock_;
  std::atomic<MonotonicMs> held_since_ms_{0};

  mutable std::mutex mutex_;  // guards: the rest of this group
  std::condition_variable wake_;
  bool poked_ = false;
  bool stopping_ = false;
  Status last_error_;

  // The thread's.
  std::unique_ptr<Connection> connection_;
  std::uint64_t commits_seen_ = 0;
  std::uint64_t commits_shortened_ = ~0ull;
  MonotonicMs tried_ms_ = 0;        // when the log was last copied, whole or not
  std::uint64_t warned_bytes_ = 0;  // its size when that was last said
  std::thread thread_;              // last: it uses all of the above
};

}  // namespace tailor::storage
