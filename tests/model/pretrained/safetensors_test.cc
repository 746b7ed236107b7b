// Safetensors: what is written reads back, files of other programs read, and every kind of damage
// is a typed error that names the file.
#include "model/pretrained/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/hash.h"

namespace tailor::pretrained {
namespace {

using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tailor-st-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~SafetensorsTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "x.safetensors") const { return folder_ + "/" + name; }

  // Two tensors of known content; returns the bytes of the file.
  std::string write_example() {
    const float a[] = {1, 2, 3, 4, 5, 6};
    const std::int64_t b[] = {-7, 8};
    const auto written = write_safetensors(
        path(), std::vector<TensorData>{{"a", DType::kF32, {2, 3}, a}, {"b", DType::kI64, {2}, b}},
        {{"format", "pt"}});
    EXPECT_TRUE(written.has_value());
    const std::string bytes = *read_file(path());
    EXPECT_EQ(written->bytes, static_cast<std::int64_t>(bytes.size()));
    EXPECT_EQ(written->sha256, sha256_hex(bytes));
    return bytes;
  }

  void put(const std::string& bytes) { std::ofstream(path(), std::ios::binary) << bytes; }

  // Opening must fail as `code` and name the file.
  std::string refused(Code code) {
    const auto file = SafetensorsFile::open(path());
    EXPECT_FALSE(file.has_value());
    if (file) return "";
    EXPECT_EQ(file.error().code(), code) << file.error().message();
    EXPECT_THAT(file.error().message(), HasSubstr(path()));
    return file.error().message();
  }

  static std::string with_header(const std::string& json, const std::string& data) {
    const std::uint64_t size = json.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &size, 8);
    return bytes + json + data;
  }

  std::string folder_;
};

TEST_F(SafetensorsTest, WhatIsWrittenReadsBack) {
  write_example();
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const TensorView* a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->shape, (std::vector<std::int64_t>{2, 3}));
  float values[6];
  std::memcpy(values, a->data, sizeof values);
  EXPECT_EQ(values[5], 6);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST_F(SafetensorsTest, FilesOfOtherProgramsRead) {
  const auto file = SafetensorsFile::open(std::string(TAILOR_TEST_DATA) +
                                          "/model/train_parity/llama.init.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const TensorView* q = file->find("model.layers.0.self_attn.q_proj.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->shape, (std::vector<std::int64_t>{64, 64}));
  EXPECT_EQ(q->bytes, 64 * 64 * 4);
}

TEST_F(SafetensorsTest, EveryCutIsFound) {
  const std::string whole = write_example();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(whole.substr(0, size));
    refused(Code::kDataLoss);
  }
  put(whole + "x");
  EXPECT_THAT(refused(Code::kDataLoss), HasSubstr("follow"));
}

TEST_F(SafetensorsTest, AFileThatIsNotThereIsNotFound) {
  const auto file = SafetensorsFile::open(path("none"));
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code(), Code::kNotFound);
}

TEST_F(SafetensorsTest, WrongHeadersAreRefusedWithWhatIsWrong) {
  const struct {
    std::string json;
    std::string says;
  } cases[] = {
      {R"([1])", "not JSON"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})", "not JSON"},
      {R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", "unknown type F33"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "does not fit"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "does not fit"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       "does not fit"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}})", "cut"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "backwards"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", "positive"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "gap"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       "overlap"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "lacks"},
      {R"({"a":7})", "lacks"},
  };
  for (const auto& wrong : cases) {
    put(with_header(wrong.json, std::string(8, 'd')));
    EXPECT_THAT(refused(Code::kDataLoss), HasSubstr(wrong.says)) << wrong.json;
  }
  put(std::string(8, '\xff') + "rest of some other file");
  EXPECT_THAT(refused(Code::kDataLoss), HasSubstr("header length"));
}

}  // namespace
}  // namespace tailor::pretrained
