// One optimiser step: forward and backward over the micro-batches, then AdamW. And the search for
// what was not finite when a step fails.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "model/net/decoder.h"
#include "model/train/optimizer.h"
#include "protocol/trial_spec.h"

namespace tailor::train {

class TrainStep {
 public:
  /// `micro_rows`: sequences of one forward pass; 0 = the whole batch. References must outlive it.
  TrainStep(net::Decoder& decoder, AdamW& optimizer, std::int64_t micro_rows)
      : decoder_(decoder), optimizer_(optimizer), micro_rows_(micro_rows) {}

  /// One step on (rows, T) int64 CPU tensors. The loss is the sum over all tokens of the step
  /// divided by their number, whatever the micro-batches. Returns {loss, gradient norm} (double, on
  /// the device, not read).
  at::Tensor run(const at::Tensor& tokens_bt, const at::Tensor& targets_bt, double lr);

 private:
  net::Decoder& decoder_;
  AdamW& optimizer_;
  std::int64_t micro_rows_;
};

/// Runs the batch again and says in words what is not finite first: a weight, a place of the
/// forward pass, the loss, or the gradient of a tensor. Changes only gradients.
std::string find_nonfinite(net::Decoder& decoder, const at::Tensor& tokens_bt,
                           const at::Tensor& targets_bt);

}  // namespace tailor::train
