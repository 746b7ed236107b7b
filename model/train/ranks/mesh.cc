#include "model/train/ranks/mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <utility>

#include "base/check.h"

namespace tailor::train::ranks {
namespace {

using protocol::EndClass;

// Below this many bytes a sum goes to everybody at once: one way instead of two.
constexpr std::size_t kSmallBytes = 4096;
// The other connection of a process that is gone closes at the same time.
constexpr std::int64_t kVerdictMs = 2'000;

enum OperationKind : std::uint32_t { kSum = 1, kSmallSum = 2, kBroadcast = 3, kGather = 4 };

std::string_view name_of(std::uint32_t kind) {
  switch (kind) {
    case kSum:
    case kSmallSum:
      return "a sum";
    case kBroadcast:
      return "a broadcast";
    case kGather:
      return "gathering";
    default:
      return "something unknown";
  }
}

// out[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + ...; `out` may be one of the parts.
template <typename T>
void add_in_order(std::span<T> out, const std::vector<const T*>& parts) {
  constexpr std::size_t kBlock = 1024;
  T total[kBlock];
  for (std::size_t begin = 0; begin < out.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, out.size() - begin);
    std::copy_n(parts[0] + begin, count, total);
    for (std::size_t r = 1; r < parts.size(); ++r) {
      const T* part = parts[r] + begin;
      if (count == kBlock) {
        for (std::size_t i = 0; i < kBlock; ++i) total[i] += part[i];
      } else {
        for (std::size_t i = 0; i < count; ++i) total[i] += part[i];
      }
    }
    std::copy_n(total, count, out.data() + begin);
  }
}

// Sends what the system takes now.
Status push(int descriptor, std::span<const std::byte>& piece, bool& moved) {
  while (!piece.empty()) {
    const ssize_t count =
        ::send(descriptor, piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      piece = piece.subspan(static_cast<std::size_t>(count));
      moved = true;
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return Status(Code::kUnavailable, std::strerror(errno));
    }
  }
  return Status::ok();
}

// Receives what is there.
Status pull(int descriptor, std::span<std::byte>& piece, bool& moved) {
  while (!piece.empty()) {
    const ssize_t count = ::recv(descriptor, piece.data(), piece.size(), MSG_DONTWAIT);
    if (count > 0) {
      piece = piece.subspan(static_cast<std::size_t>(count));
      moved = true;
    } else if (count == 0) {
      return Status(Code::kUnavailable, "its connection for numbers closed");
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return Status(Code::kUnavailable, std::strerror(errno));
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<Mesh>> Mesh::join(const MeshOptions& options, Rendezvous& rendezvous,
                                         const Clock& clock) {
  TAILOR_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size);
  MeetingOptions meeting;
  meeting.rank = options.rank;
  meeting.size = options.size;
  meeting.address = options.address;
  meeting.group = options.group;
  meeting.deadline_ms = clock.now_ms() + options.meet_ms;
  meeting.give_up = options.give_up;
  TAILOR_ASSIGN_OR_RETURN(std::vector<Peer> peers, meet(meeting, rendezvous, clock));
  return std::unique_ptr<Mesh>(new Mesh(options, std::move(peers), clock));
}

Mesh::Mesh(const MeshOptions& options, std::vector<Peer> peers, const Clock& clock)
    : options_(options), clock_(clock), peers_(std::move(peers)) {
  watch_ = std::make_unique<Watch>(peers_, options.rank, options.lost_after_ms, clock,
                                   [this](const GroupEnd&) { stop_data(); });
  thread_ = std::thread([this] { run(); });
}

Mesh::~Mesh() {
  watch_->leave();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    on_end_ = nullptr;
  }
  wake_.notify_all();
  for (Peer& peer : peers_) peer.data.shutdown();
  thread_.join();
  watch_.reset();
}

void Mesh::on_end(std::function<void()> listener) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_ || !listener) {
      on_end_ = std::move(listener);
      return;
    }
  }
  listener();
}

// An end wakes whoever waits for numbers.
void Mesh::stop_data() {
  for (Peer& peer : peers_) peer.data.shutdown();
  std::function<void()> listener;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    listener = std::exchange(on_end_, nullptr);
  }
  if (listener) listener();
}

GroupEnd Mesh::reason() const {
  if (auto end = watch_->wait_for_end(kVerdictMs)) return *end;
  return {options_.rank, EndClass::kInfrastructure, "the ranks lost each other", true};
}

void Mesh::end(EndClass end, std::string message) {
  watch_->end({options_.rank, end, fmt::format("rank {}: {}", options_.rank, message), false});
}

Status Mesh::failure() const { return Status(Code::kUnavailable, reason().message); }

void Mesh::submit(std::function<Status()> run, Done done) {
  {
    const std::lock_guard lock(mutex_);
    TAILOR_CHECK(!closing_);
    queue_.push_back({std::move(run), std::move(done)});
  }
  wake_.notify_all();
}

Status Mesh::wait(const std::function<void(Done)>& start) {
  std::promise<Status> result;
  start([&](const Status& status) { result.set_value(status); });
  return result.get_future().get();
}

void Mesh::run() {
  for (;;) {
    Operation operation;
    bool closing = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      operation = std::move(queue_.front());
      queue_.pop_front();
      closing = closing_;
    }
    if (closing) {
      operation.done(Status(Code::kCancelled, "this rank leaves the group"));
    } else {
      operation.done(watch_->ended() ? failure() : operation.run());
    }
  }
}

// The group ends with rank `peer` as the reason, unless it has ended already.
Status Mesh::broken(std::size_t peer, const std::string& what, EndClass end) {
  watch_->end({peers_[peer].rank, end, fmt::format("{} {}", peers_[peer].name(), what), true});
  return failure();
}

Status Mesh::advance(std::size_t peer, Lane& lane, bool& moved) {
  const int descriptor = peers_[peer].data.descriptor();
  for (auto& piece : lane.out) {
    TAILOR_RETURN_IF_ERROR(push(descriptor, piece, moved));
    if (!piece.empty()) break;
  }
  // The header is looked at before what is behind it is taken.
  return pull(descriptor, lane.in[0].empty() ? lane.in[1] : lane.in[0], moved);
}

Status Mesh::exchange(std::vector<Lane>& lanes,
                      const std::function<Status(std::size_t)>& head_came) {
  const auto sending = [](const Lane& lane) {
    return !lane.out[0].empty() || !lane.out[1].empty();
  };
  const auto receiving = [](const Lane& lane) {
    return !lane.in[0].empty() || !lane.in[1].empty();
  };
  MonotonicMs moved_ms = clock_.now_ms();
  std::vector<pollfd> entries;
  for (;;) {
    entries.clear();
    std::size_t waiting_for = peers_.size();
    bool moved = false;
    bool more = false;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      Lane& lane = lanes[i];
      if (!sending(lane) && !receiving(lane)) continue;
      const bool head_missing = !lane.in[0].empty();
      if (const Status status = advance(i, lane, moved); !status) {
        if (watch_->wait_for_end(kVerdictMs, peers_[i].rank)) return failure();
        return broken(i,
                      watch_->has_left(peers_[i].rank)
                          ? "has left the group while others still needed it"
                          : fmt::format("is lost: {}", status.message()),
                      EndClass::kInfrastructure);
      }
      if (head_missing && lane.in[0].empty()) {
        TAILOR_RETURN_IF_ERROR(head_came(i));
        more = true;  // look at once for what is behind it
      }
      const auto events =
          static_cast<short>((sending(lane) ? POLLOUT : 0) | (receiving(lane) ? POLLIN : 0));
      if (events == 0) continue;
      entries.push_back({peers_[i].data.descriptor(), events, 0});
      waiting_for = i;
    }
    if (entries.empty()) return Status::ok();
    if (more) continue;
    const MonotonicMs now_ms = clock_.now_ms();
    if (moved) moved_ms = now_ms;
    const std::int64_t left_ms = options_.stall_ms - (now_ms - moved_ms);
    if (left_ms <= 0) {
      return broken(
          waiting_for,
          fmt::format("lives, but has taken no part for {} ms: it hangs", options_.stall_ms),
          EndClass::kTimeout);
    }
    ::poll(entries.data(), entries.size(),
           static_cast<int>(std::min<std::int64_t>(left_ms, 60'000)));
  }
}

Status Mesh::exchange_with_heads(std::uint32_t kind, std::uint64_t bytes,
                                 std::vector<Lane>& lanes) {
  const Head mine{kind, ++number_, bytes};
  std::vector<Head> theirs(peers_.size());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    lanes[i].out[0] = std::as_bytes(std::span(&mine, 1));
    lanes[i].in[0] = std::as_writable_bytes(std::span(&theirs[i], 1));
  }
  return exchange(lanes, [&](std::size_t i) {
    const Head& head = theirs[i];
    if (head.kind == mine.kind && head.number == mine.number && head.bytes == mine.bytes) {
      return Status::ok();
    }
    return broken(
        i,
        fmt::format("is out of step: it is at {} of {} bytes (number {}), rank {} at {} of "
                    "{} bytes (number {})",
                    name_of(head.kind), head.bytes, head.number, options_.rank, name_of(mine.kind),
                    mine.bytes, mine.number),
        EndClass::kInfrastructure);
  });
}

template <typename T>
Status Mesh::sum_now(std::span<T> numbers) {
  const auto ranks = static_cast<std::size_t>(size());
  const auto part = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t begin = numbers.size() * r / ranks;
    return numbers.subspan(begin, numbers.size() * (r + 1) / ranks - begin);
  };
  const std::span<T> own = part(rank());
  scratch_.resize(std::max(scratch_.size(), peers_.size() * own.size_bytes()));
  std::vector<const T*> parts(ranks);
  parts[static_cast<std::size_t>(rank())] = own.data();
  std::vector<Lane> lanes(peers_.size());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const auto place = std::span(scratch_).subspan(i * own.size_bytes(), own.size_bytes());
    lanes[i].out[1] = std::as_bytes(part(peers_[i].rank));
    lanes[i].in[1] = place;
    parts[static_cast<std::size_t>(peers_[i].rank)] = reinterpret_cast<const T*>(place.data());
  }
  TAILOR_RETURN_IF_ERROR(exchange_with_heads(kSum, numbers.size_bytes(), lanes));
  add_in_order(own, parts);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    lanes[i] = {};
    lanes[i].out[1] = std::as_bytes(own);
    // A peer sends its sum when it has all of this rank's numbers:
    // nothing is overwritten too early.
    lanes[i].in[1] = std::as_writable_bytes(part(peers_[i].rank));
  }
  return exchange(lanes, [](std::size_t) { return Status::ok(); });
}

template <typename T>
Status Mesh::sum_small(std::span<T> numbers) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<T> all(ranks * numbers.size());
  TAILOR_RETURN_IF_ERROR(
      gather_now(std::as_bytes(numbers), std::as_writable_bytes(std::span(all)), kSmallSum));
  std::vector<const T*> parts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) parts[r] = all.data() + r * numbers.size();
  add_in_order(numbers, parts);
  return Status::ok();
}

Status Mesh::gather_now(std::span<const std::byte> mine, std::span<std::byte> all,
                        std::uint32_t kind) {
  const auto place = [&](int rank) {
    return all.subspan(static_cast<std::size_t>(rank) * mine.size(), mine.size());
  };
  std::vector<Lane> lanes(peers_.size());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    lanes[i].out[1] = mine;
    lanes[i].in[1] = place(peers_[i].rank);
  }
  std::copy(mine.begin(), mine.end(), place(rank()).begin());
  return exchange_with_heads(kind, mine.size(), lanes);
}

Status Mesh::broadcast_now(std::span<std::byte> bytes, int root) {
  std::vector<Lane> lanes(peers_.size());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (rank() == root) lanes[i].out[1] = bytes;
    if (peers_[i].rank == root) lanes[i].in[1] = bytes;
  }
  return exchange_with_heads(kBroadcast, bytes.size(), lanes);
}

template <typename T>
void Mesh::sum(std::span<T> numbers, Done done) {
  submit(
      [this, numbers] {
        return numbers.size_bytes() <= kSmallBytes ? sum_small(numbers) : sum_now(numbers);
      },
      std::move(done));
}

void Mesh::broadcast(std::span<std::byte> bytes, int root, Done done) {
  submit([this, bytes, root] { return broadcast_now(bytes, root); }, std::move(done));
}

void Mesh::gather(std::span<const std::byte> mine, std::span<std::byte> all, Done done) {
  TAILOR_CHECK(all.size() == mine.size() * static_cast<std::size_t>(size()));
  submit([this, mine, all] { return gather_now(mine, all, kGather); }, std::move(done));
}

template <typename T>
Status Mesh::sum(std::span<T> numbers) {
  return wait([&](Done done) { sum(numbers, std::move(done)); });
}
Status Mesh::broadcast(std::span<std::byte> bytes, int root) {
  return wait([&](Done done) { broadcast(bytes, root, std::move(done)); });
}
Status Mesh::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  return wait([&](Done done) { gather(mine, all, std::move(done)); });
}

template void Mesh::sum(std::span<float>, Done);
template void Mesh::sum(std::span<double>, Done);
template void Mesh::sum(std::span<std::int32_t>, Done);
template void Mesh::sum(std::span<std::int64_t>, Done);
template Status Mesh::sum(std::span<float>);
template Status Mesh::sum(std::span<double>);
template Status Mesh::sum(std::span<std::int32_t>);
template Status Mesh::sum(std::span<std::int64_t>);

}  // namespace tailor::train::ranks
