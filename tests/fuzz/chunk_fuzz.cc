// Stored chunks of metric points: as they are, and with their checksum put right so that the bytes
// behind it are reached.
#include <bit>

#include "storage/chunk.h"
#include "storage/chunk_format.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

std::string with_checksum(std::string body) {
  std::uint32_t hash = 2166136261u;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  for (int i = 0; i < 4; ++i) body += static_cast<char>((hash >> (8 * i)) & 0xff);
  return body;
}

void check(std::string_view blob) {
  const auto points = storage::decode_chunk(blob);
  if (!points) {
    expect(points.error().code() == Code::kDataLoss, "a broken chunk is data loss");
    return;
  }
  expect(!points->empty() && points->size() <= storage::kChunkPointsMax, "1 to 256 points");
  const auto again = storage::decode_chunk(storage::encode_chunk(*points));
  expect(again.has_value() && again->size() == points->size(), "what was read can be written");
  for (std::size_t i = 0; i < points->size(); ++i) {
    const storage::Point &a = (*points)[i], &b = (*again)[i];
    const bool same_value =
        std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value) ||
        (a.value != a.value && b.value != b.value);
    expect(a.step == b.step && a.tokens == b.tokens && a.wall_ms == b.wall_ms && same_value,
           "writing and reading change nothing");
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const std::size_t count : {1u, 3u, 40u}) {
    std::vector<storage::Point> points;
    for (std::size_t i = 0; i < count; ++i) {
      const auto step = static_cast<std::int64_t>(10 * i);
      points.push_back(
          {step, step * 4096, 1'700'000'000'000 + step, 1.0 / (1.0 + static_cast<double>(i))});
    }
    seeds.push_back(storage::encode_chunk(points));
    points[0].value = 0.1f;
    points.resize(1);
    seeds.push_back(storage::encode_chunk(points));
  }
  return seeds;
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  const std::string_view blob = fuzz::as_text(data, size);
  fuzz::check(blob);
  if (size >= storage::kChunkChecksumBytes) {
    fuzz::check(
        fuzz::with_checksum(std::string(blob.substr(0, size - storage::kChunkChecksumBytes))));
  }
  return 0;
}
