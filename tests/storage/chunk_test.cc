// The chunk format: what goes in comes out, and no blob is trusted.
#include "storage/chunk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>

#include "base/rng.h"
#include "storage/chunk_format.h"

namespace tailor::storage {
namespace {

void expect_same(const std::vector<Point>& a, const std::vector<Point>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].step, b[i].step);
    EXPECT_EQ(a[i].tokens, b[i].tokens);
    EXPECT_EQ(a[i].wall_ms, b[i].wall_ms);
    if (std::isnan(a[i].value)) {
      EXPECT_TRUE(std::isnan(b[i].value));
    } else {
      EXPECT_EQ(a[i].value, b[i].value);
    }
  }
}

std::vector<Point> regular(std::size_t count) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < count; ++i) {
    const auto n = static_cast<std::int64_t>(i);
    points.push_back({n * 10, n * 163'840, 1'700'000'000'000 + n * 1234 + n % 3,
                      1.0 / static_cast<double>(i + 1)});
  }
  return points;
}

std::vector<Point> round_trip(const std::vector<Point>& points) {
  const auto decoded = decode_chunk(encode_chunk(points));
  EXPECT_TRUE(decoded.has_value()) << status_of(decoded).to_string();
  return decoded.value_or(std::vector<Point>{});
}

TEST(Chunk, PointsSurviveBitForBit) {
  for (const std::size_t count : {1u, 2u, 255u, 256u})
    expect_same(regular(count), round_trip(regular(count)));
}

TEST(Chunk, ExtremesSurvive) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<Point> points{{kMax, kMin, 0, inf},
                                  {kMin, kMax, -5, -inf},
                                  {0, 0, kMax, std::nan("")},
                                  {7, -7, kMin, 5e-324},
                                  {6, 8, 1, 1.7976931348623157e308}};
  expect_same(points, round_trip(points));
}

TEST(Chunk, ValuesThatAreFloatsTakeFourBytes) {
  std::vector<Point> points = regular(256);
  const std::size_t wide = encode_chunk(points).size();
  for (Point& point : points) point.value = static_cast<double>(static_cast<float>(point.value));
  const std::size_t narrow = encode_chunk(points).size();
  EXPECT_EQ(wide - narrow, 256u * 4);
  expect_same(points, round_trip(points));
  points[9].value = std::nan("");
  points[10].value = 1e300;  // does not fit: back to eight
  EXPECT_EQ(encode_chunk(points).size(), wide);
  expect_same(points, round_trip(points));
}

TEST(Chunk, ARegularSeriesTakesAtMostTwelveBytesAPoint) {
  EXPECT_LE(encode_chunk(regular(256)).size(), 256u * 12);
}

TEST(Chunk, EveryTruncationIsFound) {
  const std::string blob = encode_chunk(regular(20));
  for (std::size_t size = 0; size < blob.size(); ++size) {
    const auto decoded = decode_chunk(std::string_view(blob).substr(0, size));
    ASSERT_FALSE(decoded.has_value()) << size;
    EXPECT_EQ(decoded.error().code(), Code::kDataLoss);
  }
}

TEST(Chunk, EveryFlippedBitIsFound) {
  const std::string blob = encode_chunk(regular(20));
  for (std::size_t bit = 0; bit < blob.size() * 8; ++bit) {
    std::string altered = blob;
    altered[bit / 8] = static_cast<char>(altered[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(decode_chunk(altered).has_value()) << bit;
  }
}

std::string with_checksum(std::string body) {
  std::uint32_t hash = 2166136261u;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  for (int i = 0; i < 4; ++i) body += static_cast<char>((hash >> (8 * i)) & 0xff);
  return body;
}

TEST(Chunk, ARightChecksumDoesNotMakeNonsenseTrusted) {
  EXPECT_FALSE(decode_chunk(with_checksum(std::string("\x02\x00\x01", 3))));  // unknown version
  EXPECT_FALSE(decode_chunk(with_checksum(std::string("\x01\x07\x01", 3))));  // unknown encoding
  EXPECT_FALSE(decode_chunk(with_checksum(std::string("\x01\x00\x00", 3))));  // no points
  EXPECT_FALSE(
      decode_chunk(with_checksum(std::string("\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11))));
  EXPECT_FALSE(
      decode_chunk(with_checksum(std::string("\x01\x00\x80\x80\x80", 5))));  // endless varint
  Rng rng(7);
  for (int round = 0; round < 2000; ++round) {
    std::string body("\x01\x00", 2);
    body[1] = static_cast<char>(round % 2);
    const std::uint64_t size = rng.next_u64() % 60;
    for (std::uint64_t i = 0; i < size; ++i) body += static_cast<char>(rng.next_u64() % 24);
    (void)decode_chunk(with_checksum(body));  // must return, whatever it says
  }
}

std::vector<TailPoint> batch_of_points(bool narrow) {
  std::vector<TailPoint> points;
  for (std::int64_t i = 0; i < 500; ++i) {
    points.push_back({{(i % 7) << 20 | 1, i % 3},
                      {i * 10, i * 40'960, 1'700'000'000'000 + i,
                       (narrow ? 0.5 : 0.1) * static_cast<double>(i)}});
  }
  points[3].point = {std::numeric_limits<std::int64_t>::min(),
                     std::numeric_limits<std::int64_t>::max(), -1, std::nan("")};
  points[4].series.attempt = std::numeric_limits<std::int64_t>::max();
  return points;
}

TEST(TailBlob, KeepsThePointsOfABatchAsTheyAre) {
  for (const bool narrow : {false, true}) {
    const std::vector<TailPoint> points = batch_of_points(narrow);
    const std::string blob = encode_tail(points);
    const auto back = decode_tail(blob);
    ASSERT_TRUE(back.has_value()) << status_of(back).to_string();
    ASSERT_EQ(back->size(), points.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      EXPECT_EQ((*back)[i].series, points[i].series);
      EXPECT_EQ((*back)[i].point.step, points[i].point.step);
      EXPECT_EQ((*back)[i].point.tokens, points[i].point.tokens);
      EXPECT_EQ((*back)[i].point.wall_ms, points[i].point.wall_ms);
      if (i == 3) continue;
      EXPECT_EQ((*back)[i].point.value, points[i].point.value);
    }
    EXPECT_TRUE(std::isnan((*back)[3].point.value));
  }
}

TEST(TailBlob, DamageIsFoundWhereverItIs) {
  const std::vector<TailPoint> points = batch_of_points(false);
  const std::string blob = encode_tail(std::span(points).first(20));
  for (std::size_t i = 0; i < blob.size(); ++i) {
    std::string damaged = blob;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_EQ(status_of(decode_tail(damaged)).code(), Code::kDataLoss) << i;
    EXPECT_EQ(status_of(decode_tail(blob.substr(0, i))).code(), Code::kDataLoss) << i;
  }
}

}  // namespace
}  // namespace tailor::storage
