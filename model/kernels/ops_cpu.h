// The CPU's implementations of the operators of ops.h.
#pragma once

#include <torch/library.h>

namespace tailor::kernels {

/// Registers all of them, once. `library` is for the dispatch key CPU.
void register_cpu_operators(torch::Library& library);

}  // namespace tailor::kernels
