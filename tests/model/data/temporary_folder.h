// What the tests of model/data share: a folder of their own, files in it, compression,
// small shards.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "model/data/token_shard.h"
#include "tests/support/temporary_folder.h"

namespace tailor::data {

/// A fixture with an empty folder that goes away with the test.
class TemporaryFolder : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// Writes a file (its folders too) and returns its path.
  std::string write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return path(name);
  }

  static std::string content_of(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

inline std::string gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3);
  EXPECT_EQ(ZSTD_isError(size), 0u);
  out.resize(size);
  return out;
}

/// Writes a shard of `ids` and returns what its header says.
inline TokenShardInfo write_shard(const std::string& file, const std::vector<std::uint32_t>& ids,
                                  std::uint32_t vocab_size = 1000, std::uint32_t eos_id = 0,
                                  const std::string& tokenizer = "test") {
  auto writer = TokenShardWriter::create(file, vocab_size, eos_id, sha256_hex(tokenizer));
  EXPECT_TRUE(writer.has_value()) << writer.error().to_string();
  EXPECT_TRUE(writer->append(ids, 3 * ids.size(), 1).is_ok());
  auto info = writer->finish();
  EXPECT_TRUE(info.has_value()) << info.error().to_string();
  return info.value_or(TokenShardInfo{});
}

}  // namespace tailor::data
