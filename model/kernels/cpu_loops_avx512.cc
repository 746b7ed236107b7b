// The CPU loops for one instruction set; see cpu_loops.h. Flags are set in model/CMakeLists.txt.
#include "model/kernels/cpu_loops.h"

#define TAILOR_LOOPS avx512
#define TAILOR_LOOPS_NAME "avx512"
#include "model/kernels/cpu_loops.inc"
