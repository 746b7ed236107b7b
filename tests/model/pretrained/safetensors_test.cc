// Safetensors: what is written reads back, files of other programs read, and every kind of damage
// is a typed error that names the file.
#include "model/pretrained/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/file.h"
#include "base/hash.h"
#include "model/pretrained/float_types.h"
#include "tests/support/temporary_folder.h"

namespace tailor::pretrained {
namespace {

using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
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

  const test::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(SafetensorsTest, WhatIsWrittenReadsBack) {
  write_example();
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const SourceTensor* a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->type, "F32");
  EXPECT_EQ(a->shape, (std::vector<std::int64_t>{2, 3}));
  float values[6];
  ASSERT_TRUE(file->read("a", 0, values).is_ok());
  EXPECT_EQ(values[5], 6);
  ASSERT_TRUE(file->read("a", 3, std::span(values, 3)).is_ok());
  EXPECT_EQ(values[0], 4);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST_F(SafetensorsTest, FilesOfOtherProgramsRead) {
  const auto file = SafetensorsFile::open(std::string(TAILOR_TEST_DATA) +
                                          "/model/train_parity/llama.init.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const SourceTensor* q = file->find("model.layers.0.self_attn.q_proj.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->shape, (std::vector<std::int64_t>{64, 64}));
  EXPECT_EQ(q->elements(), 64 * 64);
}

TEST_F(SafetensorsTest, NarrowAndWideTypesBecomeFloat32Exactly) {
  // 1, -2, 65504 (largest), 2^-14 (least normal), 2^-24 and 1023 * 2^-24 (subnormal), inf, -0.
  const std::uint16_t half[] = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x03ff, 0x7c00, 0x8000};
  // 1, -2, about pi, inf, the least subnormal.
  const std::uint16_t brain[] = {0x3f80, 0xc000, 0x4049, 0x7f80, 0x0001};
  const double wide[] = {0.1, -1e300, 3};
  ASSERT_TRUE(write_safetensors(path(), std::vector<TensorData>{{"half", DType::kF16, {2, 4}, half},
                                                                {"brain", DType::kBf16, {5}, brain},
                                                                {"wide", DType::kF64, {3}, wide}})
                  .has_value());
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  float values[8];
  ASSERT_TRUE(file->read("half", 0, values).is_ok());
  const float infinity = std::numeric_limits<float>::infinity();
  const float wanted[] = {1, -2, 65504, 0x1p-14f, 0x1p-24f, 1023 * 0x1p-24f, infinity, -0.0f};
  EXPECT_EQ(std::memcmp(values, wanted, sizeof wanted), 0);
  const std::uint16_t nan = 0x7e01;
  EXPECT_TRUE(std::isnan(float_of_f16(nan)));
  ASSERT_TRUE(file->read("brain", 0, std::span(values, 5)).is_ok());
  EXPECT_EQ(values[2], 3.140625f);
  EXPECT_EQ(values[3], infinity);
  EXPECT_EQ(values[4], 0x1p-133f);
  ASSERT_TRUE(file->read("wide", 0, std::span(values, 3)).is_ok());
  EXPECT_EQ(values[0], 0.1f);
  EXPECT_EQ(values[1], -infinity);
}

TEST_F(SafetensorsTest, EveryHalfIsItsOwnValue) {
  // Against the definition, all 65,536 of them.
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = static_cast<double>(bits & 1023) / 1024;
    if (exponent == 31) continue;  // infinity and NaN: above
    const double size =
        exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
    ASSERT_EQ(float_of_f16(static_cast<std::uint16_t>(bits)), (bits >> 15) != 0 ? -size : size)
        << bits;
  }
}

TEST_F(SafetensorsTest, ReadingWhatIsNotThereNamesFileAndTensor) {
  write_example();
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file.has_value());
  float values[6];
  const struct {
    const char* tensor;
    std::int64_t first;
    std::size_t count;
    Code code;
  } cases[] = {{"c", 0, 1, Code::kNotFound},    {"a", 0, 5, Code::kOutOfRange},
               {"a", 1, 3, Code::kOutOfRange},  {"a", 6, 3, Code::kOutOfRange},
               {"a", -3, 3, Code::kOutOfRange}, {"b", 0, 2, Code::kInvalidArgument}};
  for (const auto& wrong : cases) {
    const Status status = file->read(wrong.tensor, wrong.first, std::span(values, wrong.count));
    EXPECT_EQ(status.code(), wrong.code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(path()));
    EXPECT_THAT(status.message(), HasSubstr(std::string("tensor ") + wrong.tensor));
  }
}

TEST_F(SafetensorsTest, AFileThatIsCutWhileItIsOpenIsAnErrorAndNoSignal) {
  const std::string whole = write_example();
  const auto file = SafetensorsFile::open(path());
  ASSERT_TRUE(file.has_value());
  std::filesystem::resize_file(path(), whole.size() - 30);
  float values[6];
  const Status status = file->read("a", 0, values);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("tensor a is cut"));
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
      {R"([1])", "no JSON object"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})", "not JSON"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}{})", "not JSON"},
      {std::string(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})") + '\0', "NUL"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "twice"},
      {std::string(100'000, '['), "deep"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "integers"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "does not fit"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "does not fit"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
       "does not fit"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}})", "cut"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "backwards"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", "positive"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "gap"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
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

// The names are those of the safetensors format.
TEST_F(SafetensorsTest, TypesThatAreNotReadAreUnsupportedByName) {
  for (const std::string type :
       {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "U16", "U32", "U64", "C64"}) {
    put(with_header(R"({"a":{"dtype":")" + type + R"(","shape":[8],"data_offsets":[0,8]}})",
                    std::string(8, 'd')));
    EXPECT_THAT(refused(Code::kUnimplemented),
                HasSubstr("tensor a: its type " + type + " is unsupported"));
  }
  put(with_header(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})",
                  std::string(8, 'd')));
  EXPECT_THAT(refused(Code::kUnimplemented),
              HasSubstr("F33, unknown to this version, is unsupported"));
}

}  // namespace
}  // namespace tailor::pretrained
