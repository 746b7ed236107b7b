#include "model/pretrained/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/hash.h"

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

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

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
  std::string path;
  void* mapped = nullptr;
  std::size_t size = 0;
  std::map<std::string, TensorView, std::less<>> tensors;
  std::map<std::string, std::string> metadata;

  ~Impl() {
    if (mapped != nullptr) ::munmap(mapped, size);
  }
  Status parse();
};

Status SafetensorsFile::Impl::parse() {
  if (size < 8)
    return damaged(path, "too short for a safetensors file: it is cut or something else");
  const auto* bytes = static_cast<const std::byte*>(mapped);
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, bytes, 8);  // little-endian, as every platform of ours
  if (header_size < 2 || header_size > kHeaderBytesMax) {
    return damaged(path, "not a safetensors file (impossible header length)");
  }
  if (header_size > size - 8) return damaged(path, "cut within its header");
  const std::string_view text(reinterpret_cast<const char*>(bytes + 8), header_size);
  const std::byte* data = bytes + 8 + header_size;
  const auto data_size = static_cast<std::int64_t>(size - 8 - header_size);

  const nlohmann::json header = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object())
    return damaged(path, "its header is not JSON: altered, or another format");
  std::vector<std::pair<std::int64_t, std::int64_t>> extents;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return damaged(path, "__metadata__ is not an object");
      for (const auto& [key, entry] : value.items()) {
        if (entry.is_string()) metadata[key] = entry.get<std::string>();
      }
      continue;
    }
    const auto bad = [&](std::string_view what) {
      return damaged(path, fmt::format("tensor {}: {}", name, what));
    };
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !value["shape"].is_array() || !value.contains("data_offsets") ||
        !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
      return bad("its entry lacks dtype, shape or data_offsets");
    }
    const auto dtype = value["dtype"].get<std::string>();
    const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                   [&](const TypeName& known) { return known.name == dtype; });
    if (type == kTypes.end()) return bad(fmt::format("unknown type {}", dtype));
    TensorView view;
    view.dtype = type->dtype;
    for (const auto& size_json : value["shape"]) {
      if (!size_json.is_number_integer()) return bad("its shape is not a list of integers");
      view.shape.push_back(size_json.get<std::int64_t>());
    }
    const auto& offsets = value["data_offsets"];
    if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
      return bad("its data_offsets are not positive integers");
    }
    const auto begin = offsets[0].get<std::int64_t>();
    const auto end = offsets[1].get<std::int64_t>();
    if (begin < 0 || end < begin) return bad("its data_offsets run backwards");
    if (end > data_size) return bad("lies behind the end of the file: the file is cut");
    const std::optional<std::int64_t> wanted = byte_count(view.shape, view.dtype);
    if (!wanted || *wanted != end - begin) return bad("its size does not fit its shape");
    view.data = data + begin;
    view.bytes = end - begin;
    extents.emplace_back(begin, end);
    tensors.emplace(name, std::move(view));
  }
  std::sort(extents.begin(), extents.end());
  std::int64_t covered = 0;
  for (const auto& [begin, end] : extents) {
    if (begin != covered) return damaged(path, "its tensors overlap or leave a gap: altered");
    covered = end;
  }
  if (covered != data_size) return damaged(path, "bytes follow the last tensor: altered");
  return Status::ok();
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return error(errno_status(errno, "open", path));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return error(errno_status(errno, "stat", path));
  if (!S_ISREG(info.st_mode)) return error(damaged(path, "not a regular file"));
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->size = static_cast<std::size_t>(info.st_size);
  if (impl->size > 0) {
    void* mapped = ::mmap(nullptr, impl->size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED) return error(errno_status(errno, "map", path));
    impl->mapped = mapped;
  }
  TAILOR_RETURN_IF_ERROR(impl->parse());
  return SafetensorsFile(std::move(impl));
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::path() const { return impl_->path; }
const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = impl_->tensors.find(name);
  return found == impl_->tensors.end() ? nullptr : &found->second;
}
const std::map<std::string, TensorView, std::less<>>& SafetensorsFile::tensors() const {
  return impl_->tensors;
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->metadata;
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
