// Network: streams between nodes and the coordinator, as gRPC gives them: each stream keeps its
// order or breaks as a whole; different streams overtake each other; a partition holds everything
// back; one end may notice a broken stream long before the other.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <tuple>

#include "coordinator/core/event.h"
#include "protocol/messages.h"
#include "tests/simulation/context.h"

namespace tailor::simulation {

class Network {
 public:
  explicit Network(Context& context) : c_(context) {}

  // Set by the world before anything moves.
  std::function<bool()> coordinator_up;
  std::function<void(core::Event)> to_coordinator;
  std::function<void(int node, std::uint64_t life, std::uint64_t session)> opened;
  std::function<void(int node, std::uint64_t life, std::uint64_t session, Status reason)> closed;
  std::function<void(int node, std::uint64_t life, std::uint64_t session,
                     protocol::CoordinatorMessage)>
      to_worker;

  /// A daemon (its `life` tells it from earlier ones of the node) wants a stream.
  void open(int node, std::uint64_t life, std::uint64_t session);
  void send_up(int node, std::uint64_t life, std::uint64_t session,
               protocol::WorkerMessage message);
  void send_down(core::SessionId id, protocol::CoordinatorMessage message);
  /// The daemon gave a stream up.
  void close_from_worker(int node, std::uint64_t life, std::uint64_t session);
  void close_from_coordinator(core::SessionId id, const Status& reason);
  /// Every stream of a node, or of the coordinator, breaks.
  void node_died(int node);
  void coordinator_died();
  /// A stranger's stream, which does not break; 0 while the coordinator is down.
  core::SessionId open_stranger();
  /// Puts a message into a random open stream, as if its worker had sent it. False when none is
  /// open.
  bool inject(protocol::WorkerMessage message);
  /// A random open stream breaks.
  void drop_one();
  /// Nothing passes to or from `node` for so long.
  void partition(int node, std::int64_t ms);
  void heal();

 private:
  struct Stream {
    core::SessionId id = 0;
    int node = 0;
    std::uint64_t life = 0;
    std::uint64_t session = 0;
    bool dead = false;     // for the worker; what is on its way up may still arrive
    bool deaf = false;     // for the coordinator too
    bool greeted = false;  // Hello reached the coordinator
    std::deque<protocol::WorkerMessage> up;
    std::deque<protocol::CoordinatorMessage> down;
    std::int64_t up_at = 0;  // when the last message of each direction arrives
    std::int64_t down_at = 0;
  };

  Stream* find(int node, std::uint64_t life, std::uint64_t session);
  Stream* live(core::SessionId id);
  Stream* any_open();
  bool cut_off(int node) const;
  void arrive_up(core::SessionId id);
  void arrive_down(core::SessionId id);
  /// A message comes in: at the end of its stream, or, as the faults want it, before the last one
  /// or twice.
  template <typename Queue>
  std::size_t enqueue(Queue& queue, typename Queue::value_type message, bool twice_allowed);
  void kill(Stream& stream, bool tell_worker, bool tell_coordinator, const Status& reason);

  Context& c_;
  std::map<core::SessionId, Stream> streams_;
  // Open ones, by their worker's end.
  std::map<std::tuple<int, std::uint64_t, std::uint64_t>, core::SessionId> by_end_;
  std::map<int, std::int64_t> cut_until_;
  core::SessionId next_id_ = 1;
};

}  // namespace tailor::simulation
