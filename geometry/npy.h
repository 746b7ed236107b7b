// Reader and writer of NumPy's .npy files: how clouds,
// distance matrices and diagrams come in and go out.
//
// Format (numpy.lib.format, versions 1.0, 2.0, 3.0): the bytes 93 'N' 'U' 'M' 'P' 'Y', major,
// minor, the header's length (2 bytes little-endian in version 1, else 4), a Python dictionary with
// exactly the keys 'descr', 'fortran_order' and 'shape', padded with blanks and ended by a newline,
// then the entries. Read: f4, f8, i4, i8, u2 in either byte order, C or Fortran order (turned into
// C order), any rank. Written: little-endian, C order, version 1.0, header padded
// to 64 bytes, as NumPy does.
//
// A file is outside input: every broken header is a Status that names the file and what is wrong
// with it, never a crash, and nothing is allocated before the size was compared
// with the bytes that are there.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "geometry/cloud.h"

namespace tailor::geometry {

enum class NpyType { kF4, kF8, kI4, kI8, kU2 };

/// "f4", "f8", "i4", "i8", "u2".
std::string_view npy_type_name(NpyType type);
std::size_t npy_type_bytes(NpyType type);

/// An array in C order, in this machine's byte order.
struct NpyArray {
  NpyType type = NpyType::kF8;
  std::vector<std::size_t> shape;  ///< empty: a single number
  std::string bytes;               ///< size() * npy_type_bytes(type)

  /// Number of entries.
  std::size_t size() const;
  /// Every entry as float64 (exact but for i8 beyond 2^53).
  std::vector<double> to_doubles() const;
  /// Every entry as an integer. Errors: kInvalidArgument when the type is a floating one.
  Result<std::vector<std::int64_t>> to_integers() const;
};

/// Parses the bytes of a file. `name` is used in messages. Errors: kDataLoss when the bytes are cut
/// short or are not .npy at all; kInvalidArgument when the header is wrong or describes what is not
/// read here (structured, object, complex and other types).
Result<NpyArray> parse_npy(std::string_view bytes, std::string_view name);

/// Reads a file. Errors: as parse_npy and read_file.
Result<NpyArray> read_npy(const std::string& path);

/// A file of numbers whose header has been read, and compared with the file's size where it has
/// one; the numbers come when they are asked for, once, a block at a time: so what a file holds is
/// known before memory is taken for it. Pipes are read as well. Threads: one at a time.
class NpyFile {
 public:
  /// Errors: as read_npy, but for what only the numbers of a pipe can show.
  static Result<NpyFile> open(const std::string& path);

  NpyType type() const { return type_; }
  const std::vector<std::size_t>& shape() const { return shape_; }
  /// Number of entries, by the header.
  std::size_t size() const { return size_; }
  /// Distance between neighbouring numbers of its type near 1: how exact they are (distance.h).
  /// Whole numbers count as float64, which holds them.
  double spacing() const;

  /// The next numbers, in the file's own order; none at the end. They last until the next call.
  /// Errors: those of reading, kDataLoss when the file ends early, kInvalidArgument when it goes
  /// on.
  Result<std::span<const double>> next();
  /// The place of the k-th number of the file in C order. REQUIRES: k < size().
  std::size_t place(std::size_t k) const;

  /// All numbers in C order; takes 8 bytes a number and a block.
  Result<std::vector<double>> doubles();
  /// The same as float32, 4 bytes a number. `rounded` is set when that changed some number. Errors:
  /// as next(), and kInvalidArgument for a number that is not finite or beyond float32;
  /// `name_entry` says what entry that is, from its place in C order.
  Result<std::vector<float>> floats(bool& rounded,
                                    const std::function<std::string(std::size_t)>& name_entry);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  NpyFile() = default;
  template <typename Take>
  Status take_all(const Take& take);

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  NpyType type_ = NpyType::kF8;
  bool swapped_ = false, fortran_order_ = false;
  std::vector<std::size_t> shape_;
  std::size_t size_ = 0, taken_ = 0;
  std::string block_;
  std::vector<double> numbers_;
};

/// Reads a cloud: an array of rank 2, points by coordinates. Errors: as read_npy, and another rank.
Result<Cloud> read_npy_cloud(const std::string& path);

/// The bytes of a file. REQUIRES: bytes.size() fits the shape.
std::string format_npy(const NpyArray& array);
/// An f8 array. REQUIRES: values.size() is the product of `shape`.
std::string format_npy(std::span<const double> values, std::span<const std::size_t> shape);

/// Writes atomically. Errors: as write_file_atomic.
Status write_npy(const std::string& path, const NpyArray& array);
Status write_npy(const std::string& path, std::span<const double> values,
                 std::span<const std::size_t> shape);

}  // namespace tailor::geometry
