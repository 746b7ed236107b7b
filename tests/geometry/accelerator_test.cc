// A device changes no result: the plain one and the CPU's loops give the same bits, one that cannot
// do anything changes nothing, and the plugin loads and says why it has no GPU.
#include "geometry/accelerator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "geometry/gromov_wasserstein.h"
#include "geometry/rips.h"
#include "geometry/work_profile.h"
#include "tests/geometry/plain_accelerator.h"
#include "tests/geometry/reference.h"
#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using testing::BrokenAccelerator;
using testing::distances_of;
using ::testing::HasSubstr;
using testing::normal_cloud;
using testing::PlainAccelerator;

std::vector<double> values_of(const DistanceMatrix& matrix) {
  return {matrix.values().begin(), matrix.values().end()};
}

TEST(Accelerator, DistancesHaveTheSameBits) {
  const PlainAccelerator plain;
  const BrokenAccelerator broken;
  for (const std::size_t n : {0u, 1u, 2u, 17u, 70u}) {
    const Cloud cloud = normal_cloud(n, 37, n);
    for (const Geometry geometry : kGeometries) {
      const DistanceMatrix expected = distances_of(cloud, geometry);
      for (const Accelerator* device :
           {static_cast<const Accelerator*>(&plain), static_cast<const Accelerator*>(&broken)}) {
        const auto matrix =
            pairwise_distances(cloud.view(), {.geometry = geometry, .accelerator = device});
        ASSERT_TRUE(matrix.has_value());
        EXPECT_EQ(values_of(*matrix), values_of(expected)) << n;
        EXPECT_EQ(matrix->enclosing_radius(), expected.enclosing_radius());
      }
    }
  }
  EXPECT_GE(plain.calls(), 9);
}

// Cases with a cloud that the plain loops take no time for.
std::vector<std::string> small_cases() {
  std::vector<std::string> names = testing::reference_cases("h1");
  std::erase_if(names, [](const std::string& name) {
    const auto points = read_npy_cloud(testing::reference_path(name + "/points.npy"));
    return !points || points->count > 200;
  });
  return names;
}

class AcceleratedDiagram : public ::testing::TestWithParam<std::string> {};

TEST_P(AcceleratedDiagram, IsTheSame) {
  const PlainAccelerator plain;
  const BrokenAccelerator broken;
  const auto points = read_npy_cloud(testing::reference_path(GetParam() + "/points.npy"));
  ASSERT_TRUE(points.has_value());
  const DistanceMatrix distances = distances_of(*points);
  const auto expected = rips_persistence(distances);
  ASSERT_TRUE(expected.has_value());
  for (const Accelerator* device :
       {static_cast<const Accelerator*>(&plain), static_cast<const Accelerator*>(&broken)}) {
    const auto found = rips_persistence(distances, {.accelerator = device});
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->bars, expected->bars);
    EXPECT_EQ(found->born, expected->born);
    EXPECT_EQ(found->columns, expected->columns);
    EXPECT_EQ(found->truncated, expected->truncated);
  }
}

INSTANTIATE_TEST_SUITE_P(H1, AcceleratedDiagram, ::testing::ValuesIn(small_cases()),
                         [](const auto& test) { return test.param.substr(3); });

TEST(Accelerator, DiagramsUpToAThresholdAreTheSame) {
  const PlainAccelerator plain;
  const DistanceMatrix distances = distances_of(normal_cloud(60, 5, 3));
  const Bar bar = rips_persistence(distances)->bars.front();
  const double threshold = (bar.birth + bar.death) / 2;  // this class is alive there
  const auto expected = rips_persistence(distances, {.threshold = threshold});
  const auto found = rips_persistence(distances, {.threshold = threshold, .accelerator = &plain});
  ASSERT_TRUE(expected.has_value() && found.has_value());
  EXPECT_TRUE(expected->truncated);
  EXPECT_EQ(found->bars, expected->bars);
  EXPECT_EQ(found->truncated, expected->truncated);
  EXPECT_EQ(plain.calls(), 1);
}

TEST(Accelerator, GromovWassersteinIsTheSame) {
  const PlainAccelerator plain;
  const BrokenAccelerator broken;
  const DistanceMatrix a = distances_of(normal_cloud(50, 6, 1));
  const DistanceMatrix b = distances_of(normal_cloud(50, 6, 2));
  const auto expected = gromov_wasserstein(a, b);
  ASSERT_TRUE(expected.has_value());
  for (const Accelerator* device :
       {static_cast<const Accelerator*>(&plain), static_cast<const Accelerator*>(&broken)}) {
    const auto found = gromov_wasserstein(a, b, {.threads = 2, .accelerator = device});
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->value, expected->value);
    EXPECT_EQ(found->permutation, expected->permutation);
  }
  EXPECT_GT(plain.calls(), 0);
}

TEST(Accelerator, WorkProfilesAreTheSame) {
  const PlainAccelerator plain;
  std::vector<float> before, after;
  Rng rng(4);
  for (int i = 0; i < 120 * 8; ++i) {
    before.push_back(static_cast<float>(rng.normal()));
    after.push_back(before.back() + 0.3f * static_cast<float>(rng.normal()));
  }
  const std::vector<LayerClouds> layers = {
      {.layer = 0, .before = before, .after = after, .dimension = 8}};
  WorkOptions options{.tokens = 40, .linear_tokens = 40, .subsamples = 3};
  const auto expected = measure_work(layers, options);
  options.accelerator = &plain;
  options.threads = 2;
  const auto found = measure_work(layers, options);
  ASSERT_TRUE(expected.has_value() && found.has_value());
  ASSERT_EQ(found->entries.size(), expected->entries.size());
  for (std::size_t i = 0; i < found->entries.size(); ++i) {
    EXPECT_EQ(found->entries[i].value, expected->entries[i].value) << i;
    EXPECT_EQ(found->entries[i].standard_error, expected->entries[i].standard_error) << i;
  }
  EXPECT_GT(plain.calls(), 0);
}

TEST(Accelerator, TheCpuNeedsNoneAndUnknownDevicesAreRefused) {
  const auto cpu = open_accelerator("cpu");
  ASSERT_TRUE(cpu.has_value());
  EXPECT_EQ(cpu->get(), nullptr);
  for (const char* name : {"", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:1x"}) {
    const auto opened = open_accelerator(name);
    ASSERT_FALSE(opened.has_value()) << name;
    EXPECT_EQ(opened.error().code(), Code::kInvalidArgument) << name;
  }
}

TEST(Accelerator, APluginThatIsNotThereIsNamedWithWhatToDo) {
  const auto opened = open_accelerator("cuda:0", "/nonexistent");
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(opened.error().message(), HasSubstr("/nonexistent/libtailor_geometry_cuda.so"));
  EXPECT_THAT(opened.error().message(), HasSubstr("nvcc"));
}

#ifdef TAILOR_GEOMETRY_CUDA
// Loading binds every symbol at once, so a kernel or a CUDA call that nobody defines fails here.
TEST(Accelerator, ThePluginLoadsWithAllItsSymbolsAndKnowsWhichGpusThereAre) {
  const auto opened = open_accelerator("cuda:4095", TAILOR_BIN_DIR);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(opened.error().message(), HasSubstr("cuda:4095 cannot be used"));
}
#endif

}  // namespace
}  // namespace tailor::geometry
