// ArtifactService: the store of checkpoints (storage/artifacts.h) for workers. Who may bring what
// is decided by rows: an attempt's token, and a checkpoint that it reported; what was verified is
// told to the core, which names it in Assigns.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "coordinator/engine/views.h"
#include "coordinator/engine/work_pool.h"
#include "coordinator/rpc/artifact_teller.h"
#include "coordinator/rpc/server.h"
#include "storage/artifacts.h"
#include "tailor/v1/artifact.grpc.pb.h"

namespace tailor::rpc {

class ArtifactServiceImpl final : public v1::ArtifactService::CallbackService {
 public:
  /// `options.artifacts` may be null: every call is refused. `views` and it must outlive the
  /// service.
  ArtifactServiceImpl(const engine::Views& views, const Options& options);
  ~ArtifactServiceImpl() override;

  /// Tells the core what there is of the trials that it may place. Once, before serving. What there
  /// is of others (they may be tried again), and what is not needed, is looked through while it
  /// serves: that may be much.
  void begin();
  /// Ends the pool. No call may begin after.
  void stop();

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* BeginUpload(Context*, const v1::BeginUploadRequest*, v1::BeginUploadResponse*) override;
  Reactor* WriteChunk(Context*, const v1::WriteChunkRequest*, v1::WriteChunkResponse*) override;
  Reactor* FinishUpload(Context*, const v1::FinishUploadRequest*,
                        v1::FinishUploadResponse*) override;
  Reactor* DescribeArtifact(Context*, const v1::DescribeArtifactRequest*,
                            v1::DescribeArtifactResponse*) override;
  Reactor* ReadChunk(Context*, const v1::ReadChunkRequest*, v1::ReadChunkResponse*) override;

 private:
  /// Errors: kFailedPrecondition when the store is off.
  Result<storage::ArtifactStore*> store() const;
  /// The attempt that has this number and this token. Errors: kPermissionDenied: there is none.
  Result<storage::AttemptRow> attempt_of(TrialId trial, std::uint32_t number,
                                         FencingToken token) const;
  /// Errors: as `attempt_of`, also when the attempt has ended.
  Status may_read(TrialId trial, std::uint32_t number, FencingToken token) const;
  /// Errors: kPermissionDenied, kNotFound, as the .proto says.
  Status may_bring(const v1::ArtifactKey& key) const;
  Result<storage::ArtifactStore::Progress> announce(const v1::BeginUploadRequest& request);
  /// Ok when it is worth bringing. Errors: kCancelled when a newer one of its trial is here, or the
  /// trial has completed.
  Status is_wanted(const storage::ArtifactKey& key) const;
  /// Removes what is not needed of a trial.
  void clean(TrialId trial);
  /// ... of all that is only on its way, now and then.
  void clean_parts();
  /// Removes something that is kept while there is space. False when there is nothing.
  bool make_room();
  /// Trials of which something can go, what is missed least first.
  std::deque<TrialId> removable() const;
  /// False when one cannot be removed.
  bool remove(TrialId trial, const std::vector<storage::ArtifactKey>& keys);

  const engine::Views& views_;
  const Options& options_;
  std::unique_ptr<ArtifactTeller> teller_;  // null when there is no store
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // guards what follows
  std::deque<TrialId> removable_;
  MonotonicMs looked_ms_ = 0;   // for what is removable
  MonotonicMs cleaned_ms_ = 0;  // the parts
  engine::WorkPool pool_;
  engine::WorkPool verifying_;  // apart: it reads whole checkpoints while others wait for a chunk
};

}  // namespace tailor::rpc
