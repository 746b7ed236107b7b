// Group: the ranks of a data-parallel trial as the training loop sees them.
//
// Rank r of R takes its share of the rows of every batch, gradients are summed over the ranks, and
// everything else (weights, moments, schedule) is the same on all of them. Rank 0 speaks for the
// group: it alone writes reports, checkpoints and artifacts.
//
// Numbers on the device are summed by c10d: on CPUs over our own backend (backend.h), on GPUs over
// NCCL, which the CUDA plugin brings. What the hosts agree on (stopping, texts) goes over the mesh
// in either case, and so does the watch over lost ranks (watch.h).
//
// Operations throw GroupLost when the group has ended.
// A group of one does nothing and never throws.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/train/ranks/mesh.h"

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace tailor::train::ranks {

/// The group has ended; `end()` says why.
class GroupLost : public std::runtime_error {
 public:
  explicit GroupLost(GroupEnd end) : runtime_error(end.message), end_(std::move(end)) {}
  const GroupEnd& end() const { return end_; }

 private:
  GroupEnd end_;
};

/// Makes what sums numbers on a device instead of MeshBackend: NCCL on GPUs, see nccl.cc in this
/// folder.
using MakeBackend = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, at::Device device)>;

struct GroupOptions {
  int rank = 0;
  int size = 1;
  /// Where rank 0 listens while the ranks meet, by TCPStore. Rank 0 may bring a socket that listens
  /// there already.
  Endpoint rendezvous;
  Socket listener;
  std::string group;  ///< what the ranks do together; the same on every rank
  at::Device device{at::kCPU};
  MakeBackend make_backend;  ///< empty: MeshBackend, which takes CPU tensors alone
  std::int64_t meet_ms = 300'000;
  std::int64_t lost_after_ms = 10'000;
  /// Asked while the ranks meet: why there is no point in waiting any more.
  std::function<std::optional<std::string>()> give_up = [] { return std::nullopt; };
};

/// Rows [begin, begin + count) of a batch.
struct Share {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Threads: one.
class Group {
 public:
  /// A group of one.
  Group();
  /// Meets the others. Errors: those of Mesh::join; kAlreadyExists (rank 0: the port is in use);
  /// kDeadlineExceeded (no rank 0 there). Throws what NCCL throws.
  static Result<std::unique_ptr<Group>> join(GroupOptions options, const Clock& clock);
  /// Over a mesh that exists, on CPUs.
  explicit Group(std::unique_ptr<Mesh> mesh);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return mesh_ ? mesh_->size() : 1; }
  bool is_first() const { return rank_ == 0; }
  /// This rank's part of `rows` rows: as even as possible, the union of all is the whole.
  Share share(std::int64_t rows) const;

  /// Sums over the ranks, in place; on the device, whose stream waits (the host does not on a GPU).
  void sum(const at::Tensor& x);
  /// The tensor of rank 0 for all, in place.
  void copy_from_first(const at::Tensor& x);
  /// Sums of the hosts.
  void sum(std::span<double> values);
  /// The text of every rank, in their order; cut after 1000 bytes.
  std::vector<std::string> gather(const std::string& text);
  /// All ranks ask together: the reason of the first rank that has one, with its name,
  /// on every rank.
  std::optional<std::string> agree(const std::optional<std::string>& reason);
  /// All ranks ask together, each after its device has finished the work that `numbers` come from:
  /// returns when every rank has come here and all have the same `numbers` (the same count, to
  /// kSameNumbers of the larger one; NaN equals NaN), and no backend has given up. A communicator
  /// that is aborted hands out partial sums without a word, so nothing that sums on a device went
  /// into (metrics, snapshots, "not finite") may be believed before. Otherwise the group ends as
  /// infrastructure, and GroupLost is thrown on every rank. `what` names the numbers in the
  /// message.
  void confirm(std::span<const double> numbers, std::string_view what);
  /// Ranks on different kinds of hardware may round a norm differently; partial sums are further
  /// off.
  static constexpr double kSameNumbers = 1e-6;

  /// c10d's view, for the Reducer. REQUIRES: size() > 1.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const { return process_group_; }

  /// What ended the group, if anything; waits up to `wait_ms` for it to be known.
  std::optional<GroupEnd> ended(std::int64_t wait_ms = 0) const;
  /// Tells the others why this rank ends. The first end counts.
  void end(protocol::EndClass end, const std::string& message);
  /// This rank needs the others no more, nor they it:
  /// from now on it is a group of one, with its rank.
  void leave();

 private:
  void require(const Status& status) const;
  [[noreturn]] void lost() const;

  int rank_ = 0;
  std::unique_ptr<Mesh> mesh_;             // none: a group of one
  c10::intrusive_ptr<c10d::Store> store_;  // as long as NCCL may ask it
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
};

}  // namespace tailor::train::ranks
