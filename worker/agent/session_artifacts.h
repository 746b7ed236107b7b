// ArtifactClient: the CheckpointStore over gRPC (tailor/v1/artifact.proto).
#pragma once

#include <memory>
#include <string>

#include "worker/agent/link.h"

namespace tailor::agent {

class ArtifactClient final : public CheckpointStore {
 public:
  /// `target` is host:port. No more than `bytes_per_s` are sent, or fetched, by one call;
  /// 0 = as fast as it goes.
  ArtifactClient(const std::string& target, std::uint64_t bytes_per_s);
  ~ArtifactClient() override;

  Status upload(const protocol::AttemptRef& ref, const protocol::CheckpointReport& report,
                const GiveUp& give_up) override;
  Status fetch(const protocol::AttemptRef& ref, const protocol::StoredCheckpoint& stored,
               const std::string& folder, const GiveUp& give_up) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::agent
