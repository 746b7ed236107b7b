// The FFN part of a layer: what every variant offers, and the table of variants.
//
// A variant takes the residual stream and gives the residual stream back, norms and skips included,
// so the block around it does not know what is inside. To add one: NAME.cc with its mathematics at
// the top, a line in table.cc; the suite in tests/model/ffn then runs it (shapes, count equals
// real, gradients).
//
// Legend: n = B*T rows, d = d_model, K sub-MLPs of hidden widths d_h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "model/net/parameters.h"
#include "model/shape/architecture.h"

namespace tailor::ffn {

/// One layer's FFN. Parameters live in the ParameterSet given to the factory.
class Ffn {
 public:
  virtual ~Ffn() = default;
  /// x_nd: residual stream after attention (fp32; fp64 in gradient checks). Returns the stream
  /// after the FFN, same shape and type.
  virtual at::Tensor forward(const at::Tensor& x_nd) const = 0;
  /// Projection weights: 3 d * sum of hidden widths.
  virtual std::int64_t count() const = 0;
};

/// Everything a variant needs to build the FFN of one layer.
struct FfnShape {
  std::int64_t d_model = 0;
  shape::LayerWidths widths;  ///< K hidden widths
  shape::FfnNorm norm = shape::FfnNorm::kPerSub;
  shape::Family family = shape::Family::kLlama;
  bool outer_residual = false;
  double eps = 1e-5;
  std::string layer_prefix;  ///< "model.layers.3.": of exported names
  std::string key_prefix;    ///< "layers.3.": of initial values
};

/// A line of the table.
struct FfnVariant {
  shape::FfnKind kind;
  std::string_view name;
  std::unique_ptr<Ffn> (*make)(const FfnShape& shape, net::ParameterSet& parameters);
};

/// Every variant, in a fixed order.
std::span<const FfnVariant> variants();
/// The line of `kind`. REQUIRES: it is in the table (validate() checks architectures).
const FfnVariant& variant(shape::FfnKind kind);

// The factories that table.cc lists.
std::unique_ptr<Ffn> make_swiglu(const FfnShape& shape, net::ParameterSet& parameters);
std::unique_ptr<Ffn> make_hourglass(const FfnShape& shape, net::ParameterSet& parameters);

}  // namespace tailor::ffn
