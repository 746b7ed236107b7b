#include "model/train/batch_stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/hash.h"
#include "model/data/token_shard.h"

namespace tailor::train {
namespace {

constexpr std::int64_t kTime = 8;

class BatchStreamTest : public ::testing::Test {
 protected:
  BatchStreamTest() {
    path_ = (std::filesystem::temp_directory_path() /
             ("batch_stream_" + std::to_string(::getpid()) + ".tokens"))
                .string();
    auto writer = data::TokenShardWriter::create(path_, 1000, 0, sha256_hex("test"));
    std::vector<std::uint32_t> ids(3000);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint32_t>(i * 13 % 1000);
    EXPECT_TRUE(writer->append(ids, 1, 1).is_ok() && writer->finish().has_value());
    dataset_ = std::make_unique<data::Dataset>(*data::Dataset::open({path_}, {}));
    loader_ = std::make_unique<data::TrainLoader>(*data::TrainLoader::create(*dataset_, kTime, 3));
  }
  ~BatchStreamTest() override { std::filesystem::remove(path_); }

  void expect_plain(const Result<Batch>& batch, std::uint64_t first, std::int64_t rows) const {
    ASSERT_TRUE(batch.has_value()) << batch.error().to_string();
    std::vector<std::int64_t> inputs(static_cast<std::size_t>(rows * kTime)), targets(inputs);
    ASSERT_TRUE(loader_->fill<std::int64_t>(first, inputs, targets).is_ok());
    ASSERT_EQ(batch->tokens.numel(), rows * kTime);
    EXPECT_TRUE(
        std::equal(inputs.begin(), inputs.end(), batch->tokens.const_data_ptr<std::int64_t>()))
        << first;
    EXPECT_TRUE(
        std::equal(targets.begin(), targets.end(), batch->targets.const_data_ptr<std::int64_t>()))
        << first;
  }

  std::string path_;
  std::unique_ptr<data::Dataset> dataset_;
  std::unique_ptr<data::TrainLoader> loader_;
};

TEST_F(BatchStreamTest, GivesThePlainLoadersBatchesWhateverTheOrderOfTheCalls) {
  BatchStream stream(*loader_);
  // Rank 1 of 2 from step 3 on; a step again (as after NaN); a jump back; other rows; single steps.
  for (std::uint64_t step = 3; step < 60; ++step) {
    expect_plain(stream.batch(step * 8 + 4, 4), step * 8 + 4, 4);
  }
  for (const std::uint64_t first : {468u, 468u, 460u, 468u, 476u, 0u, 8u, 16u, 24u}) {
    expect_plain(stream.batch(first, 4), first, 4);
  }
  for (const std::int64_t rows : {1, 2, 2, 3, 3, 3}) {
    expect_plain(stream.batch(100, rows), 100, rows);
  }
  for (std::uint64_t step = 0; step < 20; ++step) expect_plain(stream.batch(step, 1), step, 1);
}

TEST_F(BatchStreamTest, SaysHowLongBatchesWereWaitedFor) {
  BatchStream stream(*loader_);
  EXPECT_TRUE(std::isnan(stream.take_wait_ms()));
  for (std::uint64_t step = 0; step < 5; ++step) ASSERT_TRUE(stream.batch(step, 1).has_value());
  EXPECT_GE(stream.take_wait_ms(), 0);
  EXPECT_TRUE(std::isnan(stream.take_wait_ms()));
}

TEST_F(BatchStreamTest, AFileCutDuringTheRunIsAnErrorOfTheBatchThatNeedsIt) {
  BatchStream stream(*loader_);
  ASSERT_EQ(::truncate(path_.c_str(), 128), 0);  // the header stays
  const auto failed = stream.batch(0, 2);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kDataLoss);
  EXPECT_NE(failed.error().message().find(path_), std::string::npos);
}

}  // namespace
}  // namespace tailor::train
