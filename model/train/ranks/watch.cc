#include "model/train/ranks/watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tailor::train::ranks {
namespace {

constexpr std::int64_t kGoodbyeMs = 1'000;
constexpr std::size_t kTextMax = 4096;

enum Kind : std::uint32_t { kAlive = 1, kLeaving = 2, kEnded = 3 };

// A frame: kind and size of the body, then the body.
struct FrameHead {
  std::uint32_t kind = 0;
  std::uint32_t size = 0;
};
// The body of kEnded is this and a text.
struct EndedHead {
  std::int32_t rank = 0;
  std::int32_t end = 0;
  std::int32_t lost = 0;
};

template <typename T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string frame(Kind kind, std::string_view body = {}) {
  return bytes_of(FrameHead{kind, static_cast<std::uint32_t>(body.size())}) + std::string(body);
}

std::string frame_of(const GroupEnd& end) {
  return frame(kEnded,
               bytes_of(EndedHead{end.rank, static_cast<std::int32_t>(end.end), end.lost ? 1 : 0}) +
                   end.message.substr(0, kTextMax));
}

}  // namespace

Watch::Watch(std::vector<Peer>& peers, int rank, std::int64_t lost_after_ms, const Clock& clock,
             Listener listener)
    : peers_(peers),
      rank_(rank),
      lost_after_ms_(lost_after_ms),
      beat_ms_(std::clamp<std::int64_t>(lost_after_ms / 8, 1, 1000)),
      clock_(clock),
      listener_(std::move(listener)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      left_(peers.size()),
      finished_(peers.size()),
      states_(peers.size()) {
  TAILOR_CHECK(wake_.is_open() && lost_after_ms > 0);
  const MonotonicMs now_ms = clock_.now_ms();
  for (State& state : states_) state.heard_ms = now_ms;
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  leave();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  ::eventfd_write(wake_.descriptor(), 1);
  thread_.join();
}

std::optional<GroupEnd> Watch::ended() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

std::optional<GroupEnd> Watch::wait_for_end(std::int64_t wait_ms, int rank) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(wait_ms),
                    [&] { return end_.has_value() || left_locked(rank); });
  return end_;
}

bool Watch::has_left(int rank) const {
  const std::lock_guard lock(mutex_);
  return left_locked(rank);
}

bool Watch::left_locked(int rank) const {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].rank == rank) return left_[i];
  }
  return false;
}

void Watch::end(GroupEnd end) {
  {
    const std::lock_guard lock(mutex_);
    if (end_ || leaving_) return;
    end_ = end;
  }
  changed_.notify_all();
  tell(frame_of(end));
  listener_(end);
}

void Watch::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (end_ || leaving_) return;
    leaving_ = true;
  }
  tell(frame(kLeaving));
}

// Frames are small: what the system will not take at once is for a rank
// that does not read any more.
void Watch::tell(std::string_view text) {
  const std::lock_guard lock(tell_mutex_);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (finished_[i]) continue;
    const ssize_t sent = ::send(peers_[i].control.descriptor(), text.data(), text.size(),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    // Half a frame would garble what follows.
    if (sent != static_cast<ssize_t>(text.size()) && (sent >= 0 || errno != EAGAIN)) {
      finished_[i] = true;
    }
  }
}

void Watch::run() {
  MonotonicMs beat_at_ms = clock_.now_ms();
  MonotonicMs looked_ms = beat_at_ms;
  std::vector<pollfd> entries;
  std::vector<std::size_t> which;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (closing_) break;
    }
    entries.assign(1, {wake_.descriptor(), POLLIN, 0});
    which.clear();
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (states_[i].closed) continue;
      entries.push_back({peers_[i].control.descriptor(), POLLIN, 0});
      which.push_back(i);
    }
    const std::int64_t wait_ms = std::clamp<std::int64_t>(beat_at_ms - looked_ms, 0, beat_ms_);
    ::poll(entries.data(), entries.size(), static_cast<int>(wait_ms));
    const MonotonicMs now_ms = clock_.now_ms();
    if (now_ms - looked_ms > beat_ms_ + lost_after_ms_ / 4) {
      for (State& state : states_) state.heard_ms = now_ms;
    }
    looked_ms = now_ms;
    for (std::size_t k = 0; k < which.size(); ++k) {
      if (entries[k + 1].revents != 0) read(which[k], now_ms);
    }
    if (now_ms >= beat_at_ms) {
      tell(frame(kAlive));
      beat_at_ms = now_ms + beat_ms_;
    }
    judge_silence(now_ms);
  }
  say_goodbye();
}

void Watch::read(std::size_t peer, MonotonicMs now_ms) {
  State& state = states_[peer];
  char buffer[4096];
  for (;;) {
    const ssize_t count =
        ::recv(peers_[peer].control.descriptor(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (count > 0) {
      state.heard_ms = now_ms;
      state.unread.append(buffer, static_cast<std::size_t>(count));
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    const int reason = count < 0 ? errno : 0;
    take_frames(peer);  // its last words, if any
    closed_by(peer, reason);
    return;
  }
  take_frames(peer);
}

void Watch::take_frames(std::size_t peer) {
  std::string& unread = states_[peer].unread;
  FrameHead head;
  while (unread.size() >= sizeof head) {
    std::memcpy(&head, unread.data(), sizeof head);
    if (head.size > sizeof(EndedHead) + kTextMax) {
      unread.clear();
      end({peers_[peer].rank, protocol::EndClass::kInfrastructure,
           fmt::format("{} sends what this version of Tailor does not: use one version",
                       peers_[peer].name()),
           true});
      return;
    }
    if (unread.size() < sizeof head + head.size) return;
    take(peer, head.kind, std::string_view(unread).substr(sizeof head, head.size));
    unread.erase(0, sizeof head + head.size);
  }
}

void Watch::closed_by(std::size_t peer, int reason) {
  states_[peer].closed = true;
  if (states_[peer].left) return;
  const bool network = reason == ETIMEDOUT || reason == EHOSTUNREACH || reason == ENETUNREACH;
  end({peers_[peer].rank,
       network ? protocol::EndClass::kNodeLost : protocol::EndClass::kInfrastructure,
       fmt::format("{} is lost: {}", peers_[peer].name(),
                   network ? std::strerror(reason)
                           : "its connection closed without a goodbye; the process was killed or "
                             "crashed"),
       true});
}

void Watch::take(std::size_t peer, std::uint32_t kind, std::string_view body) {
  if (kind == kAlive) return;
  if (kind == kEnded && body.size() >= sizeof(EndedHead)) {
    EndedHead head;
    std::memcpy(&head, body.data(), sizeof head);
    GroupEnd heard{head.rank, static_cast<protocol::EndClass>(head.end),
                   std::string(body.substr(sizeof head)), head.lost != 0};
    if (heard.end < protocol::EndClass::kCompleted ||
        heard.end > protocol::EndClass::kInfrastructure) {
      heard.end = protocol::EndClass::kInfrastructure;
    }
    if (heard.rank == rank_) {
      heard.message = fmt::format("this rank was counted as lost by {}: {}", peers_[peer].name(),
                                  heard.message);
    }
    end(std::move(heard));
  } else {
    const std::lock_guard lock(mutex_);
    left_[peer] = true;
  }
  changed_.notify_all();
  states_[peer].left = true;
  // It waits for this before it goes: a close with unread bytes could swallow its last words.
  const std::lock_guard lock(tell_mutex_);
  finished_[peer] = true;
  peers_[peer].control.finish_writing();
}

void Watch::judge_silence(MonotonicMs now_ms) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const State& state = states_[i];
    if (state.closed || state.left || now_ms - state.heard_ms <= lost_after_ms_) continue;
    end({peers_[i].rank, protocol::EndClass::kNodeLost,
         fmt::format("{} is lost: not a sign of life for {} ms; the process is frozen, or its node "
                     "or the network is gone",
                     peers_[i].name(), now_ms - state.heard_ms),
         true});
    return;
  }
}

void Watch::say_goodbye() {
  {
    const std::lock_guard lock(tell_mutex_);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      finished_[i] = true;
      peers_[i].control.finish_writing();
    }
  }
  const MonotonicMs deadline_ms = clock_.now_ms() + kGoodbyeMs;
  char buffer[4096];
  for (;;) {
    std::vector<pollfd> entries;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (states_[i].closed) continue;
      const ssize_t count =
          ::recv(peers_[i].control.descriptor(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
        states_[i].closed = true;
        continue;
      }
      entries.push_back({peers_[i].control.descriptor(), POLLIN, 0});
    }
    const std::int64_t left_ms = deadline_ms - clock_.now_ms();
    if (entries.empty() || left_ms <= 0) return;
    ::poll(entries.data(), entries.size(), static_cast<int>(left_ms));
  }
}

}  // namespace tailor::train::ranks
