// The seam between geometry/accelerator.cc and libtailor_geometry_cuda.so. Both are built together;
// nothing else uses it.
#pragma once

#include <string>

namespace tailor::geometry {

class Accelerator;

namespace cuda {

inline constexpr const char* kPluginFile = "libtailor_geometry_cuda.so";
inline constexpr const char* kOpenSymbol = "tailor_geometry_cuda_open_1";

/// Opens GPU `index`. Null, with `reason` set, when it cannot be used. The caller owns the result.
using OpenFunction = Accelerator*(int index, std::string* reason);

}  // namespace cuda
}  // namespace tailor::geometry
