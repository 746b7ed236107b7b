// AdamW over the flat buffers of a ParameterSet, with the gradient norm clipped on the device.
//
//   coefficient = min(1, clip / (|g| + 1e-6));  g *= coefficient
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w -= f lr (m/(1 - b1^t) / (sqrt(v/(1 - b2^t)) + eps)) + lr decay w    decay on matrices only
//
// f is 1 unless the recipe gives tensors rates of their own (recipe.h). One call for each pair of f
// and decay, of LibTorch's fused kernel on a GPU and of kernels/adamw.h on a CPU: two calls a step
// with one rate (matrices, vectors). A tied matrix is one slice of the buffer, hence updated once.
//
// A gradient that is not finite never reaches the weights: the kernel skips the step by a flag on
// the device. Once more steps than `skip_limit` were skipped, every later step is skipped too, so
// the weights stay those of the last good step until somebody reads the numbers of the step. t
// counts the steps that were not skipped.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "model/net/parameters.h"
#include "protocol/trial_spec.h"

namespace tailor::train {

class AdamW {
 public:
  /// The rate of a part divided by that of the step (f above).
  using LrFactor = std::function<double(const net::Part&)>;

  /// Keeps a reference to `parameters`, which must outlive it and be allocated.
  /// `factor` empty = 1 for all.
  AdamW(net::ParameterSet& parameters, const protocol::OptimizerSpec& spec,
        const LrFactor& factor = {}, std::int64_t skip_limit = 0);

  /// One update from the accumulated gradient. `loss` is the step's loss (double scalar on the
  /// device). Returns {loss, gradient norm before clipping} as a double tensor of 2 on the device,
  /// not read yet.
  at::Tensor step(double lr, const at::Tensor& loss);

  // The parts of `step`, for runners that record the device's work once
  // and replay it (CUDA graphs):
  /// Sets the rate of the next updates; on a GPU it lives in device memory.
  void set_rate(double lr);
  /// The device's part of one update: only in-place work on buffers of fixed address, no wait.
  at::Tensor update(const at::Tensor& loss);
  /// Counts a step whose update was replayed.
  void count_step() { ++steps_; }

  /// Steps taken, skipped ones included, for checkpoints.
  std::int64_t steps() const { return steps_; }
  /// Continues after `steps` steps of which `skipped` were skipped.
  void set_steps(std::int64_t steps, std::int64_t skipped = 0);
  /// m and v, flat, in the order of ParameterSet.
  at::Tensor& first_moment() { return m_; }
  at::Tensor& second_moment() { return v_; }

  /// Calls of the fused kernel that a step makes.
  std::size_t group_count() const { return groups_.size(); }

 private:
  // Slices of the buffers that share a rate and a decay.
  struct Group {
    double factor = 1;
    bool decayed = false;
    std::vector<at::Tensor> weights, gradients, m, v, steps;
    std::vector<at::Tensor> low;  // bf16 copies of the weights, undefined where there is none
    at::Tensor device_rate;       // the group's rate in fp32 on a GPU; undefined on the CPU
  };

  void add_slice(std::int64_t begin, std::int64_t count, double factor, bool decayed);

  // One pass over everything, with the rounded copies; the gradient is scaled on the way.
  void update_on_cpu(double gradient_scale);

  net::ParameterSet& parameters_;
  protocol::OptimizerSpec spec_;
  std::vector<Group> groups_;
  std::int64_t steps_ = 0;
  std::int64_t skip_limit_;
  at::Tensor m_;
  at::Tensor v_;
  at::Tensor step_;     // t as the kernel reads it
  at::Tensor skipped_;  // steps that were not finite so far
  at::Tensor bad_;      // 1 when this step must not be taken
  double rate_ = 0;
};

}  // namespace tailor::train
