// Mesh: a group of ranks and what they do together: sums, broadcasts, gathering; with deadlines,
// and with an end that names the rank that is the reason (watch.h). For CPUs, and for the host side
// of GPUs. No LibTorch.
//
// Every pair of ranks has a connection for numbers. A sum of n numbers over R ranks: rank r
// receives the r-th part from all others, adds in the order of ranks 0, 1, 2, ... and sends the sum
// to all: 2n numbers out and in whatever R, and every rank gets the same bits, whatever the timing.
// Small sums go to everybody at once and are added by each, in the same order.
//
// Operations run on one thread, in the order in which they were asked for, which must be the same
// on every rank; a header in front of each tells when it is not.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/train/ranks/meeting.h"
#include "model/train/ranks/watch.h"

namespace tailor::train::ranks {

struct MeshOptions {
  int rank = 0;
  int size = 1;
  std::string address = "127.0.0.1";  ///< numeric; where the others reach this rank
  std::string group;                  ///< names what is done together; the same on every rank
  std::int64_t meet_ms = 300'000;     ///< for all to come
  std::function<std::optional<std::string>()> give_up = [] { return std::nullopt; };  ///< see meet
  std::int64_t lost_after_ms = 10'000;  ///< silence after which a rank is lost
  std::int64_t stall_ms = 30 * 60'000;  ///< an operation may wait so long for a rank that lives
};

/// Threads: any, but the order of operations must be the same on every rank.
class Mesh {
 public:
  /// Called on the mesh's own thread when an operation is over. Must not block on the mesh.
  using Done = std::function<void(const Status&)>;

  /// Errors: those of `meet`.
  static Result<std::unique_ptr<Mesh>> join(const MeshOptions& options, Rendezvous& rendezvous,
                                            const Clock& clock);
  /// Leaves the group; operations that are not over fail.
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }

  /// Sums over the ranks, in place. T is float, double, std::int32_t or std::int64_t. The numbers
  /// must stay where they are until `done`. Errors: kUnavailable with the message of `ended()`.
  template <typename T>
  void sum(std::span<T> numbers, Done done);
  /// The bytes of rank `root` for all.
  void broadcast(std::span<std::byte> bytes, int root, Done done);
  /// `mine` of every rank, one after the other, into `all` (size() times as long). `all` must not
  /// overlap `mine`.
  void gather(std::span<const std::byte> mine, std::span<std::byte> all, Done done);

  /// The same, waiting.
  template <typename T>
  Status sum(std::span<T> numbers);
  Status broadcast(std::span<std::byte> bytes, int root);
  Status gather(std::span<const std::byte> mine, std::span<std::byte> all);

  /// What ended the group, if anything; waits up to `wait_ms` for it to be known.
  std::optional<GroupEnd> ended(std::int64_t wait_ms = 0) const {
    return watch_->wait_for_end(wait_ms);
  }
  /// The same; when an operation has failed, it may take a moment until it is known.
  GroupEnd reason() const;
  /// Tells the others why this rank ends; the first end counts.
  void end(protocol::EndClass end, std::string message);
  /// This rank needs the others no more.
  void leave() { watch_->leave(); }
  /// Called once when the group ends, from whichever thread sees the end, or at once when it has
  /// ended; no lock of the mesh is held, so it may block. A listener that is being replaced may
  /// still be running when this returns; when the mesh is destroyed, none is.
  void on_end(std::function<void()> listener);

 private:
  struct Operation {
    std::function<Status()> run;
    Done done;
  };
  // What goes to and comes from one peer: two pieces each way, the first is the header.
  struct Lane {
    std::span<const std::byte> out[2];
    std::span<std::byte> in[2];
  };
  struct Head {
    std::uint32_t kind = 0;
    std::uint32_t number = 0;
    std::uint64_t bytes = 0;
  };

  Mesh(const MeshOptions& options, std::vector<Peer> peers, const Clock& clock);

  void submit(std::function<Status()> run, Done done);
  Status wait(const std::function<void(Done)>& start);
  void run();
  void stop_data();

  // One header for each peer, sent with what `lanes` hold behind it; theirs must be equal.
  Status exchange_with_heads(std::uint32_t kind, std::uint64_t bytes, std::vector<Lane>& lanes);
  Status exchange(std::vector<Lane>& lanes, const std::function<Status(std::size_t)>& head_came);
  Status advance(std::size_t peer, Lane& lane, bool& moved);
  Status broken(std::size_t peer, const std::string& what, protocol::EndClass end);
  Status failure() const;

  template <typename T>
  Status sum_now(std::span<T> numbers);
  template <typename T>
  Status sum_small(std::span<T> numbers);
  Status gather_now(std::span<const std::byte> mine, std::span<std::byte> all, std::uint32_t kind);
  Status broadcast_now(std::span<std::byte> bytes, int root);

  const MeshOptions options_;
  const Clock& clock_;
  std::vector<Peer> peers_;

  // Of the data thread alone.
  std::uint32_t number_ = 0;  // of the operation
  std::vector<std::byte> scratch_;

  std::mutex mutex_;  // guards the five below
  std::condition_variable wake_;
  std::deque<Operation> queue_;
  bool closing_ = false;
  bool stopped_ = false;
  std::function<void()> on_end_;

  std::unique_ptr<Watch> watch_;
  std::thread thread_;
};

}  // namespace tailor::train::ranks
