// Steps whose work on the GPU is recorded once and replayed by a single launch (CUDA graphs): below
// some hundred million parameters a step is otherwise bound by the launching
// of its thousands of kernels.
//
// The same numbers as TrainStep's, bit for bit: the first steps run as they are, on the graph's
// stream; then the work is recorded over copies of the batch at fixed addresses, and every later
// step copies its batch there, sets the rate and replays. A batch of another shape runs as it is.
// When recording fails, the reason is logged once and all steps run as they are.
#pragma once

#include <memory>

#include "model/kernels/graph.h"
#include "model/train/step.h"

namespace tailor::train {

/// Threads: one. Do not destroy tensors that the decoder keeps between steps (weights, gradients,
/// RoPE tables, moments) while it lives: the recording holds their addresses.
class GraphedStep final : public StepRunner {
 public:
  /// `plain` must outlive it. `warm_up_steps` >= 1 run before recording.
  GraphedStep(TrainStep& plain, std::unique_ptr<kernels::Graph> graph, int warm_up_steps = 3)
      : plain_(plain), graph_(std::move(graph)), warm_up_left_(warm_up_steps) {}

  at::Tensor run(const at::Tensor& tokens_bt, const at::Tensor& targets_bt, double lr) override;

  /// True once steps are replayed.
  bool recorded() const { return recorded_; }

 private:
  bool fits(const at::Tensor& tokens_bt) const;
  void record();

  TrainStep& plain_;
  std::unique_ptr<kernels::Graph> graph_;  // null when recording failed
  int warm_up_left_;
  bool recorded_ = false;
  // At fixed addresses, on the device:
  at::Tensor tokens_;
  at::Tensor targets_;
  at::Tensor numbers_;  // {loss, norm} of the last replay
};

}  // namespace tailor::train
