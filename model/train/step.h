// One optimiser step: forward and backward over the micro-batches, then AdamW. And the search for
// what was not finite when a step fails.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "model/net/decoder.h"
#include "model/train/optimizer.h"
#include "model/train/ranks/reducer.h"
#include "protocol/trial_spec.h"

namespace tailor::train {

/// Who runs steps: TrainStep, or one that records its work once and replays it (graphed_step.h).
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// See TrainStep::run.
  virtual at::Tensor run(const at::Tensor& tokens_bt, const at::Tensor& targets_bt, double lr) = 0;
};

/// Parts of a step, for those who measure.
enum class Phase { kForward, kBackward, kUpdate };

class TrainStep final : public StepRunner {
 public:
  /// `micro_rows`: sequences of one forward pass; 0 = the whole batch. `z_loss`: see
  /// kernels::linear_cross_entropy; the loss that `run` returns includes it.
  /// References must outlive it.
  TrainStep(net::Decoder& decoder, AdamW& optimizer, std::int64_t micro_rows, double z_loss = 0)
      : decoder_(decoder), optimizer_(optimizer), micro_rows_(micro_rows), z_loss_(z_loss) {}

  /// Makes every step one of all ranks of `group`, which must outlive this: `run` gets this rank's
  /// rows; the loss and the gradient are the sums over all ranks, divided by `step_tokens`, the
  /// tokens of all. Gradients are summed during the last micro-batch's backward pass.
  void share(ranks::Group& group, std::int64_t step_tokens) {
    group_ = &group;
    step_tokens_ = step_tokens;
    reducer_ = std::make_unique<ranks::GradientReducer>(decoder_.parameters(), group);
  }

  /// One step on (rows, T) int64 tensors on the CPU or the device. The loss is the sum over all
  /// tokens of the step divided by their number, whatever the micro-batches. Returns {loss,
  /// gradient norm} (double, on the device, not read).
  at::Tensor run(const at::Tensor& tokens_bt, const at::Tensor& targets_bt, double lr) override;

  /// The device's part of `run`, for batches on the device: no wait, no copy from the host, and
  /// state only in buffers of fixed address, so that it can be recorded once and replayed.
  at::Tensor work(const at::Tensor& tokens_bt, const at::Tensor& targets_bt);

  /// On a GPU, sums are added in one order (the default), so that a run can be repeated bit for
  /// bit, or in the order of the fastest kernels: those of attention add as blocks finish.
  void set_fixed_order(bool fixed) { fixed_order_ = fixed; }

  AdamW& optimizer() { return optimizer_; }
  at::Device device() const { return decoder_.device(); }
  /// Calls `watcher` when a phase has been launched (on a GPU it may not be over).
  void watch(std::function<void(Phase)> watcher) { watcher_ = std::move(watcher); }

 private:
  net::Decoder& decoder_;
  AdamW& optimizer_;
  std::int64_t micro_rows_;
  ranks::Group* group_ = nullptr;
  std::int64_t step_tokens_ = 0;
  std::unique_ptr<ranks::GradientReducer> reducer_;
  double z_loss_;
  bool fixed_order_ = true;
  std::function<void(Phase)> watcher_;
};

/// What find_nonfinite says when it finds all finite.
inline constexpr std::string_view kNothingNonfinite = "the gradient norm (it overflows)";

/// Runs the batch again and says in words what is not finite first: a weight, a place of the
/// forward pass, the loss, or the gradient of a tensor. Changes only gradients.
std::string find_nonfinite(net::Decoder& decoder, const at::Tensor& tokens_bt,
                           const at::Tensor& targets_bt);

}  // namespace tailor::train
