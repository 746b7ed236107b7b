// GGUF files: values of every type against the numpy dequantiser of the package gguf, models in
// parts, and damage of every kind as a typed error that names the file.
#include "model/pretrained/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/file.h"
#include "model/pretrained/safetensors.h"
#include "tests/model/pretrained/gguf_builder.h"
#include "tests/support/temporary_folder.h"

namespace tailor::pretrained {
namespace {

using testing::HasSubstr;

class GgufTest : public testing::Test {
 protected:
  std::string path(const std::string& name = "x.gguf") const { return folder_ + "/" + name; }
  void put(const std::string& bytes, const std::string& name = "x.gguf") const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  // Opening must fail as `code` and name the file.
  std::string refused(Code code = Code::kDataLoss) const {
    const auto file = GgufFile::open(path());
    EXPECT_FALSE(file.has_value());
    if (file) return "";
    EXPECT_EQ(file.error().code(), code) << file.error().message();
    EXPECT_THAT(file.error().message(), HasSubstr(path()));
    return file.error().message();
  }
  static GgufBuilder example() {
    GgufBuilder builder;
    builder.str("general.architecture", "test").u32("n", 7).strings("names", {"a", "bc"});
    builder.floats("w", {2, 3}, {1, 2, 3, 4, 5, 6}).floats("v", {4}, {7, 8, 9, 10});
    return builder;
  }
  std::vector<float> read(const GgufFile& file, const std::string& name) const {
    const GgufTensor& tensor = file.tensors().at(name);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements));
    const Status status = file.read(tensor, 0, values);
    EXPECT_TRUE(status.is_ok()) << status.message();
    return values;
  }

  const test::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(GgufTest, EveryTypeDequantisesToTheBitsOfThePackageGguf) {
  const std::string data = std::string(TAILOR_TEST_DATA) + "/model/gguf/types";
  const auto file = GgufFile::open(data + ".gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const auto right = SafetensorsFile::open(data + ".safetensors");
  ASSERT_TRUE(right.has_value()) << right.error().message();
  EXPECT_EQ(file->tensors().size(), 11u);
  for (const auto& [name, tensor] : file->tensors()) {
    EXPECT_EQ(tensor.type->name, name);
    const SourceTensor* wanted = right->find(name);
    ASSERT_NE(wanted, nullptr) << name;
    EXPECT_EQ(tensor.shape, wanted->shape) << name;
    std::vector<float> values(static_cast<std::size_t>(wanted->elements()));
    ASSERT_TRUE(right->read(name, 0, values).is_ok());
    const std::vector<float> got = read(*file, name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(values[i]))
          << name << " element " << i << ": " << got[i] << " for " << values[i];
    }
    // A row alone is the same row.
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    std::vector<float> row(columns);
    ASSERT_TRUE(file->read(tensor, tensor.shape[1], row).is_ok());
    EXPECT_TRUE(std::equal(row.begin(), row.end(), got.begin() + tensor.shape[1])) << name;
  }
}

TEST_F(GgufTest, MetadataOfEveryTypeReads) {
  GgufBuilder builder;
  builder.entry("u8", 0, GgufBuilder::raw<std::uint8_t>(200))
      .entry("i8", 1, GgufBuilder::raw<std::int8_t>(-100))
      .entry("u16", 2, GgufBuilder::raw<std::uint16_t>(60000))
      .entry("i16", 3, GgufBuilder::raw<std::int16_t>(-30000))
      .u32("u32", 4'000'000'000u)
      .entry("i32", 5, GgufBuilder::raw<std::int32_t>(-2'000'000'000))
      .f32("f32", 0.5f)
      .flag("bool", true)
      .str("str", "text")
      .entry("u64", 10, GgufBuilder::raw<std::uint64_t>(std::numeric_limits<std::uint64_t>::max()))
      .entry("i64", 11, GgufBuilder::raw<std::int64_t>(std::numeric_limits<std::int64_t>::min()))
      .entry("f64", 12, GgufBuilder::raw(0.25))
      .strings("strs", {"", "b"})
      .numbers<std::int32_t>("list", 5, {3, -4})
      .entry("nested", 9,
             GgufBuilder::raw<std::uint32_t>(9) + GgufBuilder::raw<std::uint64_t>(1) +
                 GgufBuilder::raw<std::uint32_t>(0) + GgufBuilder::raw<std::uint64_t>(2) + "xy")
      .u32("after", 1);
  put(builder.bytes());
  const auto file = GgufFile::open(path());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(file->integer("u8").value(), 200);
  EXPECT_EQ(file->integer("i8").value(), -100);
  EXPECT_EQ(file->integer("u16").value(), 60000);
  EXPECT_EQ(file->integer("i16").value(), -30000);
  EXPECT_EQ(file->integer("u32").value(), 4'000'000'000);
  EXPECT_EQ(file->integer("i32").value(), -2'000'000'000);
  EXPECT_EQ(file->integer("i64").value(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(file->number("f32").value(), 0.5);
  EXPECT_EQ(file->number("f64").value(), 0.25);
  EXPECT_EQ(file->number("u8").value(), 200);
  EXPECT_EQ(file->integer("bool").value(), 1);
  EXPECT_EQ(file->text("str").value(), "text");
  EXPECT_EQ(file->find("strs")->strings, (std::vector<std::string>{"", "b"}));
  EXPECT_EQ(file->find("list")->integer(1), -4);
  EXPECT_EQ(file->find("list")->integer(2), std::nullopt);
  EXPECT_EQ(file->integer("after").value(), 1);
  // What is no such thing is said with file and key.
  EXPECT_EQ(file->integer("u64").error().code(), Code::kInvalidArgument);
  EXPECT_THAT(file->integer("str").error().message(), HasSubstr("metadata str is not an integer"));
  EXPECT_THAT(file->text("gone").error().message(), HasSubstr("metadata gone is missing"));
  EXPECT_EQ(file->integer("gone", 5).value(), 5);
  EXPECT_FALSE(file->text("u8", "x").has_value()) << "a fallback is for what is absent";
}

TEST_F(GgufTest, VersionTwoReadsAsVersionThree) {
  GgufBuilder builder = example();
  builder.version = 2;
  put(builder.bytes());
  const auto file = GgufFile::open(path());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(read(*file, "w"), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(GgufTest, AnotherAlignmentIsFollowed) {
  GgufBuilder builder;
  builder.alignment = 128;
  builder.u32("general.alignment", 128).floats("a", {1}, {5}).floats("b", {1}, {6});
  put(builder.bytes());
  const auto file = GgufFile::open(path());
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(read(*file, "b"), std::vector<float>{6});
  EXPECT_EQ(file->tensors().at("b").position % 128, 0u);
}

TEST_F(GgufTest, PartsCutByBytesOpenAsOneWhereverTheyLie) {
  const std::string whole = example().bytes();
  const std::size_t third = whole.size() / 3;  // cuts the header and the data
  std::filesystem::create_directories(path("a"));
  std::filesystem::create_directories(path("b"));
  const std::string parts[] = {whole.substr(0, third), whole.substr(third, third),
                               whole.substr(2 * third)};
  for (int i = 0; i < 3; ++i) put(parts[i], "m.gguf.part0" + std::to_string(i));
  put(parts[0], "b/m.gguf.part00");
  put(parts[1], "a/m.gguf.part01");
  put(parts[2], "b/m.gguf.part02");
  for (const std::string& name :
       {path("m.gguf.part00"), path("m.gguf.part02"), path("?/m.gguf.part*"),
        path("b/m.gguf.part00") + "," + path("a/m.gguf.part01") + ", " + path("b/m.gguf.part02")}) {
    EXPECT_TRUE(is_gguf_path(name)) << name;
    const auto file = GgufFile::open(name);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    EXPECT_EQ(read(*file, "w"), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(read(*file, "v"), (std::vector<float>{7, 8, 9, 10}));
  }
  std::filesystem::remove(path("m.gguf.part01"));
  EXPECT_EQ(GgufFile::open(path("m.gguf.part02")).error().code(), Code::kNotFound);
  EXPECT_THAT(GgufFile::open(path("m.gguf.part02")).error().message(), HasSubstr("m.gguf.part01"));
  EXPECT_EQ(GgufFile::open(path("m.gguf.part00")).error().code(), Code::kDataLoss);
  EXPECT_EQ(GgufFile::open(path("none*.gguf")).error().code(), Code::kNotFound);
}

TEST_F(GgufTest, FilesSplitByTensorsOpenAsOne) {
  GgufBuilder first, second;
  first.entry("split.count", 2, GgufBuilder::raw<std::uint16_t>(2))
      .entry("split.tensors.count", 5, GgufBuilder::raw<std::int32_t>(2))
      .u32("n", 7)
      .floats("a", {2}, {1, 2});
  second.entry("split.count", 2, GgufBuilder::raw<std::uint16_t>(2)).floats("b", {1}, {3});
  put(first.bytes(), "m-00001-of-00002.gguf");
  put(second.bytes(), "m-00002-of-00002.gguf");
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    const auto file = GgufFile::open(path(name));
    ASSERT_TRUE(file.has_value()) << file.error().message();
    EXPECT_EQ(file->integer("n").value(), 7);
    EXPECT_EQ(read(*file, "a"), (std::vector<float>{1, 2}));
    EXPECT_EQ(read(*file, "b"), std::vector<float>{3});
  }
  put(GgufBuilder().floats("a", {1}, {3}).bytes(), "m-00002-of-00002.gguf");
  EXPECT_THAT(GgufFile::open(path("m-00001-of-00002.gguf")).error().message(), HasSubstr("twice"));
  put(GgufBuilder().bytes(), "m-00002-of-00002.gguf");
  EXPECT_THAT(GgufFile::open(path("m-00001-of-00002.gguf")).error().message(),
              HasSubstr("hold 1 tensors where it says 2"));
  std::filesystem::remove(path("m-00002-of-00002.gguf"));
  EXPECT_EQ(GgufFile::open(path("m-00001-of-00002.gguf")).error().code(), Code::kNotFound);
}

TEST_F(GgufTest, EveryCutIsFound) {
  const std::string whole = example().bytes();
  // The last tensor's padding may be missing; its data may not.
  const std::size_t end = whole.size() - 16;
  for (std::size_t size = 0; size < end; ++size) {
    put(whole.substr(0, size));
    refused();
  }
  put(whole.substr(0, end));
  EXPECT_TRUE(GgufFile::open(path()).has_value());
  put(whole + "x");
  EXPECT_THAT(refused(), HasSubstr("bytes follow"));
}

TEST_F(GgufTest, AFileCutAfterItWasOpenedIsDataLoss) {
  const std::string whole = example().bytes();
  put(whole);
  const auto file = GgufFile::open(path());
  ASSERT_TRUE(file.has_value());
  std::filesystem::resize_file(path(), whole.size() - 32);
  std::vector<float> values(4);
  EXPECT_EQ(file->read(file->tensors().at("v"), 0, values).code(), Code::kDataLoss);
}

TEST_F(GgufTest, WhatIsWrongIsSaid) {
  const auto says = [&](const GgufBuilder& builder, const std::string& what,
                        Code code = Code::kDataLoss) {
    put(builder.bytes());
    EXPECT_THAT(refused(code), HasSubstr(what));
  };
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  const auto raw64 = [](std::uint64_t value) { return GgufBuilder::raw(value); };
  put("GGUX" + std::string(100, 'x'));
  EXPECT_THAT(refused(), HasSubstr("not a GGUF file"));
  put("GGUF" + GgufBuilder::raw<std::uint32_t>(0x03000000) + std::string(40, '\0'));
  EXPECT_THAT(refused(Code::kUnimplemented), HasSubstr("big-endian"));
  put("GGUF" + GgufBuilder::raw<std::uint32_t>(1) + std::string(40, '\0'));
  EXPECT_THAT(refused(Code::kUnimplemented), HasSubstr("version 1"));
  for (const std::uint64_t count : {huge, huge / 2, std::uint64_t{1000}}) {
    put("GGUF" + GgufBuilder::raw<std::uint32_t>(3) + raw64(count) + raw64(0) +
        std::string(99, '\0'));
    EXPECT_THAT(refused(), HasSubstr("do not fit"));
    put("GGUF" + GgufBuilder::raw<std::uint32_t>(3) + raw64(0) + raw64(count) +
        std::string(99, '\0'));
    EXPECT_THAT(refused(), HasSubstr("do not fit"));
    says(GgufBuilder().entry("k", 8, raw64(count)), "claims");
    says(GgufBuilder().entry("k", 9, GgufBuilder::raw<std::uint32_t>(4) + raw64(count)), "claims");
    says(GgufBuilder().entry("k", 9, GgufBuilder::raw<std::uint32_t>(8) + raw64(count)), "claims");
    says(GgufBuilder().entry("k", 9, GgufBuilder::raw<std::uint32_t>(9) + raw64(count)), "claims");
  }
  says(GgufBuilder().entry("k", 13, "1234"), "metadata k has unknown type 13");
  says(GgufBuilder().entry("k", 7, "\x02"), "neither true nor false");
  says(GgufBuilder().u32("k", 1).u32("k", 1), "metadata k comes twice");
  says(GgufBuilder().u32("general.alignment", 0), "general.alignment");
  says(GgufBuilder().u32("general.alignment", 48), "general.alignment");
  says(GgufBuilder().str("general.alignment", "32"), "general.alignment");
  std::string deep;
  for (int i = 0; i < 9; ++i) deep += GgufBuilder::raw<std::uint32_t>(9) + raw64(1);
  says(GgufBuilder().entry("k", 9, deep + std::string(64, '\0')), "nested too deeply");

  says(GgufBuilder().floats("t", {1}, {1}).floats("t", {1}, {1}), "tensor t: comes twice");
  says(GgufBuilder().floats("a", {8}, std::vector<float>(8)).tensor_at("b", {8}, 0, 0), "overlaps");
  says(GgufBuilder().tensor_at("t", {8}, 0, 32).tensor_at("u", {8}, 0, 0), "behind the end");
  says(GgufBuilder().tensor_at("t", {8}, 0, huge - 31), "behind the end");
  says(GgufBuilder().tensor_at("t", {1u << 20, 1u << 20}, 0, 0), "behind the end");
  says(GgufBuilder().tensor_at("t", {8}, 0, 4), "not aligned");
  says(GgufBuilder().tensor_at("t", {0}, 0, 0), "impossible shape");
  says(GgufBuilder().tensor_at("t", {huge}, 0, 0), "impossible shape");
  says(GgufBuilder().tensor_at("t", {huge / 4, huge / 4}, 0, 0), "impossible shape");
  says(GgufBuilder().tensor_at("t", {std::uint64_t{1} << 61}, 0, 0), "impossible shape");
  says(GgufBuilder().tensor_at("t", {}, 0, 0), "has 0 sizes");
  says(GgufBuilder().tensor_at("t", {1, 1, 1, 1, 1}, 0, 0), "has 5 sizes");
  says(GgufBuilder().tensor_at("t", {33}, 8, 0), "no whole number of Q8_0 blocks");
}

// The names and numbers of ggml.h, as the PyPI package gguf 0.17 has them, and those that ggml took
// back.
TEST_F(GgufTest, TypesThatAreNotReadAreUnsupportedByName) {
  const std::pair<std::uint32_t, std::string> types[] = {
      {4, "Q4_2"},
      {5, "Q4_3"},
      {9, "Q8_1"},
      {10, "Q2_K"},
      {11, "Q3_K"},
      {15, "Q8_K"},
      {16, "IQ2_XXS"},
      {17, "IQ2_XS"},
      {18, "IQ3_XXS"},
      {19, "IQ1_S"},
      {20, "IQ4_NL"},
      {21, "IQ3_S"},
      {22, "IQ2_S"},
      {23, "IQ4_XS"},
      {24, "I8"},
      {25, "I16"},
      {26, "I32"},
      {27, "I64"},
      {28, "F64"},
      {29, "IQ1_M"},
      {31, "Q4_0_4_4"},
      {34, "TQ1_0"},
      {35, "TQ2_0"},
      {38, "IQ4_NL_8_8"},
      {39, "MXFP4"},
      {40, "NVFP4"},
      {41, "Q1_0"},
      {42, "42, unknown to this version,"},
      {0xffffffff, "4294967295, unknown to this version,"}};
  for (const auto& [number, name] : types) {
    put(GgufBuilder().tensor_at("t", {256}, number, 0).bytes());
    EXPECT_THAT(refused(Code::kUnimplemented),
                HasSubstr("tensor t: its type " + name + " is unsupported"));
  }
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kQ4_0, GgmlType::kQ4_1,
                              GgmlType::kQ5_0, GgmlType::kQ5_1, GgmlType::kQ8_0, GgmlType::kQ4_K,
                              GgmlType::kQ5_K, GgmlType::kQ6_K, GgmlType::kBf16}) {
    const auto number = static_cast<std::uint32_t>(type);
    EXPECT_EQ(ggml_type_name(number), ggml_type(number)->name);
  }
}

TEST_F(GgufTest, AFileThatIsNotThereIsNotFound) {
  EXPECT_EQ(GgufFile::open(path("none.gguf")).error().code(), Code::kNotFound);
  EXPECT_EQ(GgufFile::open(folder_).error().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace tailor::pretrained
