// A c10d::Backend over a Mesh: what c10d's Reducer needs on CPUs. Sums (all-reduce) of float,
// double and whole numbers, broadcast, gathering and barrier, on dense contiguous CPU tensors.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "model/train/ranks/mesh.h"

namespace tailor::train::ranks {

/// Operations return at once; their Work keeps the tensors alive and is completed by the mesh's
/// thread. A Work of a group that has ended throws the mesh's message. Threads: as Mesh.
class MeshBackend final : public c10d::Backend {
 public:
  /// `mesh` must outlive it and every Work.
  explicit MeshBackend(Mesh& mesh);

  const std::string getBackendName() const override { return "tailor"; }
  /// Operations that fail say so themselves.
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;

 private:
  Mesh& mesh_;
};

}  // namespace tailor::train::ranks
