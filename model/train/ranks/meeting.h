// How the ranks of a group find each other: each publishes where it listens, then every pair makes
// two connections, one for words about their state (watch.h) and one for numbers (mesh.h). A secret
// of rank 0's, handed out by the rendezvous, keeps strangers out. No LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/train/ranks/socket.h"

namespace tailor::train::ranks {

/// A table that all ranks see. One thread each.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual Status publish(const std::string& key, const std::string& value) = 0;
  /// Waits for the key. Errors: kDeadlineExceeded, kUnavailable.
  virtual Result<std::string> find(const std::string& key, MonotonicMs deadline_ms) = 0;
};

struct MeetingOptions {
  int rank = 0;
  int size = 1;
  std::string address;  ///< numeric; where the others reach this rank
  std::string group;    ///< names what is done together; every rank must say the same
  MonotonicMs deadline_ms = 0;
  /// Asked while this rank waits: why there is no point in it any more.
  std::function<std::optional<std::string>()> give_up = [] { return std::nullopt; };
};

/// Another rank, once met.
struct Peer {
  int rank = 0;
  std::int64_t pid = 0;
  std::string host;
  Socket control;
  Socket data;
  /// "rank 1 (process 4711 on node2)"
  std::string name() const;
};

/// Meets all other ranks; every one of them has met all others when this returns. The result is in
/// the order of ranks, without this one. Errors: kDeadlineExceeded naming the ranks that did not
/// come; kInvalidArgument when another rank has another `group`;
/// kUnavailable naming the rank that left.
Result<std::vector<Peer>> meet(const MeetingOptions& options, Rendezvous& rendezvous,
                               const Clock& clock);

}  // namespace tailor::train::ranks
