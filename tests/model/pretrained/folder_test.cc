// Checkpoint folders: one file or shards with an index, and every way in which they disagree.
#include "model/pretrained/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/pretrained/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace tailor::pretrained {
namespace {

using testing::HasSubstr;

class FolderTest : public testing::Test {
 protected:
  void shard(const std::string& name, const std::vector<std::string>& tensors) {
    const float values[] = {1, 2, 3, 4};
    std::vector<TensorData> data;
    for (const std::string& tensor : tensors) data.push_back({tensor, DType::kF32, {2, 2}, values});
    ASSERT_TRUE(write_safetensors(folder_ + "/" + name, data).has_value());
  }
  void index(const std::string& json) {
    std::ofstream(folder_ + "/model.safetensors.index.json") << json;
  }
  void refused(Code code, const std::string& says) {
    const auto source = open_pretrained(folder_);
    ASSERT_FALSE(source.has_value());
    EXPECT_EQ(source.error().code(), code) << source.error().message();
    EXPECT_THAT(source.error().message(), HasSubstr(folder_));
    EXPECT_THAT(source.error().message(), HasSubstr(says));
  }

  const test::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(FolderTest, OneFileIsASource) {
  shard("model.safetensors", {"x", "a"});
  const auto source = open_pretrained(folder_);
  ASSERT_TRUE(source.has_value()) << source.error().message();
  ASSERT_EQ((*source)->tensors().size(), 2u);
  EXPECT_EQ((*source)->tensors()[0].name, "a");
}

TEST_F(FolderTest, ShardsAreOneSource) {
  shard("one.safetensors", {"b", "c"});
  shard("two.safetensors", {"a", "d"});
  index(
      R"({"metadata":{"total_size":64},"weight_map":{"b":"one.safetensors","c":"one.safetensors",)"
      R"("a":"two.safetensors","d":"two.safetensors"}})");
  const auto source = open_pretrained(folder_);
  ASSERT_TRUE(source.has_value()) << source.error().message();
  ASSERT_EQ((*source)->tensors().size(), 4u);
  for (const SourceTensor& tensor : (*source)->tensors()) {
    float row[2];
    EXPECT_TRUE((*source)->read(tensor.name, 2, row).is_ok());
    EXPECT_EQ(row[1], 4);
  }
  float row[2];
  EXPECT_EQ((*source)->read("e", 0, row).code(), Code::kNotFound);
}

TEST_F(FolderTest, WhatDoesNotFitTogetherIsNamed) {
  refused(Code::kNotFound, "model.safetensors");
  shard("one.safetensors", {"a", "b"});
  index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  refused(Code::kNotFound, "two.safetensors");
  index(R"({"weight_map":{"a":"one.safetensors","c":"one.safetensors"}})");
  refused(Code::kDataLoss, "tensor c");
  index(R"({"weight_map":{"a":"one.safetensors"}})");
  refused(Code::kDataLoss, "tensor b");
  index(R"({"weight_map":{"a":"../one.safetensors"}})");
  refused(Code::kDataLoss, "same folder");
  index(R"({"weight_map":{"a":1}})");
  refused(Code::kDataLoss, "no text");
  index(R"({"weight_map":{"a":"one.safetensors")");
  refused(Code::kDataLoss, "not JSON");
  index(R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})");
  refused(Code::kDataLoss, "twice");
  index(R"([])");
  refused(Code::kDataLoss, "weight_map");
}

TEST_F(FolderTest, WeightsOfAnotherKindAreUnsupportedByName) {
  std::ofstream(folder_ + "/pytorch_model.bin") << "PK";
  refused(Code::kUnimplemented, "pytorch_model.bin: weights of this kind are unsupported");
  shard("model.safetensors", {"a"});
  EXPECT_TRUE(open_pretrained(folder_).has_value());
}

TEST_F(FolderTest, AShardThatIsCutIsNamed) {
  shard("one.safetensors", {"a"});
  index(R"({"weight_map":{"a":"one.safetensors"}})");
  std::filesystem::resize_file(folder_ + "/one.safetensors", 80);
  refused(Code::kDataLoss, "one.safetensors");
}

TEST_F(FolderTest, AFolderThatIsNotThereIsNotFound) {
  const auto source = open_pretrained(folder_ + "/none");
  ASSERT_FALSE(source.has_value());
  EXPECT_EQ(source.error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tailor::pretrained
