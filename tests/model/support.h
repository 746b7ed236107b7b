// Helpers of the tests that need LibTorch: reference files as tensors, folders that go away,
// small shapes.
#pragma once

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include "geometry/npy.h"
#include "model/pretrained/safetensors.h"
#include "model/shape/architecture.h"
#include "tests/support/temporary_folder.h"

namespace tailor::test {

/// Tests run beside each other: one thread each, or OpenMP's threads wait for one another.
inline const bool kOneThread = [] {
  at::set_num_threads(1);
  return true;
}();

/// Random tensors of a test are the same in every run, whichever tests ran before it. LibTorch
/// seeds its generator anew in every process.
class SeedEveryTest : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { at::manual_seed(1); }
};
inline const bool kSeeded = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new SeedEveryTest);  // gtest owns it
  return true;
}();

/// tests/data/model/NAME. tests/gpu.sh runs tests where they were not built
/// and says where the data is.
inline std::string reference(const std::string& name) {
  const char* given = std::getenv("TAILOR_TEST_DATA");
  return std::string(given != nullptr ? given : TAILOR_TEST_DATA) + "/model/" + name;
}

/// A float .npy as fp32, an integer one as int64.
inline at::Tensor npy(const std::string& path) {
  const auto array = geometry::read_npy(path);
  EXPECT_TRUE(array.has_value()) << path;
  if (!array) return {};
  std::vector<std::int64_t> shape(array->shape.begin(), array->shape.end());
  if (const auto integers = array->to_integers()) {
    at::Tensor out = at::zeros(shape, at::kLong);
    std::memcpy(out.mutable_data_ptr(), integers->data(), integers->size() * sizeof(std::int64_t));
    return out;
  }
  const std::vector<double> values = array->to_doubles();
  at::Tensor out = at::zeros(shape, at::kDouble);
  std::memcpy(out.mutable_data_ptr(), values.data(), values.size() * sizeof(double));
  return out.to(at::kFloat);
}

/// Largest |a - b| divided by the largest |b|.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.detach().to(at::kDouble);
  const double scale = wide.abs().max().item<double>();
  return (a.detach().to(at::kDouble) - wide).abs().max().item<double>() / (scale > 0 ? scale : 1.0);
}

/// Same shape and same bits.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

/// A decoder small enough to run in milliseconds; tests change what they are about.
inline shape::Architecture small_architecture() {
  shape::Architecture a;
  a.d_model = 32;
  a.heads = 4;
  a.kv_heads = 2;
  a.head_dim = 8;
  a.vocab_size = 64;
  a.widths = shape::uniform_widths(2, 1, 48);
  return a;
}

}  // namespace tailor::test
