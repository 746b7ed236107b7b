#include "model/kernels/cpu_loops.h"

#include <array>

namespace tailor::kernels {

namespace baseline {
extern const CpuLoops kLoops;
}
#ifdef TAILOR_X86_LOOPS
namespace avx2 {
extern const CpuLoops kLoops;
}
namespace avx512 {
extern const CpuLoops kLoops;
}
#endif

namespace {

struct Available {
  std::array<const CpuLoops*, 3> sets{};
  int count = 0;
};

Available find_available() {
  Available found;
  found.sets[found.count++] = &baseline::kLoops;
#ifdef TAILOR_X86_LOOPS
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    found.sets[found.count++] = &avx2::kLoops;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
      found.sets[found.count++] = &avx512::kLoops;
    }
  }
#endif
  return found;
}

const Available& available() {
  static const Available found = find_available();
  return found;
}

}  // namespace

const CpuLoops& cpu_loops() { return *available().sets[available().count - 1]; }

const CpuLoops* const* all_cpu_loops(int* count) {
  *count = available().count;
  return available().sets.data();
}

}  // namespace tailor::kernels
