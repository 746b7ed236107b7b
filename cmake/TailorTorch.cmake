# LibTorch from its PyPI wheel, unpacked by deploy/setup.sh. Only libtorch_cpu and libc10 are linked;
# libtorch_cpu itself needs libcudart.so.13 and libcupti.so.13 at run time, which setup.sh puts beside it.
# The wheel's include/google is left out when unpacking: it would hide the system's protobuf.
set(TORCH_ROOT "${TAILOR_THIRD_PARTY}/libtorch")
if(NOT EXISTS "${TORCH_ROOT}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is not in ${TORCH_ROOT}: run deploy/setup.sh, or configure with -DTAILOR_TORCH=OFF")
endif()
# The wheel also carries headers of a newer fmt, which would hide the system's (the one that is linked):
# a folder with only the system's fmt goes before them.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
set(fmt_first "${CMAKE_BINARY_DIR}/system_fmt")
file(MAKE_DIRECTORY "${fmt_first}")
file(CREATE_LINK "${fmt_include}/fmt" "${fmt_first}/fmt" SYMBOLIC)
add_library(tailor_torch INTERFACE)
target_include_directories(tailor_torch SYSTEM INTERFACE "${fmt_first}"
  "${TORCH_ROOT}/include" "${TORCH_ROOT}/include/torch/csrc/api/include")
target_compile_definitions(tailor_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_link_directories(tailor_torch INTERFACE "${TORCH_ROOT}/lib")
target_link_libraries(tailor_torch INTERFACE torch_cpu c10)
target_link_options(tailor_torch INTERFACE
  "-Wl,-rpath,${TORCH_ROOT}/lib" "-Wl,--disable-new-dtags" "-Wl,--allow-shlib-undefined")
