// Recomputation: memory of activations for time (arXiv 1604.06174).
//
// A layer's forward pass keeps its input only; the backward pass runs the layer again, with a
// graph, and goes back through it. The kernels are deterministic, so losses and gradients are the
// same bits. Costs one forward pass more, of four (backward counts two); the activations kept fall
// from those of all layers to those of one and L residual streams.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace tailor::net {

/// layer(x_nd), recomputed when gradients flow back. `layer` may be called again until the backward
/// pass is over: what it refers to must live, and must not change, until then. REQUIRES: gradients
/// are on and `x_nd` requires one.
at::Tensor recomputed(std::function<at::Tensor(const at::Tensor& x_nd)> layer,
                      const at::Tensor& x_nd);

}  // namespace tailor::net
