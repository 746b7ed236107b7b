// The base of tests that need a GPU: loads libtailor_cuda.so, or skips the test and says why.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "model/kernels/graph.h"

namespace tailor::test {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    // tests/gpu.sh runs these programs where they were not built.
    const char* given = std::getenv("TAILOR_BIN");
    const std::string folder = given != nullptr ? given : TAILOR_BIN_DIR;
    plugin_ = ::dlopen((folder + "/libtailor_cuda.so").c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (plugin_ == nullptr) GTEST_SKIP() << ::dlerror();
    const auto count = symbol<int()>("tailor_cuda_device_count");
    ASSERT_NE(count, nullptr);
    if (count() == 0) GTEST_SKIP() << "no GPU is visible";
  }

  template <typename Function>
  Function* symbol(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(plugin_, name));
  }
  std::unique_ptr<kernels::Graph> make_graph() const {
    const auto make = symbol<kernels::Graph*(int)>("tailor_cuda_make_graph");
    EXPECT_NE(make, nullptr);
    return std::unique_ptr<kernels::Graph>(make(0));
  }

 private:
  void* plugin_ = nullptr;  // never closed: its kernels are registered
};

}  // namespace tailor::test
