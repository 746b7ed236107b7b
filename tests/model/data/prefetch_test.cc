#include "model/data/prefetch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/hash.h"
#include "model/data/token_shard_format.h"
#include "tests/model/data/temporary_folder.h"

namespace tailor::data {
namespace {

constexpr std::int64_t kTime = 16;

class Prefetch : public TemporaryFolder {
 protected:
  void SetUp() override {
    std::vector<std::uint32_t> ids(5000);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint32_t>(i * 7 % 1000);
    write_shard(path("a.tokens"), ids);
    dataset_.emplace(*Dataset::open({path("a.tokens")}, {}));
    loader_.emplace(*TrainLoader::create(*dataset_, kTime, 5));
  }

  /// What the plain loader gives.
  std::vector<std::int64_t> plain(std::uint64_t first, std::uint64_t rows) const {
    std::vector<std::int64_t> both(2 * rows * kTime);
    const std::span<std::int64_t> all(both);
    EXPECT_TRUE(
        loader_->fill<std::int64_t>(first, all.first(rows * kTime), all.last(rows * kTime)));
    return both;
  }
  static std::vector<std::int64_t> joined(const BatchBuffer& buffer) {
    std::vector<std::int64_t> both(buffer.inputs.begin(), buffer.inputs.end());
    both.insert(both.end(), buffer.targets.begin(), buffer.targets.end());
    return both;
  }

  std::optional<Dataset> dataset_;
  std::optional<TrainLoader> loader_;
};

TEST_F(Prefetch, GivesTheBatchesOfThePlainLoaderAndThenTheEnd) {
  // Rank 1 of 3, four rows each, resumed at step 5; over the end of an epoch.
  const BatchPlan plan{.first_sample = 5 * 12 + 4, .stride = 12, .rows = 4, .batches = 40};
  PrefetchLoader ahead(*loader_, plan);
  for (std::uint64_t step = 0; step < plan.batches; ++step) {
    const auto index = ahead.next();
    ASSERT_TRUE(index.has_value()) << index.error().to_string();
    EXPECT_EQ(joined(ahead.buffer(*index)), plain(plan.first_sample + step * plan.stride, 4));
  }
  EXPECT_EQ(ahead.next().error().code(), Code::kOutOfRange);
  EXPECT_GE(ahead.waited_s(), 0);
}

TEST_F(Prefetch, BuffersOfTheCallerAreUsedAndTheKeptOnesStay) {
  for (const std::size_t kept : {1, 2, 3}) {
    const std::size_t count = kept + 2;
    std::vector<std::int64_t> memory(count * 2 * 2 * kTime, -1);
    std::vector<BatchBuffer> buffers;
    for (std::size_t i = 0; i < count; ++i) {
      const std::span<std::int64_t> both = std::span(memory).subspan(i * 4 * kTime, 4 * kTime);
      buffers.push_back({both.first(2 * kTime), both.last(2 * kTime)});
    }
    PrefetchLoader ahead(*loader_, {.stride = 2, .rows = 2, .batches = 60}, buffers, kept);
    std::vector<std::size_t> given;
    for (std::uint64_t step = 0; step < 60; ++step) {
      given.push_back(ahead.next().value());
      // The newest `kept` are whole even though the thread is at work.
      for (std::uint64_t back = 0; back < std::min<std::uint64_t>(kept, step + 1); ++back) {
        ASSERT_EQ(joined(ahead.buffer(given[step - back])), plain(2 * (step - back), 2));
      }
      EXPECT_GE(ahead.buffer(given.back()).inputs.data(), memory.data());
      EXPECT_LT(ahead.buffer(given.back()).inputs.data(), memory.data() + memory.size());
    }
  }
}

TEST_F(Prefetch, AnErrorComesAtTheBatchItBelongsTo) {
  // The file is cut behind the windows of the first batches.
  std::uint64_t limit = 0;  // tokens that stay
  const auto end_of = [&](std::uint64_t sample) {
    return (loader_->window_of(sample) + 1) * kTime + 1;
  };
  for (std::uint64_t sample = 0; sample < 3; ++sample) limit = std::max(limit, end_of(sample));
  std::uint64_t first_bad = 3;
  while (end_of(first_bad) <= limit) ++first_bad;
  ASSERT_EQ(::truncate(path("a.tokens").c_str(), 128 + 2 * limit), 0);
  PrefetchLoader ahead(*loader_, {.stride = 1, .rows = 1, .batches = 100});
  for (std::uint64_t step = 0; step < first_bad; ++step) {
    EXPECT_TRUE(ahead.next().has_value()) << step;
  }
  for (int again = 0; again < 2; ++again) {
    const auto failed = ahead.next();
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().code(), Code::kDataLoss);
    EXPECT_NE(failed.error().message().find("a.tokens"), std::string::npos);
  }
}

TEST_F(Prefetch, ItEndsCleanlyAtAnyPoint) {
  for (std::uint64_t taken = 0; taken < 6; ++taken) {
    PrefetchLoader ahead(*loader_, {.stride = 3, .rows = 3, .batches = 5});
    for (std::uint64_t i = 0; i < taken; ++i) (void)ahead.next();
  }
  PrefetchLoader nothing(*loader_, {.rows = 1, .batches = 0});
  EXPECT_EQ(nothing.next().error().code(), Code::kOutOfRange);
}

/// Resident pages of this process in bytes: all, files that are mapped included.
std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(Prefetch, ResidentMemoryDoesNotGrowWithTheShard) {
  // 256 MB of zeros that take no room on disk, behind a header that says so.
  constexpr std::uint64_t kTokens = 128'000'000;
  std::string header(shard_format::kHeaderBytes, '\0');
  const auto put = [&](std::size_t offset, auto value) {
    std::memcpy(header.data() + offset, &value, sizeof value);
  };
  std::copy(shard_format::kMagic.begin(), shard_format::kMagic.end(), header.begin());
  put(shard_format::kVersionOffset, shard_format::kVersion);
  put(shard_format::kTokenBytesOffset, std::uint32_t{2});
  put(shard_format::kTokenCountOffset, kTokens);
  put(shard_format::kVocabSizeOffset, std::uint32_t{1000});
  const std::string digest = sha256_hex(header.substr(0, shard_format::kHeaderCheckOffset));
  for (std::size_t i = 0; i < 8; ++i) {
    header[shard_format::kHeaderCheckOffset + i] =
        static_cast<char>(std::stoi(digest.substr(2 * i, 2), nullptr, 16));
  }
  const std::string file = write("big.tokens", header);
  std::filesystem::resize_file(file, header.size() + 2 * kTokens);
  const auto dataset = Dataset::open({file}, {.verify = false});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().to_string();
  // Windows of 64k ids, in shuffled order, a whole epoch: every page of the file is read.
  constexpr std::int64_t kLong = 1 << 16;
  const auto loader = TrainLoader::create(*dataset, kLong, 1);
  ASSERT_TRUE(loader.has_value());
  const std::uint64_t windows = loader->window_count();
  PrefetchLoader ahead(*loader, {.stride = 1, .rows = 1, .batches = windows});
  ASSERT_TRUE(ahead.next().has_value());
  ASSERT_TRUE(ahead.next().has_value());
  const std::uint64_t before = resident_bytes();
  std::uint64_t most = before;
  for (std::uint64_t i = 2; i < windows; ++i) {
    ASSERT_TRUE(ahead.next().has_value());
    if (i % 64 == 0) most = std::max(most, resident_bytes());
  }
  EXPECT_LT(most - before, 16u << 20) << "of 256 MB that were read";
}

}  // namespace
}  // namespace tailor::data
