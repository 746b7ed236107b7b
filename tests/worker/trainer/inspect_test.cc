// `tailor-trainer logits` and `clouds` as processes, against transformers' values,
// and with bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "geometry/npy.h"
#include "tests/support/temporary_folder.h"

namespace tailor {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string reference(const std::string& name) {
  return std::string(TAILOR_TEST_DATA) + "/model/" + name;
}

class InspectTest : public testing::Test {
 protected:
  // Runs the trainer; its exit code.
  int run(const std::string& arguments) {
    const std::string command =
        std::string(TAILOR_BIN_DIR) + "/tailor-trainer " + arguments + " >" + folder_ + "/log 2>&1";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string log() { return read_file(folder_ + "/log").value_or(""); }

  static std::vector<double> values(const std::string& path, std::vector<std::size_t> shape = {}) {
    const auto array = geometry::read_npy(path);
    EXPECT_TRUE(array.has_value()) << path;
    if (!array) return {};
    EXPECT_TRUE(shape.empty() || array->shape == shape) << path;
    return array->to_doubles();
  }
  // Largest difference, in units of the largest wanted entry.
  static double difference(const std::vector<double>& got, const std::vector<double>& wanted,
                           std::size_t begin = 0) {
    double worst = 0;
    double largest = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::abs(got[i] - wanted.at(begin + i)));
      largest = std::max(largest, std::abs(wanted[begin + i]));
    }
    return worst / largest;
  }

  const test::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(InspectTest, LogitsAreThoseOfTransformers) {
  const std::string model = reference("gemma2");
  const std::string out = folder_ + "/logits.npy";
  ASSERT_EQ(run("logits --model " + model + " --tokens " + model + "/input_ids.npy --out " + out),
            0)
      << log();
  EXPECT_LT(difference(values(out, {2, 48, 256}), values(model + "/logits.npy")), 5e-5);
  ASSERT_EQ(run("logits --dtype bf16 --model " + model + " --tokens " + model +
                "/input_ids.npy --out " + out),
            0)
      << log();
  const double rounded = difference(values(out, {2, 48, 256}), values(model + "/logits.npy"));
  EXPECT_GT(rounded, 1e-4);
  EXPECT_LT(rounded, 0.2);
}

TEST_F(InspectTest, CloudsAreTheStreamAroundTheFfn) {
  const std::string model = reference("olmo2");
  ASSERT_EQ(run("clouds --model " + model + " --tokens " + model +
                "/input_ids.npy --layers 2,0 --out " + folder_ + "/clouds"),
            0)
      << log();
  const std::size_t layer_size = 2 * 48 * 64;
  for (const std::size_t layer : {0u, 2u}) {
    const std::string name = folder_ + "/clouds/layer_" + std::to_string(layer);
    EXPECT_LT(difference(values(name + "_before.npy", {96, 64}),
                         values(model + "/resid_pre_ffn.npy"), layer * layer_size),
              5e-5);
    EXPECT_LT(difference(values(name + "_after.npy", {96, 64}),
                         values(model + "/resid_post_ffn.npy"), layer * layer_size),
              5e-5);
  }
  EXPECT_FALSE(fs::exists(folder_ + "/clouds/layer_1_before.npy"));
}

TEST_F(InspectTest, PositionsAtTheStartCanBeLeftOutAndSubBlocksTaken) {
  const std::string model = reference("mistral");
  ASSERT_EQ(run("clouds --model " + model + " --tokens " + model +
                "/input_ids.npy --skip 1 --sub-blocks --out " + folder_ + "/clouds"),
            0)
      << log();
  // One integer a point: the row of the tokens.
  const auto sequences = geometry::read_npy(folder_ + "/clouds/sequences.npy");
  ASSERT_TRUE(sequences.has_value()) << sequences.error().message();
  const auto ids = *sequences->to_integers();
  const auto tokens = geometry::read_npy(model + "/input_ids.npy");
  ASSERT_TRUE(tokens.has_value());
  const std::size_t rows = tokens->shape[0], points = tokens->shape[1] - 1;
  ASSERT_EQ(ids.size(), rows * points);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(ids[i], static_cast<std::int64_t>(i / points));
  }
  const std::string name = folder_ + "/clouds/layer_3";
  const auto whole = values(name + "_after.npy", {94, 64});
  const auto wanted = values(model + "/resid_post_ffn.npy");
  const std::size_t layer = 3 * 2 * 48 * 64;
  EXPECT_LT(difference({whole.begin(), whole.begin() + 47 * 64}, wanted, layer + 64), 5e-5);
  EXPECT_LT(difference({whole.begin() + 47 * 64, whole.end()}, wanted, layer + (48 + 1) * 64),
            5e-5);
  // A conventional FFN is its own only sub-MLP.
  EXPECT_EQ(values(name + "_sub_0_after.npy"), whole);
  EXPECT_EQ(values(name + "_sub_0_before.npy"), values(name + "_before.npy"));
}

TEST_F(InspectTest, BadInputIsNamedWithItsExitCode) {
  const std::string model = reference("llama_tied");
  const std::string ids = model + "/input_ids.npy";
  const std::string out = " --out " + folder_ + "/o.npy";
  EXPECT_EQ(run("logits --model " + folder_ + " --tokens " + ids + out), 2);
  EXPECT_THAT(log(), HasSubstr("config.json"));
  EXPECT_EQ(run("logits --model " + model + " --tokens " + model + "/logits.npy" + out), 2);
  EXPECT_THAT(log(), HasSubstr("integers"));
  std::vector<std::int64_t> bad{3, 256};
  geometry::NpyArray array;
  array.type = geometry::NpyType::kI8;
  array.shape = {2};
  array.bytes.assign(reinterpret_cast<const char*>(bad.data()), 16);
  ASSERT_TRUE(geometry::write_npy(folder_ + "/bad.npy", array).is_ok());
  EXPECT_EQ(run("logits --model " + model + " --tokens " + folder_ + "/bad.npy" + out), 2);
  EXPECT_THAT(log(), HasSubstr("token 256 at place 1"));
  EXPECT_EQ(run("clouds --layers 4 --model " + model + " --tokens " + ids + out), 2);
  EXPECT_THAT(log(), HasSubstr("layers 0 to 3"));
  EXPECT_EQ(run("clouds --layers 1, --model " + model + " --tokens " + ids + out), 2);
  EXPECT_THAT(log(), HasSubstr("--layers"));
  EXPECT_EQ(run("clouds --skip 48 --model " + model + " --tokens " + ids + out), 2);
  // A cut checkpoint is a matter of data.
  fs::create_directories(folder_ + "/cut");
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(model + "/" + name, folder_ + "/cut/" + name);
  fs::permissions(folder_ + "/cut/model.safetensors", fs::perms::owner_all);
  fs::resize_file(folder_ + "/cut/model.safetensors", 400'000);
  EXPECT_EQ(run("logits --model " + folder_ + "/cut --tokens " + ids + out), 3);
  EXPECT_THAT(log(), HasSubstr("cut"));
}

}  // namespace
}  // namespace tailor
