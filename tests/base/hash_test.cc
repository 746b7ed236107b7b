#include "base/hash.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace tailor {
namespace {

TEST(Hash, Sha256MatchesThePublishedVectors) {
  // FIPS 180-2, appendix B.
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Hash, OfAFileEqualsThatOfItsContent) {
  const std::string path = ::testing::TempDir() + "/tailor_hash_test";
  const std::string content(3'000'000, 'q');
  ASSERT_TRUE(write_file_atomic(path, content).is_ok());
  EXPECT_EQ(sha256_file(path).value(), sha256_hex(content));
  EXPECT_EQ(sha256_file(path + ".none").error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tailor
