// What diagnostics ask of a network: to be run one layer at a time.
//
// Legend: G sequences, T time, n = G T rows ordered (g, t), d = width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/status.h"

namespace tailor::diagnose {

/// The stream around the FFN sub-block of a layer, each (n, d) in fp32. Tensors of their own: the
/// caller may write into them.
struct AroundFfn {
  at::Tensor before;
  at::Tensor after;
};

/// Threads: one.
class ProbeNetwork {
 public:
  virtual ~ProbeNetwork() = default;
  virtual std::int64_t depth() const = 0;
  virtual std::int64_t width() const = 0;
  /// Parameters that a row is multiplied with in a layer and in the head: how long passes take.
  virtual double layer_parameters() const = 0;
  virtual double head_parameters() const = 0;
  /// Where tokens must be.
  virtual at::Device device() const = 0;
  /// Makes `layer` ready for `pass`; others may be given up for it. Errors: those of reading.
  virtual Status load(std::int64_t layer) = 0;
  /// The stream that enters layer 0. tokens_gt: int64.
  virtual at::Tensor start(const at::Tensor& tokens_gt) = 0;
  /// REQUIRES: `layer` was loaded last; rows of `sequences` sequences of equal length.
  virtual AroundFfn pass(const at::Tensor& x_nd, std::int64_t sequences) = 0;
  /// -log p(target) of rows of the stream that leaves the last layer, (n) doubles.
  virtual at::Tensor row_losses(const at::Tensor& x_nd, const at::Tensor& targets_n) = 0;
};

}  // namespace tailor::diagnose
