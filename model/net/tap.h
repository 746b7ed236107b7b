// Places of a forward pass that can be watched.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace tailor::net {

/// Places in a forward pass that `Tap` sees.
enum class Place {
  kEmbedding,       ///< the stream that enters layer 0 (layer = -1)
  kAfterAttention,  ///< the stream that enters the FFN sub-block of `layer`
  kMlpInput,   ///< what gate and up of a sub-MLP are applied to; sub-MLPs of a layer come in order
  kMlpOutput,  ///< what its down projection gives, before a norm behind it
  kAfterSubMlp,  ///< the stream after its residual write
  kAfterFfn,     ///< the stream that leaves the FFN sub-block
  kFinal,        ///< after the final norm (layer = L)
};
/// Called with the rows of a forward pass as they are made; for clouds and for finding NaN.
using Tap = std::function<void(Place place, std::int64_t layer, const at::Tensor& x_nd)>;

/// A tap that an FFN sees: the layer is known.
using FfnTap = std::function<void(Place place, const at::Tensor& x_nd)>;

}  // namespace tailor::net
