// AdamW over the flat buffers of a ParameterSet, with the gradient norm clipped on the device.
//
//   coefficient = min(1, clip / (|g| + 1e-6));  g *= coefficient
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w -= lr (m/(1 - b1^t) / (sqrt(v/(1 - b2^t)) + eps) + decay w)        decay on matrices only
//
// Two calls of LibTorch's fused kernel a step: matrices, vectors. A tied matrix is one slice of the
// buffer, hence updated once.
//
// A gradient that is not finite never reaches the weights: the kernel skips the step by a flag on
// the device, and every later step too, so the weights stay those of the last good step until
// somebody reads the numbers of the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/net/parameters.h"
#include "protocol/trial_spec.h"

namespace tailor::train {

class AdamW {
 public:
  /// Keeps a reference to `parameters`, which must outlive it and be allocated.
  AdamW(net::ParameterSet& parameters, const protocol::OptimizerSpec& spec);

  /// One update from the accumulated gradient. `loss` is the step's loss (double scalar on the
  /// device). Returns {loss, gradient norm before clipping} as a double tensor of 2 on the device,
  /// not read yet.
  at::Tensor step(double lr, const at::Tensor& loss);

  // The parts of `step`, for runners that record the device's work once and replay it (CUDA
  // graphs):
  /// Sets the rate of the next updates; on a GPU it lives in device memory.
  void set_rate(double lr);
  /// The device's part of one update: only in-place work on buffers of fixed address, no wait.
  at::Tensor update(const at::Tensor& loss);
  /// Counts a step whose update was replayed.
  void count_step() { ++steps_; }

  /// Steps taken (t above), for checkpoints.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps);
  /// m and v, flat, in the order of ParameterSet.
  at::Tensor& first_moment() { return m_; }
  at::Tensor& second_moment() { return v_; }

 private:
  net::ParameterSet& parameters_;
  protocol::OptimizerSpec spec_;
  std::int64_t steps_ = 0;
  at::Tensor m_;
  at::Tensor v_;
  at::Tensor matrix_step_;  // t as the kernel keeps it, one a group
  at::Tensor vector_step_;
  at::Tensor bad_;  // 1 after a step that was not finite
  double rate_ = 0;
  at::Tensor device_rate_;  // `rate_` in fp32 on a GPU; undefined on the CPU
};

}  // namespace tailor::train
