// The base of tests that need a GPU: loads libtailor_cuda.so, or skips the test and says why.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "model/kernels/graph.h"

namespace tailor::test {

/// What the plugin says of this machine.
struct Gpus {
  void* plugin = nullptr;  ///< never closed: its kernels are registered
  int count = 0;
  std::string reason;  ///< why there is none
};

inline const Gpus& gpus() {
  static const Gpus found = [] {
    Gpus out;
    // tests/gpu.sh runs these programs where they were not built.
    const char* given = std::getenv("TAILOR_BIN");
    const std::string folder = given != nullptr ? given : TAILOR_BIN_DIR;
    out.plugin = ::dlopen((folder + "/libtailor_cuda.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (out.plugin == nullptr) {
      out.reason = ::dlerror();
      return out;
    }
    const auto count = reinterpret_cast<int (*)()>(::dlsym(out.plugin, "tailor_cuda_device_count"));
    out.count = count != nullptr ? count() : 0;
    if (out.count == 0) out.reason = "no GPU is visible";
    return out;
  }();
  return found;
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus().count == 0) GTEST_SKIP() << gpus().reason;
  }

  std::unique_ptr<kernels::Graph> make_graph() const {
    const auto make = reinterpret_cast<kernels::Graph* (*)(int)>(
        ::dlsym(gpus().plugin, "tailor_cuda_make_graph"));
    EXPECT_NE(make, nullptr);
    return std::unique_ptr<kernels::Graph>(make(0));
  }
};

}  // namespace tailor::test
