// .npy files: bytes written by hand after NumPy's format description,
// and every way a header can break.
#include "geometry/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "geometry/distance.h"
#include "tests/support/temporary_folder.h"

namespace tailor::geometry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_with(const std::string& header, const std::string& data, int major = 1) {
  std::string out("\x93NUMPY", 6);
  out += static_cast<char>(major);
  out += '\0';
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  if (major > 1) out += std::string(2, '\0');
  return out + header + data;
}

template <typename T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string out;
  for (const T value : values) {
    char buffer[sizeof(T)];
    std::memcpy(buffer, &value, sizeof(T));
    out.append(buffer, sizeof(T));
  }
  return out;
}

TEST(Npy, ReadsEveryTypeAndVersion) {
  const auto read = [](const char* type, const std::string& data, int major) {
    const std::string header =
        std::string("{'descr': '<") + type + "', 'fortran_order': False, 'shape': (2,), }\n";
    const auto array = parse_npy(file_with(header, data, major), "x.npy");
    EXPECT_TRUE(array.has_value()) << array.error().message();
    return array->to_doubles();
  };
  for (const int major : {1, 2, 3}) {
    EXPECT_THAT(read("f4", bytes_of<float>({1.5f, -2}), major), ElementsAre(1.5, -2));
    EXPECT_THAT(read("f8", bytes_of<double>({0.1, 3}), major), ElementsAre(0.1, 3));
    EXPECT_THAT(read("i4", bytes_of<std::int32_t>({-7, 8}), major), ElementsAre(-7, 8));
    EXPECT_THAT(read("i8", bytes_of<std::int64_t>({-9, 1}), major), ElementsAre(-9, 1));
    EXPECT_THAT(read("u2", bytes_of<std::uint16_t>({65535, 2}), major), ElementsAre(65535, 2));
  }
}

TEST(Npy, FortranOrderBecomesCOrder) {
  const std::string header = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }\n";
  const auto array =
      parse_npy(file_with(header, bytes_of<std::int32_t>({1, 4, 2, 5, 3, 6})), "x.npy");
  ASSERT_TRUE(array);
  EXPECT_THAT(array->shape, ElementsAre(2, 3));
  EXPECT_THAT(*array->to_integers(), ElementsAre(1, 2, 3, 4, 5, 6));
  // Rank 3: entry (i, j, k) of shape (2, 2, 2) is at i + 2 j + 4 k in Fortran order.
  const auto cube =
      parse_npy(file_with("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 2, 2), }\n",
                          bytes_of<std::int32_t>({0, 100, 10, 110, 1, 101, 11, 111})),
                "x.npy");
  ASSERT_TRUE(cube);
  EXPECT_THAT(*cube->to_integers(), ElementsAre(0, 1, 10, 11, 100, 101, 110, 111));
}

TEST(Npy, BigEndianNumbersAreTurned) {
  const auto array = parse_npy(file_with("{'descr': '>i4', 'fortran_order': False, 'shape': (2,)}",
                                         std::string("\0\0\1\0\xff\xff\xff\xff", 8)),
                               "x.npy");
  ASSERT_TRUE(array);
  EXPECT_THAT(*array->to_integers(), ElementsAre(256, -1));
}

TEST(Npy, ScalarsAndEmptyArraysAreRead) {
  const auto scalar = parse_npy(
      file_with("{'descr': '<f8', 'fortran_order': False, 'shape': ()}", bytes_of<double>({2.5})),
      "x.npy");
  ASSERT_TRUE(scalar);
  EXPECT_TRUE(scalar->shape.empty());
  EXPECT_THAT(scalar->to_doubles(), ElementsAre(2.5));
  const auto empty =
      parse_npy(file_with("{'descr': '<f8', 'fortran_order': True, 'shape': (0, 7)}", ""), "x.npy");
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->size(), 0u);
}

TEST(Npy, WhatIsWrittenIsReadBackAndAlignedAsNumpyDoes) {
  const std::vector<double> values = {1, 0.1, -3e300, 5, 6, 7};
  const std::size_t shape[] = {3, 2};
  const std::string bytes = format_npy(values, shape);
  EXPECT_EQ((bytes.size() - values.size() * 8) % 64, 0u);
  EXPECT_THAT(bytes, HasSubstr("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }"));
  const auto array = parse_npy(bytes, "x.npy");
  ASSERT_TRUE(array);
  EXPECT_EQ(array->to_doubles(), values);
  EXPECT_THAT(array->shape, ElementsAre(3, 2));
  const std::size_t flat[] = {6};
  EXPECT_THAT(format_npy(values, flat), HasSubstr("'shape': (6,), }"));
  const std::size_t none[] = {1, 1, 1};
  EXPECT_THAT(format_npy(std::span(values).first(1), none), HasSubstr("'shape': (1, 1, 1), }"));
  EXPECT_THAT(format_npy(std::span(values).first(1), {}), HasSubstr("'shape': (), }"));
}

TEST(Npy, FilesAreWrittenAndReadAsClouds) {
  const auto folder =
      std::filesystem::temp_directory_path() /
      ("tailor_npy_test_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
       "_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = folder / "cloud.npy";
  const std::vector<double> values = {1, 2, 3, 4, 5, 6};
  const std::size_t shape[] = {2, 3}, flat[] = {6};
  ASSERT_TRUE(write_npy(path, values, shape));
  const auto cloud = read_npy_cloud(path);
  ASSERT_TRUE(cloud);
  EXPECT_EQ(cloud->count, 2u);
  EXPECT_EQ(cloud->dimension, 3u);
  EXPECT_EQ(cloud->values, values);
  ASSERT_TRUE(write_npy(path, values, flat));
  const auto refused = read_npy_cloud(path);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("two dimensions"));
  std::filesystem::remove_all(folder);
  EXPECT_EQ(read_npy(path).error().code(), Code::kNotFound);
}

struct Broken {
  const char* name;
  std::string bytes;
  Code code;
  const char* message;
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenNpy : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenNpy, IsRefusedByName) {
  const auto array = parse_npy(GetParam().bytes, "weights.npy");
  ASSERT_FALSE(array);
  EXPECT_EQ(array.error().code(), GetParam().code) << array.error().message();
  EXPECT_THAT(array.error().message(), HasSubstr(GetParam().message));
  EXPECT_THAT(array.error().message(), HasSubstr("weights.npy"));
}

std::string with_header(const std::string& header) { return file_with(header, ""); }

const std::string kGood = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}";

INSTANTIATE_TEST_SUITE_P(
    Every, BrokenNpy,
    ::testing::Values(
        Broken{"empty", "", Code::kDataLoss, "cut short"},
        Broken{"magic_cut", "\x93NUM", Code::kDataLoss, "cut short"},
        Broken{"other_file", "hello, this is a text", Code::kDataLoss, "not a .npy file"},
        Broken{"no_length", std::string("\x93NUMPY\1\0", 8), Code::kDataLoss, "first 10 bytes"},
        Broken{"v2_no_length", std::string("\x93NUMPY\2\0\5\0", 10), Code::kDataLoss,
               "first 12 bytes"},
        Broken{"version", std::string("\x93NUMPY\4\0\0\0", 10), Code::kUnimplemented,
               "version 4.0"},
        Broken{"header_cut", file_with(kGood, "").substr(0, 30), Code::kDataLoss,
               "within the header"},
        Broken{"not_a_dictionary", with_header("descr"), Code::kInvalidArgument, "'{'"},
        Broken{"empty_header", with_header(""), Code::kInvalidArgument, "'{'"},
        Broken{"unquoted_key", with_header("{descr: 1}"), Code::kInvalidArgument, "quoted"},
        Broken{"open_quote", with_header("{'descr"), Code::kInvalidArgument, "closing quote"},
        Broken{"no_colon", with_header("{'descr' '<f8'}"), Code::kInvalidArgument, "no ':'"},
        Broken{"no_comma", with_header("{'descr': '<f8' 'shape': ()}"), Code::kInvalidArgument,
               "no ','"},
        Broken{"unknown_key", with_header("{'color': 'red'}"), Code::kInvalidArgument, "'color'"},
        Broken{"twice", with_header("{'descr': '<f8', 'descr': '<f8'}"), Code::kInvalidArgument,
               "twice"},
        Broken{"no_descr", with_header("{'fortran_order': False, 'shape': ()}"),
               Code::kInvalidArgument, "'descr' is missing"},
        Broken{"no_order", with_header("{'descr': '<f8', 'shape': ()}"), Code::kInvalidArgument,
               "'fortran_order' is missing"},
        Broken{"no_shape", with_header("{'descr': '<f8', 'fortran_order': True}"),
               Code::kInvalidArgument, "'shape' is missing"},
        Broken{"order", with_header("{'descr': '<f8', 'fortran_order': 0, 'shape': ()}"),
               Code::kInvalidArgument, "True nor False"},
        Broken{"shape_not_tuple", with_header("{'shape': 3}"), Code::kInvalidArgument, "tuple"},
        Broken{"shape_negative", with_header("{'shape': (-3,)}"), Code::kInvalidArgument,
               "not a length"},
        Broken{"shape_open", with_header("{'shape': (3"), Code::kInvalidArgument, "closing ')'"},
        Broken{"shape_huge", with_header("{'shape': (99999999999999999999999,)}"),
               Code::kInvalidArgument, "too large"},
        Broken{"shape_overflow",
               with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, "
                           "4294967296)}"),
               Code::kInvalidArgument, "more bytes"},
        Broken{"shape_rank",
               with_header("{'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                           "1,1,1)}"),
               Code::kInvalidArgument, "32 dimensions"},
        Broken{"trailing_text", with_header(kGood + " x"), Code::kInvalidArgument,
               "after the closing"},
        Broken{"structured", with_header("{'descr': [('a', '<f8')]}"), Code::kUnimplemented,
               "structured types are unsupported"},
        Broken{"type", with_header("{'descr': '<c16', 'fortran_order': False, 'shape': ()}"),
               Code::kUnimplemented, "'<c16' (complex128) are unsupported"},
        Broken{"object", with_header("{'descr': '|O', 'fortran_order': False, 'shape': ()}"),
               Code::kUnimplemented, "'|O' (Python objects) are unsupported"},
        Broken{"datetime", with_header("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': ()}"),
               Code::kUnimplemented, "'<M8[ns]' (datetime64)"},
        Broken{"half", with_header("{'descr': '<f2', 'fortran_order': False, 'shape': ()}"),
               Code::kUnimplemented, "'<f2' (float16)"},
        Broken{"unknown_type", with_header("{'descr': '<q3', 'fortran_order': False, 'shape': ()}"),
               Code::kUnimplemented, "'<q3' (unknown to this version)"},
        Broken{"deep", with_header(std::string(60000, '(')), Code::kInvalidArgument, "'{'"},
        Broken{"deep_shape", with_header("{'shape': " + std::string(60000, '(')),
               Code::kInvalidArgument, "not a length"},
        Broken{"long_key", with_header("{'" + std::string(60000, 'k') + "': 1}"),
               Code::kInvalidArgument, "k...'"},
        Broken{"nul", with_header(kGood + std::string("\0x", 2)), Code::kInvalidArgument,
               "after the closing"},
        Broken{"data_cut", file_with(kGood, "1234567"), Code::kDataLoss, "promises 8 bytes"},
        Broken{"data_long", file_with(kGood, "123456789"), Code::kInvalidArgument,
               "1 bytes follow"}),
    [](const auto& entry) { return std::string(entry.param.name); });

TEST(Npy, AnyCutOfAGoodFileIsRefusedAndNeverCrashes) {
  const std::vector<double> values = {1, 2, 3, 4};
  const std::size_t shape[] = {2, 2};
  const std::string good = format_npy(values, shape);
  ASSERT_TRUE(parse_npy(good, "x"));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(parse_npy(good.substr(0, size), "x")) << size;
  }
  // Any single altered byte of the header is either read or refused.
  for (std::size_t at = 0; at < good.size() - 32; ++at) {
    for (const char c : {'\0', '\xff', '(', '9'}) {
      std::string altered = good;
      altered[at] = c;
      const auto array = parse_npy(altered, "x");
      if (array) {
        EXPECT_EQ(array->bytes.size(), 32u);
      }
    }
  }
}

std::string saved(const test::TemporaryFolder& folder, const std::string& bytes) {
  const std::string path = folder.file("x.npy");
  EXPECT_TRUE(write_file_atomic(path, bytes, false).is_ok());
  return path;
}

TEST(NpyFile, ReadsEveryTypeAndOrderAsTheWholeReaderDoes) {
  const test::TemporaryFolder folder;
  const std::string cube = bytes_of<std::int32_t>({0, 100, 10, 110, 1, 101, 11, 111});
  for (const std::string& bytes :
       {file_with("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 2, 2), }\n", cube),
        file_with("{'descr': '>i4', 'fortran_order': False, 'shape': (8,)}", cube),
        file_with("{'descr': '<u2', 'fortran_order': True, 'shape': (8, 2)}", cube),
        file_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4)}", cube),
        file_with("{'descr': '>f8', 'fortran_order': True, 'shape': (4, 1)}", cube),
        file_with("{'descr': '<i8', 'fortran_order': True, 'shape': (2, 2)}", cube),
        file_with("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 7)}", "")}) {
    const auto whole = parse_npy(bytes, "x.npy");
    ASSERT_TRUE(whole);
    auto file = NpyFile::open(saved(folder, bytes));
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_EQ(file->shape(), whole->shape);
    EXPECT_EQ(file->spacing(), whole->type == NpyType::kF4 ? kFloat32Spacing : kFloat64Spacing);
    const auto values = file->doubles();
    ASSERT_TRUE(values);
    EXPECT_EQ(*values, whole->to_doubles());
  }
}

TEST(NpyFile, ReadsFilesOfManyBlocks) {
  const test::TemporaryFolder folder;
  std::vector<double> values(300001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) / 3;
  const std::size_t shape[] = {values.size()};
  auto file = NpyFile::open(saved(folder, format_npy(values, shape)));
  ASSERT_TRUE(file);
  EXPECT_EQ(*file->doubles(), values);
  bool rounded = false;
  file = NpyFile::open(folder.file("x.npy"));
  const auto floats = file->floats(rounded, [](std::size_t) { return std::string(); });
  ASSERT_TRUE(floats);
  EXPECT_TRUE(rounded);
  EXPECT_EQ((*floats)[7], static_cast<float>(7.0 / 3));
}

TEST(NpyFile, AHeaderThatPromisesMoreThanThereIsIsRefusedBeforeAnythingIsAllocated) {
  const test::TemporaryFolder folder;
  for (const char* shape : {"(1000000000000, 8)", "(1000000000000,)", "(3,)"}) {
    const auto file = NpyFile::open(saved(
        folder,
        file_with(std::string("{'descr': '<f8', 'fortran_order': False, 'shape': ") + shape + "}",
                  "12345678")));
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code(), Code::kDataLoss);
    EXPECT_THAT(file.error().message(), HasSubstr("cut short: the header promises"));
  }
}

TEST(NpyFile, ReadsPipesAndNoticesTheirEnd) {
  const test::TemporaryFolder folder;
  const std::vector<double> values = {1, 2, 3, 4};
  const std::size_t shape[] = {2, 2};
  const std::string good = format_npy(values, shape);
  const std::string path = folder.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto read = [&path](const std::string& bytes) -> Result<std::vector<double>> {
    std::thread writer([&] {
      std::FILE* out = std::fopen(path.c_str(), "wb");
      std::fwrite(bytes.data(), 1, bytes.size(), out);
      std::fclose(out);
    });
    auto file = NpyFile::open(path);
    auto result = file ? file->doubles() : error(file.error());
    writer.join();
    return result;
  };
  EXPECT_EQ(*read(good), values);
  EXPECT_EQ(read(good.substr(0, good.size() - 3)).error().code(), Code::kDataLoss);
  EXPECT_THAT(read(good + "x").error().message(), HasSubstr("bytes follow"));
}

}  // namespace
}  // namespace tailor::geometry
