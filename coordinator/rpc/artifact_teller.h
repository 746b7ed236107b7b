// ArtifactTeller: tells the core which checkpoints of a trial can be fetched. Of what is stored
// only what the trial's own rows name, newest first. What the engine refuses for now (a full disk,
// too many requests) is told again until it is taken.
#pragma once

#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "coordinator/engine/views.h"
#include "storage/artifacts.h"

namespace tailor::rpc {

/// What a trial's rows say of its artifacts. Errors: they cannot be read.
Result<storage::ArtifactNeeds> artifact_needs(const storage::Store& store, TrialId trial);

/// Threads: any.
class ArtifactTeller {
 public:
  /// `views` and `artifacts` outlive it.
  ArtifactTeller(const engine::Views& views, const storage::ArtifactStore& artifacts);
  /// Stops as `stop` does.
  ~ArtifactTeller();

  /// Posts what is stored of a trial now: whatever is posted to the engine after it, comes after
  /// it.
  void tell(TrialId trial);
  /// Soon, a bounded number at a time, on a thread of its own.
  void tell_later(const std::vector<TrialId>& trials);
  /// What is not told yet is not told any more. Idempotent.
  void stop();

 private:
  struct Shared;
  void run();

  const engine::Views& views_;
  const storage::ArtifactStore& artifacts_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace tailor::rpc
