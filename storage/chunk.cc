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

void append_value(std::string& out, bool narrow, double value) {
  if (narrow) {
    append_raw(out, static_cast<float>(value));
  } else {
    append_raw(out, value);
  }
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
  for (const Point& point : points) append_value(out, narrow, point.value);
  append_raw(out, fnv1a(out));
  return out;
}

std::uint64_t chunk_points(std::string_view blob) {
  if (blob.size() < kChunkHeaderBytes) return 0;
  std::uint64_t count = 0;
  const bool sound = Reader(blob.substr(kChunkHeaderBytes)).varint(count);
  return sound && count <= kChunkPointsMax ? count : 0;
}

namespace {

/// What both formats have around their columns.
struct Frame {
  Reader columns;
  bool narrow = false;
  std::size_t count = 0;
};

Result<Frame> open_frame(std::string_view blob, std::size_t points_max) {
  if (blob.size() < kChunkHeaderBytes + 1 + kChunkChecksumBytes) return bad("it is cut short");
  const std::string_view body = blob.substr(0, blob.size() - kChunkChecksumBytes);
  if (Reader(blob.substr(body.size())).raw<std::uint32_t>() != fnv1a(body)) {
    return bad("its checksum is wrong");
  }
  if (static_cast<std::uint8_t>(body[0]) != kChunkVersion) return bad("its version is unknown");
  const auto encoding = static_cast<std::uint8_t>(body[1]);
  if (encoding != kChunkF64 && encoding != kChunkF32) return bad("its encoding is unknown");
  Frame frame{Reader(body.substr(kChunkHeaderBytes)), encoding == kChunkF32, 0};
  std::uint64_t count = 0;
  if (!frame.columns.varint(count) || count == 0 || count > points_max) {
    return bad("its size is wrong");
  }
  frame.count = static_cast<std::size_t>(count);
  return frame;
}

template <typename P, typename Value>
bool read_values(Frame& frame, std::vector<P>& points, Value value_of) {
  const std::size_t value_bytes = frame.narrow ? sizeof(float) : sizeof(double);
  if (frame.columns.left() != points.size() * value_bytes) return false;
  for (P& point : points) {
    value_of(point) = frame.narrow ? static_cast<double>(frame.columns.raw<float>())
                                   : frame.columns.raw<double>();
  }
  return true;
}

}  // namespace

Result<std::vector<Point>> decode_chunk(std::string_view blob) {
  TAILOR_ASSIGN_OR_RETURN(Frame frame, open_frame(blob, kChunkPointsMax));
  std::vector<Point> points(frame.count);
  if (!frame.columns.column(points, &Point::step) ||
      !frame.columns.column(points, &Point::tokens) ||
      !frame.columns.column(points, &Point::wall_ms)) {
    return bad("its columns are cut short");
  }
  if (!read_values(frame, points, [](Point& point) -> double& { return point.value; })) {
    return bad("its values are cut short");
  }
  return points;
}

std::string encode_tail(std::span<const TailPoint> points) {
  TAILOR_CHECK(!points.empty() && points.size() <= kTailPointsMax, "points={}", points.size());
  bool narrow = true;
  for (const TailPoint& one : points) narrow = narrow && fits_f32(one.point.value);
  std::string out;
  out.reserve(points.size() * 18 + 16);
  out += static_cast<char>(kChunkVersion);
  out += static_cast<char>(narrow ? kChunkF32 : kChunkF64);
  append_varint(out, points.size());
  TailPoint last;
  const auto append_difference = [&out](std::int64_t value, std::int64_t before) {
    append_varint(out,
                  zigzag(static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(before)));
  };
  for (const TailPoint& one : points) {
    append_difference(one.series.attempt, last.series.attempt);
    append_difference(one.series.metric, last.series.metric);
    append_difference(one.point.step, last.point.step);
    append_difference(one.point.tokens, last.point.tokens);
    append_difference(one.point.wall_ms, last.point.wall_ms);
    last = one;
  }
  for (const TailPoint& one : points) append_value(out, narrow, one.point.value);
  append_raw(out, fnv1a(out));
  return out;
}

Result<std::vector<TailPoint>> decode_tail(std::string_view blob) {
  TAILOR_ASSIGN_OR_RETURN(Frame frame, open_frame(blob, kTailPointsMax));
  std::vector<TailPoint> points(frame.count);
  TailPoint last;
  bool whole = true;
  const auto read_difference = [&](std::int64_t& value, std::int64_t before) {
    std::uint64_t encoded = 0;
    whole = whole && frame.columns.varint(encoded);
    value = static_cast<std::int64_t>(static_cast<std::uint64_t>(before) + unzigzag(encoded));
  };
  for (TailPoint& one : points) {
    read_difference(one.series.attempt, last.series.attempt);
    read_difference(one.series.metric, last.series.metric);
    read_difference(one.point.step, last.point.step);
    read_difference(one.point.tokens, last.point.tokens);
    read_difference(one.point.wall_ms, last.point.wall_ms);
    last = one;
  }
  if (!whole) return bad("its columns are cut short");
  if (!read_values(frame, points, [](TailPoint& one) -> double& { return one.point.value; })) {
    return bad("its values are cut short");
  }
  return points;
}

}  // namespace tailor::storage
