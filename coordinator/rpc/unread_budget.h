// What streams hold for clients that have not taken it yet (private to coordinator/rpc). Each
// stream is bounded by itself; this bounds all of them together, as their number is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"

namespace tailor::rpc {

/// Counts the bytes that open streams hold. When they come to more than there may be, streams whose
/// clients have read nothing for long are ended, the longest first; when that is not enough,
/// whoever asks for more is refused. Nobody is ended while there is room: a slow reader is no
/// error. Threads: any.
class UnreadBudget {
  struct Held {
    std::size_t bytes = 0;
    bool waits = false;
    MonotonicMs since = 0;  // of the last word of it
    std::shared_ptr<const std::function<void()>> end;
  };
  struct State {
    mutable std::mutex mutex;  // guards what follows
    std::map<std::uint64_t, Held> shares;
    std::size_t bytes = 0;
    std::uint64_t last = 0;
  };

 public:
  /// `clock` must outlive it.
  UnreadBudget(std::size_t bytes_max, std::int64_t unread_ms_max, const Clock& clock)
      : bytes_max_(bytes_max), unread_ms_max_(unread_ms_max), clock_(clock) {}

  /// The part of one stream; given back when destroyed, which may be after the budget. Threads:
  /// any.
  class Share {
   public:
    /// `end` ends the stream; called on any thread, at most once, holding no lock of the budget. It
    /// must stay callable while another thread destroys the share.
    Share(UnreadBudget& budget, std::function<void()> end);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    /// The stream holds `bytes` from now on, instead of what it held. `waits`: for its client to
    /// read, from now on. Errors: kResourceExhausted, and it holds what it did; never when that is
    /// no more than it held. May call the `end` of others: no lock of a stream may be held.
    /// REQUIRES: the budget lives.
    Status hold(std::size_t bytes, bool waits);

   private:
    UnreadBudget& budget_;
    const std::shared_ptr<State> state_;
    std::uint64_t id_ = 0;
  };

  /// Of all shares together.
  std::size_t bytes() const;

 private:
  Status hold(std::uint64_t id, std::size_t bytes, bool waits);

  const std::size_t bytes_max_;
  const std::int64_t unread_ms_max_;
  const Clock& clock_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace tailor::rpc
