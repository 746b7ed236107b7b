// Encoding and decoding of chunks.
#include "storage/chunk.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "storage/chunk_format.h"

namespace tailor::storage {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are copied as they lie in memory");

std::uint32_t fnv1a(std::string_view bytes) {
  std::uint32_t hash = 2166136261u;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  }
  return hash;
}

template <typename T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

// Small magnitudes of either sign become small numbers.
std::uint64_t zigzag(std::uint64_t value) { return (value << 1) ^ (0 - (value >> 63)); }
std::uint64_t unzigzag(std::uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

void append_column(std::string& out, std::span<const Point> points, std::int64_t Point::*field) {
  std::uint64_t last = 0;
  std::uint64_t last_difference = 0;
  for (const Point& point : points) {
    const auto value = static_cast<std::uint64_t>(point.*field);
    const std::uint64_t difference = value - last;
    append_varint(out, zigzag(difference - last_difference));
    last = value;
    last_difference = difference;
  }
}

// float keeps the value exactly; a NaN stays a NaN.
bool fits_f32(double value) {
  if (std::isnan(value)) return true;
  if (std::isfinite(value) && std::fabs(value) > 3.4028234663852886e38) return false;
  return std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<float>(value))) ==
         std::bit_cast<std::uint64_t>(value);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return false;
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      if (shift == 63 && byte > 1) return false;  // more than 64 bits
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

  bool column(std::vector<Point>& points, std::int64_t Point::*field) {
    std::uint64_t last = 0;
    std::uint64_t last_difference = 0;
    for (Point& point : points) {
      std::uint64_t encoded = 0;
      if (!varint(encoded)) return false;
      last_difference += unzigzag(encoded);
      last += last_difference;
      point.*field = static_cast<std::int64_t>(last);
    }
    return true;
  }

  template <typename T>
  T raw() {  // REQUIRES: left() >= sizeof(T)
    T value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }

  std::size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

tl::unexpected<Status> bad(std::string_view what) {
  return error(Code::kDataLoss, "a chunk of metric points is damaged: " + std::string(what));
}

}  // namespace

std::string encode_chunk(std::span<const Point> points) {
  TAILOR_CHECK(!points.empty() && points.size() <= kChunkPointsMax, "points={}", points.size());
  bool narrow = true;
  for (const Point& point : points) narrow = narrow && fits_f32(point.value);
  std::string out;
  out.reserve(points.size() * 13);
  out += static_cast<char>(kChunkVersion);
  out += static_cast<char>(narrow ? kChunkF32 : kChunkF64);
  append_varint(out, points.size());
  append_column(out, points, &Point::step);
  append_column(out, points, &Point::tokens);
  append_column(out, points, &Point::wall_ms);
  for (const Point& point : points) {
    if (narrow) {
      append_raw(out, static_cast<float>(point.value));
    } else {
      append_raw(out, point.value);
    }
  }
  append_raw(out, fnv1a(out));
  return out;
}

Result<std::vector<Point>> decode_chunk(std::string_view blob) {
  if (blob.size() < kChunkHeaderBytes + 1 + kChunkChecksumBytes) return bad("it is cut short");
  const std::string_view body = blob.substr(0, blob.size() - kChunkChecksumBytes);
  if (Reader(blob.substr(body.size())).raw<std::uint32_t>() != fnv1a(body)) {
    return bad("its checksum is wrong");
  }
  if (static_cast<std::uint8_t>(body[0]) != kChunkVersion) return bad("its version is unknown");
  const auto encoding = static_cast<std::uint8_t>(body[1]);
  if (encoding != kChunkF64 && encoding != kChunkF32) return bad("its encoding is unknown");
  Reader reader(body.substr(kChunkHeaderBytes));
  std::uint64_t count = 0;
  if (!reader.varint(count) || count == 0 || count > kChunkPointsMax)
    return bad("its size is wrong");
  std::vector<Point> points(static_cast<std::size_t>(count));
  if (!reader.column(points, &Point::step) || !reader.column(points, &Point::tokens) ||
      !reader.column(points, &Point::wall_ms)) {
    return bad("its columns are cut short");
  }
  const std::size_t value_bytes = encoding == kChunkF32 ? sizeof(float) : sizeof(double);
  if (reader.left() != points.size() * value_bytes) return bad("its values are cut short");
  for (Point& point : points) {
    point.value =
        encoding == kChunkF32 ? static_cast<double>(reader.raw<float>()) : reader.raw<double>();
  }
  return points;
}

}  // namespace tailor::storage
