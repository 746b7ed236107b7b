// TensorSource: the named tensors of a checkpoint, read one range at a time as float32.
//
// What every checkpoint format offers (safetensors in one file or in shards, GGUF), so that a
// network is filled tensor by tensor and its weights are never in memory twice. Names are those of
// Hugging Face's models ("model.layers.0.self_attn.q_proj.weight"); a format that names or orders
// rows otherwise translates here. Torch-free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::pretrained {

/// One tensor as a checkpoint lists it.
struct SourceTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< outermost first; row-major
  std::string type;                 ///< as stored: "F32", "BF16", "Q4_K", ...

  /// Product of the shape; formats check that it fits when they read their header.
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t size : shape) product *= size;
    return product;
  }
  /// Elements of one row: the last size, 1 for a scalar.
  std::int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
};

/// See the top of this file. Threads: const functions from any.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// The file or folder, for messages.
  virtual const std::string& path() const = 0;
  /// Every tensor, sorted by name. Lives as long as the source.
  virtual const std::vector<SourceTensor>& tensors() const = 0;
  /// Elements [first, first + values.size()) of tensor `name` in row-major order, as float32 (F64
  /// is rounded, quantised types are dequantised). Both ends lie at whole rows. Errors name file
  /// and tensor: kNotFound (no such tensor), kOutOfRange (not whole rows, or beyond the end),
  /// kInvalidArgument (not a floating-point type), kDataLoss (the file was cut meanwhile),
  /// kUnavailable (the system's reason).
  virtual Status read(std::string_view name, std::int64_t first, std::span<float> values) const = 0;

  /// nullptr when there is no such tensor.
  const SourceTensor* find(std::string_view name) const {
    const std::vector<SourceTensor>& all = tensors();
    const auto at = std::lower_bound(
        all.begin(), all.end(), name,
        [](const SourceTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
    return at != all.end() && at->name == name ? &*at : nullptr;
  }

 protected:
  TensorSource() = default;
  TensorSource(const TensorSource&) = default;
  TensorSource(TensorSource&&) = default;
  TensorSource& operator=(const TensorSource&) = default;
  TensorSource& operator=(TensorSource&&) = default;
};

}  // namespace tailor::pretrained
