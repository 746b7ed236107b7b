// GGUF files: metadata and named tensors of a model, often quantised.
//
// Format (version 2 and 3, little-endian): "GGUF", u32 version, u64 tensor count, u64 metadata
// count; metadata entries (string key, u32 type, value); tensor entries (string name, u32 number of
// sizes, u64 sizes with the innermost first, u32 type, u64 offset); then, from the next multiple of
// general.alignment (32 unless said), the tensors' data. A string is a u64 length and its bytes; an
// array is u32 element type, u64 count and the elements. Torch-free.
//
// A model may come in several files: cut by bytes (NAME.part00, NAME.part01, ...) or by tensors
// (NAME-00001-of-00003.gguf, each with a header of its own). Both open as one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/pretrained/gguf_types.h"

namespace tailor::pretrained {

/// Types of metadata values; the numbers are the format's.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

/// A metadata value. Numbers stay in the bytes of the file until they are asked for.
struct GgufValue {
  GgufType type = GgufType::kU8;  ///< of the value, or of an array's elements
  bool is_array = false;
  std::uint64_t count = 1;           ///< elements; 1 for a value that is no array
  std::string bytes;                 ///< a string's text, or numbers as they are in the file
  std::vector<std::string> strings;  ///< elements of an array of strings

  /// Element `i` as an integer (bool counts as 0 or 1); nullopt for other types, for what does not
  /// fit and beyond the end.
  std::optional<std::int64_t> integer(std::uint64_t i = 0) const;
  /// Element `i` as a number, integers included.
  std::optional<double> number(std::uint64_t i = 0) const;
  /// The text of a string that is no array, or nullptr.
  const std::string* text() const;
};

struct GgufTensor {
  std::vector<std::int64_t> shape;  ///< outermost first, as everywhere but in the file
  const GgmlTypeInfo* type = nullptr;
  std::size_t file = 0;        ///< which of the files of a split by tensors
  std::uint64_t position = 0;  ///< of its data in that file
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
};

/// An open GGUF file, read by position: a file cut meanwhile gives an error, and no more than what
/// is asked for is ever in memory. Movable. Threads: const functions from any.
class GgufFile {
 public:
  /// Opens `path` and checks the whole header; nothing is allocated for a size that the file cannot
  /// hold. `path` may also be one file of a model in several (its siblings are found by their
  /// names), or a list with commas and shell patterns whose files, each pattern's sorted by file
  /// name, are joined by their bytes. Errors, naming the file and what is wrong: kNotFound (a part
  /// is missing); kDataLoss (cut, altered, not GGUF, duplicate names, tensors that overlap or lie
  /// outside); kUnimplemented (version 1, big-endian,
  /// a tensor type that is not read); the system's reason.
  static Result<GgufFile> open(const std::string& path);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& path() const;
  const std::map<std::string, GgufValue, std::less<>>& metadata() const;
  /// nullptr when there is no such entry.
  const GgufValue* find(std::string_view key) const;
  /// The entry `key`; `fallback`, if given, when it is absent. Errors: kInvalidArgument naming file
  /// and key when it is missing or of another type.
  Result<std::int64_t> integer(std::string_view key,
                               std::optional<std::int64_t> fallback = {}) const;
  Result<double> number(std::string_view key, std::optional<double> fallback = {}) const;
  Result<std::string> text(std::string_view key, std::optional<std::string> fallback = {}) const;

  const std::map<std::string, GgufTensor, std::less<>>& tensors() const;
  /// Dequantises elements [first, first + values.size()) of `tensor`, one of tensors(). REQUIRES:
  /// both ends lie at whole blocks within the tensor. Errors: kDataLoss (cut meanwhile), the
  /// system's reason.
  Status read(const GgufTensor& tensor, std::int64_t first, std::span<float> values) const;

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// True when `path` looks like GGUF: ends in .gguf or .gguf.partNN, in a list too.
bool is_gguf_path(std::string_view path);

}  // namespace tailor::pretrained
