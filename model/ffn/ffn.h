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
#include <vector>

#include "model/net/form.h"
#include "model/net/parameters.h"
#include "model/net/tap.h"
#include "model/shape/architecture.h"

namespace tailor::ffn {

/// One layer's FFN. Parameters live in the ParameterSet given to the factory.
class Ffn {
 public:
  virtual ~Ffn() = default;
  /// x_nd: residual stream after attention (fp32). Returns the stream
  /// after the FFN, same shape and type. `tap`, if any, sees the places inside.
  virtual at::Tensor forward(const at::Tensor& x_nd, const net::FfnTap* tap = nullptr) const = 0;
  /// Projection weights: 3 d * sum of hidden widths.
  virtual std::int64_t count() const = 0;
};

/// Everything a variant needs to build the FFN of one layer. What is not said here: net/form.h.
struct FfnShape {
  std::int64_t d_model = 0;
  shape::LayerWidths widths;  ///< K hidden widths
  shape::FfnNorm norm = shape::FfnNorm::kPerSub;
  bool norm_behind = false;
  bool outer_residual = false;
  net::Activation activation = net::Activation::kSilu;
  double eps = 1e-5;
  bool gain_plus_one = false;
  double norm_scale = 1;
  std::vector<double> write_scales;  ///< of each sub-MLP; empty = ones
  /// The norm behind attention bears the name that LLaMA gives to the one before the FFN.
  bool attention_norm_behind = false;
  std::string layer_prefix;  ///< "model.layers.3.": of exported names
  std::string key_prefix;    ///< "layers.3.": of initial values
};

/// The FFN of layer `layer` of a form.
FfnShape ffn_shape(const net::DecoderForm& form, std::size_t layer);

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
