#include "tests/simulation/network.h"

#include <fmt/format.h>

#include <algorithm>

namespace tailor::simulation {

Network::Stream* Network::find(int node, std::uint64_t life, std::uint64_t session) {
  const auto end = by_end_.find({node, life, session});
  return end == by_end_.end() ? nullptr : live(end->second);
}

Network::Stream* Network::live(core::SessionId id) {
  const auto found = streams_.find(id);
  return found == streams_.end() || found->second.dead ? nullptr : &found->second;
}

bool Network::cut_off(int node) const {
  const auto found = cut_until_.find(node);
  return found != cut_until_.end() && found->second > c_.now();
}

void Network::open(int node, std::uint64_t life, std::uint64_t session) {
  c_.after(c_.network_delay(), [=, this] {
    if (!coordinator_up() || cut_off(node)) {
      return c_.after(c_.up_to(1'000), [=, this] {
        closed(node, life, session, {Code::kUnavailable, "connection refused"});
      });
    }
    Stream stream;
    stream.id = next_id_++;
    stream.node = node;
    stream.life = life;
    stream.session = session;
    const core::SessionId id = stream.id;
    by_end_[{node, life, session}] = id;
    streams_.emplace(id, std::move(stream));
    c_.after(c_.network_delay(), [=, this] {
      if (live(id) != nullptr) opened(node, life, session);
    });
  });
}

core::SessionId Network::open_stranger() {
  if (!coordinator_up()) return 0;
  Stream stream;
  stream.id = next_id_++;
  stream.node = -1;
  stream.greeted = true;
  const core::SessionId id = stream.id;
  streams_.emplace(id, std::move(stream));
  return id;
}

template <typename Queue>
std::size_t Network::enqueue(Queue& queue, typename Queue::value_type message, bool twice_allowed) {
  const bool twice =
      twice_allowed && c_.faults.message_twice > 0 && c_.chance(c_.faults.message_twice);
  const bool overtakes =
      c_.faults.message_overtakes > 0 && queue.size() > 1 && c_.chance(c_.faults.message_overtakes);
  if (twice) {
    c_.count("message twice");
    queue.push_back(message);
  }
  queue.push_back(std::move(message));
  if (overtakes) {  // never the greeting: without it there is no stream
    c_.count("message out of order");
    std::swap(queue[queue.size() - 1], queue[queue.size() - 2]);
  }
  return twice ? 2 : 1;
}

void Network::send_up(int node, std::uint64_t life, std::uint64_t session,
                      protocol::WorkerMessage message) {
  Stream* stream = find(node, life, session);
  if (stream == nullptr) return;
  // A second greeting would end the stream, and no transport makes one of a first.
  const bool greeting = std::holds_alternative<protocol::Hello>(message);
  const std::size_t times = enqueue(stream->up, std::move(message), !greeting);
  stream->up_at = std::max(stream->up_at, c_.now() + c_.network_delay());
  for (std::size_t i = 0; i < times; ++i) {
    c_.after(stream->up_at - c_.now(), [this, id = stream->id] { arrive_up(id); });
  }
}

void Network::send_down(core::SessionId id, protocol::CoordinatorMessage message) {
  Stream* found = live(id);
  if (found == nullptr) return;
  Stream& stream = *found;
  if (stream.node < 0) return;  // strangers do not listen
  const std::size_t times = enqueue(stream.down, std::move(message), true);
  stream.down_at = std::max(stream.down_at, c_.now() + c_.network_delay());
  for (std::size_t i = 0; i < times; ++i) {
    c_.after(stream.down_at - c_.now(), [this, id] { arrive_down(id); });
  }
}

void Network::arrive_up(core::SessionId id) {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.deaf || found->second.up.empty()) return;
  Stream& stream = found->second;
  if (stream.dead) c_.count("message of a broken stream");
  if (cut_off(stream.node)) {
    return c_.after(cut_until_.at(stream.node) - c_.now(), [this, id] { arrive_up(id); });
  }
  protocol::WorkerMessage message = std::move(stream.up.front());
  stream.up.pop_front();
  if (auto* hello = std::get_if<protocol::Hello>(&message); hello != nullptr && !stream.greeted) {
    stream.greeted = true;
    to_coordinator(core::SessionOpened{id, std::move(*hello)});
  } else {
    to_coordinator(core::SessionMessage{id, std::move(message)});
  }
}

void Network::arrive_down(core::SessionId id) {
  Stream* found = live(id);
  if (found == nullptr || found->down.empty()) return;
  Stream& stream = *found;
  if (cut_off(stream.node)) {
    return c_.after(cut_until_.at(stream.node) - c_.now(), [this, id] { arrive_down(id); });
  }
  protocol::CoordinatorMessage message = std::move(stream.down.front());
  stream.down.pop_front();
  to_worker(stream.node, stream.life, stream.session, std::move(message));
}

void Network::kill(Stream& stream, bool tell_worker, bool tell_coordinator, const Status& reason) {
  if (stream.dead) return;
  stream.dead = true;
  by_end_.erase({stream.node, stream.life, stream.session});
  c_.count("stream broke");
  if (tell_worker && stream.node >= 0) {
    c_.after(c_.network_delay(),
             [this, node = stream.node, life = stream.life, session = stream.session, reason] {
               closed(node, life, session, reason);
             });
  }
  // The other end may hear the last messages, and of the end,
  // long after the worker opened another stream.
  stream.deaf = stream.deaf || c_.chance(0.5);
  const std::int64_t late = c_.healed ? 1'000 : c_.up_to(c_.faults.half_open_ms_max);
  c_.after(late, [this, id = stream.id, tell_coordinator] {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    const bool tell = tell_coordinator && found->second.greeted;
    streams_.erase(found);
    if (tell) to_coordinator(core::SessionClosed{id});
  });
}

void Network::close_from_worker(int node, std::uint64_t life, std::uint64_t session) {
  if (Stream* stream = find(node, life, session)) kill(*stream, false, true, {});
}

void Network::close_from_coordinator(core::SessionId id, const Status& reason) {
  if (reason.code() == Code::kAlreadyExists) c_.count("refused: the name is taken");
  if (Stream* stream = live(id)) kill(*stream, true, true, reason);
}

void Network::node_died(int node) {
  for (auto& [id, stream] : streams_) {
    if (stream.node == node) kill(stream, false, true, {});
  }
}

void Network::coordinator_died() {
  for (auto& [id, stream] : streams_) {
    stream.deaf = true;
    kill(stream, true, false, {Code::kUnavailable, "connection reset"});
  }
}

Network::Stream* Network::any_open() {
  std::vector<Stream*> open;
  for (auto& [id, stream] : streams_) {
    if (!stream.dead && stream.node >= 0) open.push_back(&stream);
  }
  return open.empty() ? nullptr : open[c_.rng.below(open.size())];
}

bool Network::inject(protocol::WorkerMessage message) {
  const Stream* stream = any_open();
  if (stream == nullptr || !stream->greeted) return false;
  send_up(stream->node, stream->life, stream->session, std::move(message));
  return true;
}

void Network::drop_one() {
  if (Stream* stream = any_open()) kill(*stream, true, true, {Code::kUnavailable, "stream reset"});
}

void Network::partition(int node, std::int64_t ms) {
  c_.count("partition");
  std::int64_t& until = cut_until_[node];
  until = std::max(until, c_.now() + ms);
}

void Network::heal() {
  for (auto& [node, until] : cut_until_) until = std::min(until, c_.now());
}

}  // namespace tailor::simulation
