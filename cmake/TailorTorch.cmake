# LibTorch from its PyPI wheel, unpacked by deploy/setup.sh. Only libtorch_cpu and libc10 are linked;
# libtorch_cpu itself needs libcudart.so.13 and libcupti.so.13 at run time, which setup.sh puts beside it.
# The wheel's include/google is left out when unpacking: it would hide the system's protobuf.
set(TORCH_ROOT "${TAILOR_THIRD_PARTY}/libtorch")
if(NOT EXISTS "${TORCH_ROOT}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is not in ${TORCH_ROOT}: run deploy/setup.sh, or configure with -DTAILOR_TORCH=OFF")
endif()
add_library(tailor_torch INTERFACE)
target_include_directories(tailor_torch SYSTEM INTERFACE
  "${TORCH_ROOT}/include" "${TORCH_ROOT}/include/torch/csrc/api/include")
target_compile_definitions(tailor_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_link_directories(tailor_torch INTERFACE "${TORCH_ROOT}/lib")
target_link_libraries(tailor_torch INTERFACE torch_cpu c10)
target_link_options(tailor_torch INTERFACE
  "-Wl,-rpath,${TORCH_ROOT}/lib" "-Wl,--disable-new-dtags" "-Wl,--allow-shlib-undefined")
