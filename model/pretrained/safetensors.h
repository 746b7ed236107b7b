// Safetensors files: named tensors, read by position, written so that they are whole or absent.
//
// Format: 8 bytes little-endian header length n; n bytes of JSON
//   {"name": {"dtype": "F32", "shape": [r, c], "data_offsets": [begin, end]}, ...,
//    "__metadata__": {"k": "v"}};
// the tensors' bytes, with offsets counted from the end of the header, no gaps and no overlaps.
// Torch-free. Not mapped: a file that is cut while it is read is then an error and not SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/pretrained/tensor_source.h"

namespace tailor::pretrained {

enum class DType { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBf16, kF32, kF64 };
/// "F32", "BF16", ...: the format's own names.
std::string_view dtype_name(DType dtype);
/// Bytes of one element.
std::int64_t dtype_bytes(DType dtype);

/// A tensor to write; `data` is only read.
struct TensorData {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
};

/// An open file. Movable. Threads: const functions from any.
class SafetensorsFile final : public TensorSource {
 public:
  /// Opens and checks the whole header: every offset lies in the file, every size fits its shape
  /// and type, the tensors cover the data without gap or overlap. Errors: kNotFound; kDataLoss
  /// naming the file and what is wrong (cut, not a safetensors file, unknown type); kUnavailable.
  static Result<SafetensorsFile> open(const std::string& path);

  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile() override;

  const std::string& path() const override;
  const std::vector<SourceTensor>& tensors() const override;
  /// F32, F16, BF16 and F64; other types are kInvalidArgument.
  Status read(std::string_view name, std::int64_t first, std::span<float> values) const override;
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  explicit SafetensorsFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What was written.
struct WrittenFile {
  std::int64_t bytes = 0;
  std::string sha256;  ///< 64 lower-case hex digits
};

/// Writes `path` (replacing it), fsynced. Tensors keep their order. Not atomic: write into a folder
/// that is renamed afterwards, or to a temporary name. Errors: kResourceExhausted (disk full),
/// kUnavailable. REQUIRES: names are distinct.
Result<WrittenFile> write_safetensors(const std::string& path, std::span<const TensorData> tensors,
                                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tailor::pretrained
