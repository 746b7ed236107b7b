#include "model/pretrained/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "model/pretrained/joined_file.h"

namespace tailor::pretrained {
namespace {

constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kAlignmentMax = 1 << 20;
constexpr std::uint64_t kTensorEntryBytesMin = 8 + 4 + 8 + 4 + 8;  // empty name, one size
constexpr std::uint64_t kMetadataEntryBytesMin = 8 + 4 + 1;        // empty key, one byte
constexpr int kArrayDepthMax = 4;
// A vocabulary has a quarter of a million pieces, a chat template some kilobytes. Elements that fit
// the file still take four times their bytes in memory.
constexpr std::uint64_t kStringsMax = 1 << 24;
constexpr std::uint64_t kValueBytesMax = 1 << 28;
constexpr std::int64_t kReadBytes = 1 << 20;  // dequantised at a time

// Bytes of a number or bool; 0 for strings, arrays and unknown types.
std::uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

template <typename T>
T bytes_as(const std::string& bytes, std::uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Reads the header front to back. The first failure stays and everything read after it is empty, so
// a caller checks once, where it matters.
class Cursor {
 public:
  explicit Cursor(const JoinedFile& file) : file_(file) {}

  const Status& status() const { return status_; }
  bool ok() const { return status_.is_ok(); }
  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return file_.size() - position_; }

  void fail(Code code, std::string_view what) {
    if (ok()) status_ = Status(code, fmt::format("{}: {}", file_.path(), what));
  }

  std::string bytes(std::uint64_t size, std::string_view what) {
    if (!ok()) return {};
    if (size > remaining()) {
      fail(Code::kDataLoss,
           fmt::format("cut or altered: {} claims {} bytes where the file has {} left",
                       short_text(what), size, remaining()));
      return {};
    }
    if (size > kValueBytesMax) {
      fail(Code::kUnimplemented, fmt::format("{} has {} bytes; up to {} are read", short_text(what),
                                             size, kValueBytesMax));
      return {};
    }
    std::string out(size, '\0');
    copy(out.data(), out.size());
    return out;
  }

  template <typename T>
  T number(std::string_view what) {
    T value{};
    if (ok() && sizeof(T) > remaining()) {
      fail(Code::kDataLoss, fmt::format("cut within its header, at {}", short_text(what)));
    }
    if (ok()) copy(&value, sizeof(T));
    return value;
  }

  std::string text(std::string_view what) { return bytes(number<std::uint64_t>(what), what); }

 private:
  void copy(void* out, std::size_t size) {
    if (position_ < begin_ || position_ + size > begin_ + window_.size()) {
      begin_ = position_;
      window_.resize(std::min<std::uint64_t>(remaining(), std::max<std::size_t>(size, 1 << 16)));
      status_ = file_.read(begin_, window_.data(), window_.size());
      if (!ok()) return;
    }
    std::memcpy(out, window_.data() + (position_ - begin_), size);
    position_ += size;
  }

  const JoinedFile& file_;
  Status status_;
  std::uint64_t position_ = 0;
  std::uint64_t begin_ = 0;
  std::string window_;
};

GgufType value_type(Cursor& in, const std::string& key) {
  const auto number = in.number<std::uint32_t>(key);
  if (number > static_cast<std::uint32_t>(GgufType::kF64)) {
    in.fail(Code::kDataLoss,
            fmt::format("metadata {} has unknown type {}", short_text(key), number));
  }
  return static_cast<GgufType>(number);
}

GgufValue read_value(Cursor& in, const std::string& key, GgufType type, int depth);

GgufValue read_array(Cursor& in, const std::string& key, int depth) {
  GgufValue value;
  value.is_array = true;
  value.type = value_type(in, key);
  value.count = in.number<std::uint64_t>(key);
  if (!in.ok()) return value;
  const std::uint64_t scalar = scalar_bytes(value.type);
  const std::uint64_t each =  // at least: a length, or element type and count
      scalar > 0                        ? scalar
      : value.type == GgufType::kString ? 8
                                        : 12;
  if (value.count > in.remaining() / each) {
    in.fail(Code::kDataLoss,
            fmt::format("cut or altered: metadata {} claims {} elements, more than "
                        "the rest of the file holds",
                        short_text(key), value.count));
    return value;
  }
  if (value.count > kStringsMax && scalar == 0) {
    in.fail(Code::kUnimplemented, fmt::format("metadata {} has {} elements; up to {} are read",
                                              short_text(key), value.count, kStringsMax));
    return value;
  }
  if (scalar > 0) {
    value.bytes = in.bytes(value.count * scalar, key);
  } else if (value.type == GgufType::kString) {
    for (std::uint64_t i = 0; i < value.count && in.ok(); ++i)
      value.strings.push_back(in.text(key));
  } else {  // arrays of arrays are part of the format, but nothing here uses one: skipped
    for (std::uint64_t i = 0; i < value.count && in.ok(); ++i) {
      read_value(in, key, GgufType::kArray, depth + 1);
    }
  }
  return value;
}

GgufValue read_value(Cursor& in, const std::string& key, GgufType type, int depth) {
  if (type == GgufType::kArray) {
    if (depth < kArrayDepthMax) return read_array(in, key, depth);
    in.fail(Code::kDataLoss, fmt::format("metadata {} is nested too deeply", short_text(key)));
    return {};
  }
  GgufValue value;
  value.type = type;
  value.bytes = type == GgufType::kString ? in.text(key) : in.bytes(scalar_bytes(type), key);
  if (in.ok() && type == GgufType::kBool && static_cast<unsigned char>(value.bytes[0]) > 1) {
    in.fail(Code::kDataLoss, fmt::format("metadata {} is neither true nor false", short_text(key)));
  }
  return value;
}

// NAME-00002-of-00003.gguf -> the name of file `number` (from 1); "" when it is not of that form.
std::string split_name(const std::string& path, std::uint64_t number, std::uint64_t count) {
  const std::string tail = fmt::format("-of-{:05}.gguf", count);
  constexpr std::size_t kDigits = 6;  // "-00002"
  if (!path.ends_with(tail) || path.size() < tail.size() + kDigits) return "";
  return fmt::format("{}-{:05}{}", path.substr(0, path.size() - tail.size() - kDigits), number,
                     tail);
}

}  // namespace

std::optional<std::int64_t> GgufValue::integer(std::uint64_t i) const {
  if (i >= count || type == GgufType::kString || type == GgufType::kArray) return {};
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return bytes_as<std::uint8_t>(bytes, i);
    case GgufType::kI8:
      return bytes_as<std::int8_t>(bytes, i);
    case GgufType::kU16:
      return bytes_as<std::uint16_t>(bytes, i);
    case GgufType::kI16:
      return bytes_as<std::int16_t>(bytes, i);
    case GgufType::kU32:
      return bytes_as<std::uint32_t>(bytes, i);
    case GgufType::kI32:
      return bytes_as<std::int32_t>(bytes, i);
    case GgufType::kI64:
      return bytes_as<std::int64_t>(bytes, i);
    case GgufType::kU64: {
      const auto value = bytes_as<std::uint64_t>(bytes, i);
      if (value >> 63 == 0) return static_cast<std::int64_t>(value);
      return {};
    }
    default:
      return {};
  }
}

std::optional<double> GgufValue::number(std::uint64_t i) const {
  if (i < count && type == GgufType::kF32) return bytes_as<float>(bytes, i);
  if (i < count && type == GgufType::kF64) return bytes_as<double>(bytes, i);
  const std::optional<std::int64_t> whole = integer(i);
  return whole ? std::optional<double>(static_cast<double>(*whole)) : std::nullopt;
}

const std::string* GgufValue::text() const {
  return type == GgufType::kString && !is_array ? &bytes : nullptr;
}

struct GgufFile::Impl {
  std::string path;
  std::vector<JoinedFile> files;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::map<std::string, GgufTensor, std::less<>> tensors;

  Status parse(JoinedFile file);
  Status parse_tensors(Cursor& in, std::uint64_t count, std::uint64_t alignment);
  Status open_rest_of_split();
};

// Adds a file's tensors; the metadata is the first file's,
// of later ones only the split's own count.
Status GgufFile::Impl::parse(JoinedFile file) {
  Cursor in(file);
  if (in.bytes(std::min<std::uint64_t>(4, file.size()), "the magic") != "GGUF") {
    in.fail(Code::kDataLoss, "not a GGUF file, or cut at its very start");
  }
  const auto version = in.number<std::uint32_t>("the version");
  if (version > 0 && (version & 0xffff) == 0) {
    in.fail(Code::kUnimplemented, "a big-endian GGUF file; only little-endian ones are read");
  } else if (version != 2 && version != 3) {
    in.fail(Code::kUnimplemented,
            fmt::format("GGUF version {}; versions 2 and 3 are read", version));
  }
  const auto tensor_count = in.number<std::uint64_t>("the tensor count");
  const auto entry_count = in.number<std::uint64_t>("the metadata count");
  if (tensor_count > in.remaining() / kTensorEntryBytesMin ||
      entry_count > in.remaining() / kMetadataEntryBytesMin) {
    in.fail(Code::kDataLoss,
            fmt::format("cut or altered: {} tensors and {} metadata entries do not "
                        "fit its {} bytes",
                        tensor_count, entry_count, file.size()));
  }
  std::map<std::string, GgufValue, std::less<>> entries;
  for (std::uint64_t i = 0; i < entry_count && in.ok(); ++i) {
    std::string key = in.text("a metadata key");
    const GgufType type = value_type(in, key);
    GgufValue value = read_value(in, key, type, 0);
    const std::string shown = short_text(key);
    if (in.ok() && !entries.emplace(std::move(key), std::move(value)).second) {
      in.fail(Code::kDataLoss, fmt::format("altered: metadata {} comes twice", shown));
    }
  }
  std::uint64_t alignment = kDefaultAlignment;
  if (const auto found = entries.find("general.alignment"); found != entries.end()) {
    alignment = static_cast<std::uint64_t>(found->second.integer().value_or(0));
  }
  if (alignment == 0 || alignment > kAlignmentMax || (alignment & (alignment - 1)) != 0) {
    in.fail(Code::kDataLoss, "altered: general.alignment is not a power of two up to a megabyte");
  }
  if (files.empty()) metadata = std::move(entries);
  if (in.ok()) TAILOR_RETURN_IF_ERROR(parse_tensors(in, tensor_count, alignment));
  if (!in.ok()) return in.status();
  files.push_back(std::move(file));
  return Status::ok();
}

Status GgufFile::Impl::parse_tensors(Cursor& in, std::uint64_t count, std::uint64_t alignment) {
  std::vector<std::pair<const std::string*, GgufTensor*>> added;
  for (std::uint64_t i = 0; i < count && in.ok(); ++i) {
    std::string name = in.text("a tensor's name");
    const std::string shown = short_text(name);
    const auto bad = [&](std::string_view what, Code code = Code::kDataLoss) {
      in.fail(code, fmt::format("tensor {}: {}", shown, what));
    };
    GgufTensor tensor;
    tensor.file = files.size();
    const auto sizes = in.number<std::uint32_t>(shown);
    if (in.ok() && (sizes < 1 || sizes > 4)) bad(fmt::format("has {} sizes", sizes));
    tensor.elements = 1;
    for (std::uint32_t d = 0; d < sizes && in.ok(); ++d) {
      const auto size = in.number<std::uint64_t>(shown);
      if (in.ok() && (size == 0 || size >> 62 != 0 ||
                      __builtin_mul_overflow(tensor.elements, static_cast<std::int64_t>(size),
                                             &tensor.elements))) {
        bad("has an impossible shape");
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
    }
    const auto type = in.number<std::uint32_t>(shown);
    const auto offset = in.number<std::uint64_t>(shown);
    if (!in.ok()) break;
    tensor.type = ggml_type(type);
    if (tensor.type == nullptr) {
      const std::string_view type_name = ggml_type_name(type);
      bad(fmt::format("its type {} is unsupported; {} are read: take a file in one of them",
                      type_name.empty() ? fmt::format("{}, unknown to this version,", type)
                                        : std::string(type_name),
                      ggml_types_read()),
          Code::kUnimplemented);
      break;
    }
    if (tensor.shape.back() % tensor.type->block_elements != 0) {
      bad(fmt::format("rows of {} are no whole number of {} blocks", tensor.shape.back(),
                      tensor.type->name));
    } else if (__builtin_mul_overflow(tensor.elements / tensor.type->block_elements,
                                      tensor.type->block_bytes, &tensor.bytes)) {
      bad("has an impossible shape");
    } else if (offset % alignment != 0) {
      bad("its offset is not aligned: altered");
    }
    tensor.position = offset;
    const auto [at, is_new] = tensors.emplace(std::move(name), std::move(tensor));
    if (!is_new) bad("comes twice: altered");
    added.emplace_back(&at->first, &at->second);
  }
  if (!in.ok()) return in.status();

  const std::uint64_t end = in.position() + in.remaining();
  const std::uint64_t begin = (in.position() + alignment - 1) / alignment * alignment;
  std::sort(added.begin(), added.end(),
            [](const auto& a, const auto& b) { return a.second->position < b.second->position; });
  std::uint64_t covered = begin;
  for (const auto& [name, tensor] : added) {
    const auto bytes = static_cast<std::uint64_t>(tensor->bytes);
    const std::string shown = short_text(*name);
    if (begin > end || tensor->position > end - begin || bytes > end - begin - tensor->position) {
      in.fail(Code::kDataLoss,
              fmt::format("tensor {} lies behind the end of the file: the file is cut", shown));
      break;
    }
    tensor->position += begin;
    if (tensor->position < covered) {
      in.fail(Code::kDataLoss, fmt::format("tensor {} overlaps another: altered", shown));
      break;
    }
    covered = tensor->position + bytes;
  }
  if (in.ok() && !added.empty() && end > (covered + alignment - 1) / alignment * alignment) {
    in.fail(Code::kDataLoss, "bytes follow the last tensor: altered");
  }
  return in.status();
}

// The other files of a split by tensors, when the first says that there are any.
Status GgufFile::Impl::open_rest_of_split() {
  const auto entry = metadata.find("split.count");
  const std::int64_t count = entry == metadata.end() ? 1 : entry->second.integer().value_or(0);
  if (count == 1) return Status::ok();
  if (count < 1 || count > 99999) {
    return Status(Code::kDataLoss, fmt::format("{}: altered: split.count is impossible", path));
  }
  const std::string first = files.front().path();
  for (std::int64_t number = 2; number <= count; ++number) {
    const std::string name =
        split_name(first, static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(count));
    if (name.empty()) {
      return Status(Code::kNotFound,
                    fmt::format("{}: is one file of {}; rename it to NAME-00001-of-{:05}.gguf so "
                                "that the others are found",
                                first, count, count));
    }
    TAILOR_ASSIGN_OR_RETURN(JoinedFile file, JoinedFile::open({name}));
    TAILOR_RETURN_IF_ERROR(parse(std::move(file)));
  }
  const auto total = metadata.find("split.tensors.count");
  if (total != metadata.end() &&
      total->second.integer() != static_cast<std::int64_t>(tensors.size())) {
    return Status(Code::kDataLoss,
                  fmt::format("{}: its {} files hold {} tensors where it says {}", first, count,
                              tensors.size(), total->second.integer().value_or(-1)));
  }
  return Status::ok();
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(std::vector<std::string> paths, files_to_join(path));
  // Any file of a split by tensors stands for all: the first has the metadata.
  constexpr std::size_t kTail = 20;  // "-00002-of-00003.gguf"
  if (const std::size_t size = paths[0].size(); paths.size() == 1 && size > kTail) {
    const std::string tail = paths[0].substr(size - kTail);
    const auto count = tail.substr(10, 5);
    if (tail.starts_with("-") && tail.ends_with(".gguf") && tail.substr(6, 4) == "-of-" &&
        count.find_first_not_of("0123456789") == std::string::npos) {
      const std::string first = split_name(paths[0], 1, std::stoull(count));
      if (std::error_code ignored; std::filesystem::exists(first, ignored)) paths[0] = first;
    }
  }
  TAILOR_ASSIGN_OR_RETURN(JoinedFile file, JoinedFile::open(paths));
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  TAILOR_RETURN_IF_ERROR(impl->parse(std::move(file)));
  TAILOR_RETURN_IF_ERROR(impl->open_rest_of_split());
  return GgufFile(std::move(impl));
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

const std::string& GgufFile::path() const { return impl_->path; }
const std::map<std::string, GgufValue, std::less<>>& GgufFile::metadata() const {
  return impl_->metadata;
}
const std::map<std::string, GgufTensor, std::less<>>& GgufFile::tensors() const {
  return impl_->tensors;
}
const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = impl_->metadata.find(key);
  return found == impl_->metadata.end() ? nullptr : &found->second;
}

namespace {
tl::unexpected<Status> wrong_entry(const GgufFile& file, std::string_view key, bool missing,
                                   std::string_view wanted) {
  return error(Code::kInvalidArgument,
               fmt::format("{}: metadata {} is {}{}", file.path(), key,
                           missing ? "missing" : "not ", missing ? "" : wanted));
}
}  // namespace

Result<std::int64_t> GgufFile::integer(std::string_view key,
                                       std::optional<std::int64_t> fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && !value->is_array) {
    if (const auto whole = value->integer()) return *whole;
  }
  return wrong_entry(*this, key, value == nullptr, "an integer");
}

Result<double> GgufFile::number(std::string_view key, std::optional<double> fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && !value->is_array) {
    if (const auto real = value->number()) return *real;
  }
  return wrong_entry(*this, key, value == nullptr, "a number");
}

Result<std::string> GgufFile::text(std::string_view key,
                                   std::optional<std::string> fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->text() != nullptr) return *value->text();
  return wrong_entry(*this, key, value == nullptr, "a string");
}

Status GgufFile::read(const GgufTensor& tensor, std::int64_t first, std::span<float> values) const {
  const JoinedFile& file = impl_->files[tensor.file];
  const GgmlTypeInfo& type = *tensor.type;
  std::uint64_t position =
      tensor.position + static_cast<std::uint64_t>(first / type.block_elements * type.block_bytes);
  if (type.type == GgmlType::kF32) return file.read(position, values.data(), values.size_bytes());
  auto blocks = static_cast<std::int64_t>(values.size()) / type.block_elements;
  const std::int64_t blocks_at_once = kReadBytes / type.block_bytes;
  std::vector<std::byte> buffer(
      static_cast<std::size_t>(std::min(blocks, blocks_at_once) * type.block_bytes));
  float* out = values.data();
  while (blocks > 0) {
    const std::int64_t count = std::min(blocks, blocks_at_once);
    const auto bytes = static_cast<std::size_t>(count * type.block_bytes);
    TAILOR_RETURN_IF_ERROR(file.read(position, buffer.data(), bytes));
    dequantize(type.type, buffer.data(), count, out);
    position += bytes;
    out += count * type.block_elements;
    blocks -= count;
  }
  return Status::ok();
}

bool is_gguf_path(std::string_view path) {
  return path.ends_with(".gguf") || path.find(".gguf.part") != std::string_view::npos;
}

}  // namespace tailor::pretrained
