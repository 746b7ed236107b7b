// No program links both gRPC and LibTorch (design.md 3), read from the binaries themselves.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/integration/cluster.h"

namespace tailor::testing {
namespace {

/// Names of every shared library that the dynamic loader would bring in, directly or not.
std::string libraries_of(const std::string& path) {
  const CommandResult result = run_command({"/usr/bin/ldd", path});
  EXPECT_EQ(result.exit_code, 0) << path << ": " << result.err;
  return result.out;
}

TEST(Links, NoProgramLinksBothGrpcAndLibTorch) {
  int with_grpc = 0, programs = 0, with_torch = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TAILOR_BIN_DIR)) {
    if (!entry.is_regular_file()) continue;
    const std::string libraries = libraries_of(entry.path());
    const bool grpc = libraries.find("libgrpc") != std::string::npos;
    const bool torch = libraries.find("libtorch") != std::string::npos ||
                       libraries.find("libc10") != std::string::npos;
    EXPECT_FALSE(grpc && torch) << entry.path() << " links gRPC and LibTorch";
    ++programs;
    with_grpc += grpc ? 1 : 0;
    with_torch += torch ? 1 : 0;
  }
  // The test would be empty if it did not see the programs that do link them.
  EXPECT_GE(with_grpc, 3) << "tailor, tailor-coordinator and tailor-worker link gRPC";
  EXPECT_GE(programs, 4);
#ifdef TAILOR_WITH_TORCH
  EXPECT_GE(with_torch, 1) << "tailor-trainer links LibTorch";
#endif
}

TEST(Links, TheTokenizerSharesNoProgramWithProtobufOrTorch) {
  const std::string path = std::string(TAILOR_BIN_DIR) + "/tailor-tokenize";
  ASSERT_TRUE(std::filesystem::exists(path));
  const CommandResult result = run_command({"/usr/bin/readelf", "-d", path});
  EXPECT_NE(result.out.find("libsentencepiece"), std::string::npos);
  EXPECT_EQ(result.out.find("libprotobuf"), std::string::npos);
  EXPECT_EQ(result.out.find("libtorch"), std::string::npos);
}

TEST(Links, TheClientLinksNoDatabase) {
  // It uses the coordinator's search and statistics (`tailor plan`), and nothing that they stand
  // beside.
  const std::string libraries = libraries_of(std::string(TAILOR_BIN_DIR) + "/tailor");
  EXPECT_NE(libraries.find("libgrpc"), std::string::npos);
  EXPECT_EQ(libraries.find("libsqlite3"), std::string::npos);
}

}  // namespace
}  // namespace tailor::testing
