// The CPU loops for one instruction set; see cpu_loops.h. Flags are set in model/CMakeLists.txt.
#include "model/kernels/cpu_loops.h"

#define TAILOR_LOOPS baseline
#define TAILOR_LOOPS_NAME "baseline"
#include "model/kernels/cpu_loops.inc"
