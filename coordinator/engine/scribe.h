// Scribe: writes the engine's log on a thread of its own, so that a terminal or a pipe that takes
// nothing for a while delays no commit. What does not fit is left out and counted, and the count is
// logged; events themselves are in the database whatever becomes of their lines.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "storage/records.h"

namespace tailor::engine {

/// Threads: any. Nothing here waits for the log but the destructor, which lets it finish.
class Scribe {
 public:
  /// At most `lines_max` lines wait.
  explicit Scribe(std::size_t lines_max = 10'000);
  ~Scribe();
  Scribe(const Scribe&) = delete;
  Scribe& operator=(const Scribe&) = delete;

  /// A line for each event among the rows. True when there were any.
  bool events(std::span<const storage::Mutation> rows);
  /// `write` logs a line, later and on the scribe's thread. Never left out.
  void say(std::function<void()> write);
  /// Lines that were left out so far.
  std::uint64_t left_out() const;

 private:
  void run();

  const std::size_t lines_max_;
  mutable std::mutex mutex_;  // guards: all below but the thread
  std::condition_variable wake_;
  std::vector<std::function<void()>> waiting_;
  std::uint64_t left_out_ = 0;
  std::uint64_t left_out_told_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tailor::engine
