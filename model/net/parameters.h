// ParameterSet: every weight of a network in one flat fp32 buffer, and every gradient in another.
//
// One buffer makes the optimiser two calls, the gradient norm one, zeroing one; the matrices stand
// first (they are decayed), the vectors (norm gains) behind them.
// Modules see views into the buffers.
//
// Matrices that are multiplied with the same input are packed by rows (q,k,v; gate,up): one larger
// product. The parts keep the names that checkpoints use, and are contiguous slices of the buffer.
//
// With bf16 precision each matrix has a bf16 copy, cast once a step from the fp32 master. Products
// use the copy and add the master's fp32 gradient where it is kept: see net/linear.h. Norm gains
// stay fp32. A set for inference has no gradients, and with bf16 its matrices exist in bf16 alone.
//
// Threads: one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/pretrained/safetensors.h"

namespace tailor::net {

/// How a tensor starts.
enum class Init {
  kNormal,    ///< N(0, std)
  kResidual,  ///< N(0, std) scaled by 1/sqrt(residual writes): W_o and W_dn
  kOnes,      ///< norm gains
};

/// What a set is for: inference needs no gradients.
enum class Use { kTraining, kInference };

/// A named tensor as checkpoints and other programs see it: a slice of the flat buffers.
struct Part {
  std::string name;  ///< "model.layers.0.self_attn.q_proj.weight"
  std::string key;   ///< names its initial values; equal for the same place in any architecture
  Init init = Init::kNormal;
  std::int64_t rows = 0;    ///< of a matrix; the size of a vector
  std::int64_t cols = 0;    ///< 0 for a vector
  std::int64_t offset = 0;  ///< first element in the flat buffers
  std::int64_t size() const { return cols == 0 ? rows : rows * cols; }
  std::vector<std::int64_t> shape() const {
    return cols == 0 ? std::vector<std::int64_t>{rows} : std::vector<std::int64_t>{rows, cols};
  }
};

/// How large a part is at the start: the standard deviation of a matrix, the value of a gain.
using InitialScale = std::function<double(const Part&)>;

/// One tensor of the network: parts packed by rows.
struct Parameter {
  std::vector<Part> parts;
  std::int64_t rows = 0;
  std::int64_t cols = 0;  ///< 0 for a vector
  at::Tensor master;      ///< fp32 leaf with a gradient; `compute` in a bf16 set for inference
  at::Tensor compute;     ///< what products use: `master`, or its bf16 copy, which has no gradient
};

/// See the top of this file. Use: add_*, allocate once, then initialise or load.
class ParameterSet {
 public:
  ParameterSet() = default;
  ParameterSet(const ParameterSet&) = delete;
  ParameterSet& operator=(const ParameterSet&) = delete;

  /// A matrix of parts that share `cols`. The reference stays valid. REQUIRES: before allocate.
  const Parameter& add_matrix(std::vector<Part> parts, std::int64_t cols);
  /// A norm gain of `size` ones.
  const Parameter& add_vector(std::string name, std::string key, std::int64_t size);

  /// Makes the buffers (zeros) on `device`. REQUIRES: called once.
  void allocate(at::Device device, bool bf16, Use use = Use::kTraining);

  /// Element (row, column) of part `key` is a function of (seed, key, row, column) and the scale
  /// alone, so a wider matrix contains the narrower. `residual_scale` multiplies kResidual parts.
  void initialise(std::uint64_t seed, const InitialScale& scale, double residual_scale);
  /// The same with matrices of one standard deviation and gains of 1.
  void initialise(std::uint64_t seed, double std, double residual_scale);

  /// fp32 weights and gradients, matrices first. REQUIRES: Use::kTraining (weights: or fp32).
  const at::Tensor& flat() const { return flat_; }
  const at::Tensor& gradient() const { return gradient_; }
  /// bf16 copies of the matrices (matrix_size() values), undefined in fp32.
  const at::Tensor& low() const { return low_; }
  /// Elements before this index belong to matrices.
  std::int64_t matrix_size() const { return matrix_size_; }
  std::int64_t size() const { return matrix_size_ + vector_size_; }

  void zero_gradient();
  /// After the weights changed: casts the bf16 copies anew (nothing in fp32).
  void refresh();

  /// All parts in buffer order.
  std::vector<const Part*> parts() const;
  /// All parameters in buffer order.
  std::vector<const Parameter*> parameters() const;

  /// Descriptions of `buffer` (CPU, fp32, size() elements) cut into parts, for write_safetensors;
  /// names get `prefix`. Pointers into `buffer`, which must outlive them.
  std::vector<pretrained::TensorData> describe(const at::Tensor& buffer,
                                               const std::string& prefix) const;
  /// Fills `buffer` (fp32, any device) from tensors named so, each straight into its place. Errors:
  /// kDataLoss naming file and tensor when one is missing or has another shape;
  /// those of the source.
  Status load(const pretrained::TensorSource& source, const std::string& prefix, at::Tensor buffer);
  /// Fills the weights themselves, whatever they are kept in, and refreshes bf16 copies.
  /// `stored_name` gives a part's name in the source. Errors: as `load`.
  Status load_weights(const pretrained::TensorSource& source,
                      const std::function<std::string(const Part&)>& stored_name);

  /// Name of the first part with a NaN or infinity in `buffer`; nullopt when all are finite.
  std::optional<std::string> first_nonfinite(const at::Tensor& buffer) const;

 private:
  void for_each(const std::function<void(Parameter&)>& visit);
  /// Where the weights of a part are kept.
  at::Tensor storage_of(const Part& part) const;

  std::deque<Parameter> matrices_;
  std::deque<Parameter> vectors_;
  std::int64_t matrix_size_ = 0;
  std::int64_t vector_size_ = 0;
  std::int64_t vectors_begin_ = 0;  // in flat_
  at::Tensor flat_;
  at::Tensor gradient_;
  at::Tensor low_;  // bf16 copies of the matrices, or undefined
};

}  // namespace tailor::net
