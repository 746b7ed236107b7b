// Watch: knows within seconds when a rank is lost, and why, and tells everybody.
//
// One thread listens on the control connections. Every rank says that it lives several times within
// `lost_after_ms`. A connection that closes without a goodbye is a process that was killed or
// crashed; silence is a frozen process, or a node or a network that is gone. The first end that a
// rank sees or hears of is the end of the group for it; it passes that on, so all name the same
// rank. A rank that fails by itself (out of memory, bad data) says so before it goes.
//
// A process that was itself stopped or starved for long judges nobody by the silence of that time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "model/train/ranks/meeting.h"
#include "protocol/report.h"

namespace tailor::train::ranks {

/// Why the group cannot go on.
struct GroupEnd {
  int rank = 0;  ///< the rank that is the reason
  /// kInfrastructure: its process is gone; kNodeLost: silent; kTimeout: lives but does not take
  /// part; else the class that it gave itself.
  protocol::EndClass end = protocol::EndClass::kInfrastructure;
  std::string message;  ///< for a person, names the rank
  bool lost = false;    ///< it did not say so itself
};

/// Threads: any.
class Watch {
 public:
  /// Called once, from the thread that saw the end: must not block or call back.
  using Listener = std::function<void(const GroupEnd&)>;

  /// Uses the control sockets of `peers`, which must outlive it. `lost_after_ms` > 0.
  Watch(std::vector<Peer>& peers, int rank, std::int64_t lost_after_ms, const Clock& clock,
        Listener listener);
  /// Says goodbye (unless an end was told) and waits for the others' answer, at most a second.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// What ended the group, if anything.
  std::optional<GroupEnd> ended() const;
  /// Waits up to `wait_ms` for an end, or until rank `rank`, if one is given, says goodbye.
  std::optional<GroupEnd> wait_for_end(std::int64_t wait_ms, int rank = -1) const;
  /// True when rank `rank` said goodbye.
  bool has_left(int rank) const;

  /// Ends the group and tells everybody; the first end counts.
  void end(GroupEnd end);
  /// Tells everybody that this rank needs them no more: its going is no loss, and nobody's going is
  /// a loss for it.
  void leave();

 private:
  struct State {  // of the connection to one peer
    std::string unread;
    MonotonicMs heard_ms = 0;
    bool closed = false;  // their side
    bool left = false;
  };

  void run();
  void read(std::size_t peer, MonotonicMs now_ms);
  void take_frames(std::size_t peer);
  void closed_by(std::size_t peer, int reason);
  void take(std::size_t peer, std::uint32_t kind, std::string_view body);
  void tell(std::string_view frame);
  void judge_silence(MonotonicMs now_ms);
  void say_goodbye();
  bool left_locked(int rank) const;  // REQUIRES: mutex_ is held

  std::vector<Peer>& peers_;
  const int rank_;
  const std::int64_t lost_after_ms_;
  const std::int64_t beat_ms_;
  const Clock& clock_;
  const Listener listener_;
  Socket wake_;  // an eventfd

  mutable std::mutex mutex_;  // guards the four below
  mutable std::condition_variable changed_;
  std::optional<GroupEnd> end_;
  bool leaving_ = false;
  bool closing_ = false;
  std::vector<bool> left_;

  std::mutex tell_mutex_;       // one frame at a time; guards finished_
  std::vector<bool> finished_;  // nothing more is written to this peer

  std::vector<State> states_;  // of the thread alone
  std::thread thread_;
};

}  // namespace tailor::train::ranks
