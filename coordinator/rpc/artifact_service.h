// ArtifactService: the store of checkpoints (storage/artifacts.h) for workers. Who may bring what
// is decided by rows: an attempt's token, and a checkpoint that it reported; what was verified is
// told to the core, which names it in Assigns.
#pragma once

#include <set>

#include "coordinator/engine/views.h"
#include "coordinator/engine/work_pool.h"
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

  /// Tells the core what is there, and lets go of what is not needed. Once, before serving.
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
  /// Errors: kPermissionDenied, kNotFound, as the .proto says.
  Status may_bring(const v1::ArtifactKey& key) const;
  Result<storage::ArtifactStore::Progress> announce(const v1::BeginUploadRequest& request);
  void tell(TrialId trial);
  /// Removes what is not needed; with `for_space` also one artifact that is kept while there is
  /// space. False when there is none of those.
  bool collect_garbage(bool for_space);

  const engine::Views& views_;
  const Options& options_;
  engine::WorkPool pool_;
};

}  // namespace tailor::rpc
