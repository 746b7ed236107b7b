#include "model/pretrained/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "model/pretrained/float_types.h"

namespace tailor::pretrained {
namespace {

struct TypeName {
  DType dtype;
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<TypeName, 10> kTypes{{{DType::kBool, "BOOL", 1},
                                           {DType::kU8, "U8", 1},
                                           {DType::kI8, "I8", 1},
                                           {DType::kI16, "I16", 2},
                                           {DType::kI32, "I32", 4},
                                           {DType::kI64, "I64", 8},
                                           {DType::kF16, "F16", 2},
                                           {DType::kBf16, "BF16", 2},
                                           {DType::kF32, "F32", 4},
                                           {DType::kF64, "F64", 8}}};

// The format's other types: known, but not read.
constexpr std::array<std::string_view, 12> kUnreadTypes{
    "F4",  "F6_E2M3", "F6_E3M2",     "F8_E4M3",     "F8_E5M2", "F8_E8M0",
    "U16", "U32",     "F8_E4M3FNUZ", "F8_E5M2FNUZ", "U64",     "C64"};

const TypeName& type_of(DType dtype) {
  return *std::find_if(kTypes.begin(), kTypes.end(),
                       [&](const TypeName& type) { return type.dtype == dtype; });
}

constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit

Status damaged(const std::string& path, std::string_view what) {
  return Status(Code::kDataLoss, fmt::format("{}: {}", path, what));
}

// Bytes of a tensor, or nullopt when a size is negative or the product does not fit.
std::optional<std::int64_t> byte_count(const std::vector<std::int64_t>& shape, DType dtype) {
  std::int64_t bytes = dtype_bytes(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace

// Members of SafetensorsFile::Impl: named, since files are compiled together.
namespace safetensors_internal {

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

// Where a tensor lies.
struct Extent {
  DType dtype = DType::kF32;
  std::int64_t begin = 0;  // from the start of the file
  std::int64_t bytes = 0;
};

}  // namespace safetensors_internal

namespace {

using safetensors_internal::Extent;
using safetensors_internal::File;

Status write_all(int descriptor, const void* data, std::size_t size, const std::string& path) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor, at, std::min<std::size_t>(size, 1u << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno_status(errno, "write", path);
    }
    at += written;
    size -= static_cast<std::size_t>(written);
  }
  return Status::ok();
}

}  // namespace

std::string_view dtype_name(DType dtype) { return type_of(dtype).name; }
std::int64_t dtype_bytes(DType dtype) { return type_of(dtype).bytes; }

struct SafetensorsFile::Impl {
  explicit Impl(std::string name) : path(std::move(name)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::string path;
  File file{-1};
  std::int64_t size = 0;
  std::vector<SourceTensor> tensors;
  std::vector<Extent> extents;  // beside `tensors`
  std::map<std::string, std::string> metadata;

  Status pread_all(std::int64_t offset, void* to, std::int64_t bytes, std::string_view what) const;
  Status parse();
  Status add(const std::string& name, const nlohmann::json& entry, std::int64_t data_begin);
};

Status SafetensorsFile::Impl::pread_all(std::int64_t offset, void* to, std::int64_t bytes,
                                        std::string_view what) const {
  const auto wanted = static_cast<std::size_t>(bytes);
  TAILOR_ASSIGN_OR_RETURN(const std::size_t got, read_at(file.get(), to, wanted,
                                                         static_cast<std::uint64_t>(offset), path));
  if (got == wanted) return Status::ok();
  return damaged(path, fmt::format("{} is cut: the file has become shorter", what));
}

Status SafetensorsFile::Impl::add(const std::string& name, const nlohmann::json& entry,
                                  std::int64_t data_begin) {
  const std::string shown = short_text(name);
  const auto bad = [&](std::string_view what) {
    return damaged(path, fmt::format("tensor {}: {}", shown, what));
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    return bad("its entry lacks dtype, shape or data_offsets");
  }
  const auto dtype = entry["dtype"].get<std::string>();
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const TypeName& known) { return known.name == dtype; });
  if (type == kTypes.end()) {
    const bool known =
        std::find(kUnreadTypes.begin(), kUnreadTypes.end(), dtype) != kUnreadTypes.end();
    std::string read;
    for (const TypeName& one : kTypes) read += (read.empty() ? "" : ", ") + std::string(one.name);
    return Status(
        Code::kUnimplemented,
        fmt::format("{}: tensor {}: its type {}{} is unsupported; {} are read: take the model "
                    "in one of them",
                    path, shown, short_text(dtype, 40), known ? "" : ", unknown to this version,",
                    read));
  }
  SourceTensor tensor{name, {}, dtype};
  for (const auto& size_json : entry["shape"]) {
    if (!size_json.is_number_integer() ||
        (size_json.is_number_unsigned() && size_json.get<std::uint64_t>() >> 63 != 0)) {
      return bad("its shape is not a list of integers");
    }
    tensor.shape.push_back(size_json.get<std::int64_t>());
  }
  const auto& offsets = entry["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    return bad("its data_offsets are not positive integers");
  }
  const auto begin = offsets[0].get<std::int64_t>();
  const auto end = offsets[1].get<std::int64_t>();
  if (begin < 0 || end < begin) return bad("its data_offsets run backwards");
  if (end > size - data_begin) return bad("lies behind the end of the file: the file is cut");
  const std::optional<std::int64_t> wanted = byte_count(tensor.shape, type->dtype);
  if (!wanted || *wanted != end - begin) return bad("its size does not fit its shape");
  extents.push_back({type->dtype, data_begin + begin, end - begin});
  tensors.push_back(std::move(tensor));
  return Status::ok();
}

Status SafetensorsFile::Impl::parse() {
  if (size < 8)
    return damaged(path, "too short for a safetensors file: it is cut or something else");
  std::uint64_t header_size = 0;  // little-endian, as every platform of ours
  TAILOR_RETURN_IF_ERROR(pread_all(0, &header_size, 8, "the header"));
  if (header_size < 2 || header_size > kHeaderBytesMax) {
    return damaged(path, "not a safetensors file (impossible header length)");
  }
  if (header_size > static_cast<std::uint64_t>(size) - 8)
    return damaged(path, "cut within its header");
  std::string text(header_size, '\0');
  TAILOR_RETURN_IF_ERROR(
      pread_all(8, text.data(), static_cast<std::int64_t>(header_size), "the header"));
  const auto data_begin = static_cast<std::int64_t>(8 + header_size);

  auto parsed = parse_json(text);
  if (!parsed) {
    return damaged(path, fmt::format("its header is not JSON ({}): altered, or another format",
                                     parsed.error().message()));
  }
  const nlohmann::json header = *std::move(parsed);
  if (!header.is_object())
    return damaged(path, "its header is no JSON object: altered, or another format");
  for (const auto& [name, value] : header.items()) {  // sorted by name
    if (name != "__metadata__") {
      TAILOR_RETURN_IF_ERROR(add(name, value, data_begin));
      continue;
    }
    if (!value.is_object()) return damaged(path, "__metadata__ is not an object");
    for (const auto& [key, entry] : value.items()) {
      if (entry.is_string()) metadata[key] = entry.get<std::string>();
    }
  }
  std::vector<Extent> sorted = extents;
  std::sort(sorted.begin(), sorted.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.bytes < b.bytes;
  });
  std::int64_t covered = data_begin;
  for (const Extent& extent : sorted) {
    if (extent.begin != covered)
      return damaged(path, "its tensors overlap or leave a gap: altered");
    covered += extent.bytes;
  }
  if (covered != size) return damaged(path, "bytes follow the last tensor: altered");
  return Status::ok();
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  auto impl = std::make_unique<Impl>(path);
  impl->file = File(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (impl->file.get() < 0) return error(errno_status(errno, "open", path));
  struct stat info {};
  if (::fstat(impl->file.get(), &info) != 0) return error(errno_status(errno, "stat", path));
  if (!S_ISREG(info.st_mode)) return error(damaged(path, "not a regular file"));
  impl->size = static_cast<std::int64_t>(info.st_size);
  TAILOR_RETURN_IF_ERROR(impl->parse());
  return SafetensorsFile(std::move(impl));
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::path() const { return impl_->path; }
const std::vector<SourceTensor>& SafetensorsFile::tensors() const { return impl_->tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->metadata;
}

Status SafetensorsFile::read(std::string_view name, std::int64_t first,
                             std::span<float> values) const {
  const SourceTensor* tensor = find(name);
  const auto named = [&](Code code, std::string_view what) {
    return Status(code, fmt::format("{}: tensor {} {}", impl_->path, name, what));
  };
  if (tensor == nullptr) return named(Code::kNotFound, "is not there");
  const Extent& extent = impl_->extents[static_cast<std::size_t>(tensor - tensors().data())];
  const std::int64_t width = dtype_bytes(extent.dtype);
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t columns = std::max<std::int64_t>(1, tensor->columns());
  if (first < 0 || first > extent.bytes / width || count > extent.bytes / width - first ||
      first % columns != 0 || count % columns != 0) {
    return named(Code::kOutOfRange,
                 fmt::format("has no whole rows from element {} to {}", first, first + count));
  }
  const std::string what = fmt::format("tensor {}", name);
  std::int64_t offset = extent.begin + first * width;
  if (extent.dtype == DType::kF32) {
    return impl_->pread_all(offset, values.data(), count * width, what);
  }
  if (extent.dtype != DType::kF16 && extent.dtype != DType::kBf16 && extent.dtype != DType::kF64) {
    return named(Code::kInvalidArgument,
                 fmt::format("holds {}, not floating-point numbers", tensor->type));
  }
  // Through a buffer that stays in the cache.
  constexpr std::int64_t kChunk = 1 << 14;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(kChunk, count) * width));
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t part = std::min(kChunk, count - done);
    TAILOR_RETURN_IF_ERROR(impl_->pread_all(offset, buffer.data(), part * width, what));
    float* to = values.data() + done;
    if (extent.dtype == DType::kF64) {
      for (std::int64_t i = 0; i < part; ++i) {
        double wide;
        std::memcpy(&wide, buffer.data() + i * 8, 8);
        to[i] = static_cast<float>(wide);
      }
    } else {
      const bool half = extent.dtype == DType::kF16;
      for (std::int64_t i = 0; i < part; ++i) {
        std::uint16_t narrow;
        std::memcpy(&narrow, buffer.data() + i * 2, 2);
        to[i] = half ? float_of_f16(narrow) : float_of_bf16(narrow);
      }
    }
    done += part;
    offset += part * width;
  }
  return Status::ok();
}

Result<WrittenFile> write_safetensors(const std::string& path, std::span<const TensorData> tensors,
                                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const TensorData& tensor : tensors) {
    const std::optional<std::int64_t> bytes = byte_count(tensor.shape, tensor.dtype);
    if (!bytes)
      return error(Code::kInvalidArgument, fmt::format("{}: impossible shape", tensor.name));
    header[tensor.name] = {{"dtype", std::string(dtype_name(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + *bytes}}};
    offset += *bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t header_size = text.size();

  File file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return error(errno_status(errno, "create", path));
  WrittenFile written;
  Sha256 hash;
  const auto put = [&](const void* data, std::size_t size) {
    hash.update(data, size);
    written.bytes += static_cast<std::int64_t>(size);
    return write_all(file.get(), data, size, path);
  };
  TAILOR_RETURN_IF_ERROR(put(&header_size, sizeof header_size));
  TAILOR_RETURN_IF_ERROR(put(text.data(), text.size()));
  for (const TensorData& tensor : tensors) {
    TAILOR_RETURN_IF_ERROR(
        put(tensor.data, static_cast<std::size_t>(*byte_count(tensor.shape, tensor.dtype))));
  }
  if (::fsync(file.get()) != 0) return error(errno_status(errno, "sync", path));
  if (::close(file.release()) != 0) return error(errno_status(errno, "close", path));
  written.sha256 = hash.hex();
  return written;
}

}  // namespace tailor::pretrained
