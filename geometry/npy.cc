// The .npy format: a small recursive reader for the header's dictionary,
// then a copy of the entries.
#include "geometry/npy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "geometry/distance.h"

namespace tailor::geometry {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kRankMax = 32;  // NumPy's own limit

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::size_t> shape;
};

Status bad_header(std::string_view what) {
  return Status(Code::kInvalidArgument, fmt::format("bad .npy header: {}", what));
}

// Reads the literal dictionary, e.g. {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  Result<Header> read() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!take('{')) return error(bad_header("it does not start with '{'"));
    while (!take('}')) {
      TAILOR_ASSIGN_OR_RETURN(const std::string key, read_string("a key"));
      if (!take(':'))
        return error(bad_header(fmt::format("no ':' after key '{}'", short_text(key))));
      if (key == "descr") {
        if (has_descr) return error(bad_header("key 'descr' is given twice"));
        if (peek() == '[') {
          return error(
              Code::kUnimplemented,
              "structured types are unsupported; save plain numbers (f4, f8, i4, i8 or u2)");
        }
        TAILOR_ASSIGN_OR_RETURN(header.descr, read_string("the value of 'descr'"));
        has_descr = true;
      } else if (key == "fortran_order") {
        if (has_order) return error(bad_header("key 'fortran_order' is given twice"));
        TAILOR_ASSIGN_OR_RETURN(header.fortran_order, read_bool());
        has_order = true;
      } else if (key == "shape") {
        if (has_shape) return error(bad_header("key 'shape' is given twice"));
        TAILOR_ASSIGN_OR_RETURN(header.shape, read_shape());
        has_shape = true;
      } else {
        return error(bad_header(fmt::format("unknown key '{}'", short_text(key))));
      }
      if (!take(',')) {
        if (!take('}')) return error(bad_header("no ',' or '}' after a value"));
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) return error(bad_header("text after the closing '}'"));
    if (!has_descr) return error(bad_header("key 'descr' is missing"));
    if (!has_order) return error(bad_header("key 'fortran_order' is missing"));
    if (!has_shape) return error(bad_header("key 'shape' is missing"));
    return header;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  char peek() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<std::string> read_string(std::string_view what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') {
      return error(bad_header(fmt::format("{} is not a quoted string", what)));
    }
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) {
      return error(bad_header(fmt::format("{} has no closing quote", what)));
    }
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  Result<bool> read_bool() {
    if (take_word("True")) return true;
    if (take_word("False")) return false;
    return error(bad_header("'fortran_order' is neither True nor False"));
  }

  Result<std::vector<std::size_t>> read_shape() {
    std::vector<std::size_t> shape;
    if (!take('(')) return error(bad_header("'shape' is not a tuple"));
    while (!take(')')) {
      if (!std::isdigit(static_cast<unsigned char>(peek()))) {
        return error(bad_header("'shape' holds something that is not a length"));
      }
      std::size_t value = 0;
      while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
        const std::size_t digit = static_cast<std::size_t>(text_[at_] - '0');
        if (value > (std::numeric_limits<std::size_t>::max() - digit) / 10) {
          return error(bad_header("a length in 'shape' is too large"));
        }
        value = value * 10 + digit;
        ++at_;
      }
      take('L');  // Python 2 wrote long integers so
      shape.push_back(value);
      if (shape.size() > kRankMax) return error(bad_header("more than 32 dimensions"));
      if (!take(',')) {
        if (!take(')')) return error(bad_header("'shape' has no closing ')'"));
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

struct ElementType {
  NpyType type;
  bool swapped;
};

// NumPy's name of the type `code` (without the byte order).
std::string_view numpy_name(std::string_view code) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"b1", "bool"},        {"i1", "int8"},      {"i2", "int16"},       {"u1", "uint8"},
      {"u4", "uint32"},      {"u8", "uint64"},    {"f2", "float16"},     {"f12", "longdouble"},
      {"f16", "longdouble"}, {"c8", "complex64"}, {"c16", "complex128"}, {"c32", "clongdouble"}};
  for (const auto& [known, name] : kNames) {
    if (known == code) return name;
  }
  switch (code.empty() ? '\0' : code.front()) {
    case 'O':
      return "Python objects";
    case 'M':
      return "datetime64";
    case 'm':
      return "timedelta64";
    case 'S':
    case 'a':
      return "bytes";
    case 'U':
      return "text";
    case 'V':
      return "void: raw bytes";
    default:
      return "unknown to this version";
  }
}

Result<ElementType> parse_descr(const std::string& descr) {
  std::string_view rest = descr;
  bool swapped = false;
  if (!rest.empty() && std::string_view("<>=|").find(rest[0]) != std::string_view::npos) {
    const bool big = rest[0] == '>';
    const bool little = rest[0] == '<';
    swapped = std::endian::native == std::endian::little ? big : little;
    rest.remove_prefix(1);
  }
  for (const NpyType type :
       {NpyType::kF4, NpyType::kF8, NpyType::kI4, NpyType::kI8, NpyType::kU2}) {
    if (npy_type_name(type) == rest) return ElementType{type, swapped};
  }
  return error(
      Code::kUnimplemented,
      fmt::format("entries of type '{}' ({}) are unsupported; save as f4, f8, i4, i8 or u2",
                  short_text(descr), numpy_name(rest)));
}

// Entries of a Fortran-ordered array, put into C order.
std::string to_c_order(std::string_view data, const std::vector<std::size_t>& shape,
                       std::size_t width) {
  std::string out(data.size(), '\0');
  std::vector<std::size_t> index(shape.size(), 0);
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t k = shape.size(); k-- > 1;) strides[k - 1] = strides[k] * shape[k];
  std::size_t offset = 0;  // entry number in C order of `index`
  for (std::size_t from = 0; from < data.size(); from += width) {
    std::memcpy(out.data() + offset * width, data.data() + from, width);
    for (std::size_t k = 0; k < shape.size(); ++k) {  // the first index runs fastest
      offset += strides[k];
      if (++index[k] < shape[k]) break;
      offset -= strides[k] * shape[k];
      index[k] = 0;
    }
  }
  return out;
}

void swap_bytes(std::string& bytes, std::size_t width) {
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + width));
  }
}

template <typename T>
T entry(const std::string& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T, typename Out>
void convert(const std::string& bytes, std::vector<Out>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Out>(entry<T>(bytes, i));
}

void convert_to_doubles(NpyType type, const std::string& bytes, std::vector<double>& out) {
  switch (type) {
    case NpyType::kF4:
      return convert<float>(bytes, out);
    case NpyType::kF8:
      return convert<double>(bytes, out);
    case NpyType::kI4:
      return convert<std::int32_t>(bytes, out);
    case NpyType::kI8:
      return convert<std::int64_t>(bytes, out);
    case NpyType::kU2:
      return convert<std::uint16_t>(bytes, out);
  }
}

// What comes before the numbers.
struct Preamble {
  ElementType element = {NpyType::kF8, false};
  Header header;
  std::size_t start = 0;  // of the numbers
  std::size_t size = 0;   // of the numbers, in bytes
};

// Bytes that say how long the header is. Errors: not .npy, or a version that is not known.
Result<std::size_t> prefix_size(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    if (bytes.size() < kMagic.size() && kMagic.starts_with(bytes)) {
      return error(Code::kDataLoss,
                   fmt::format("cut short: {} bytes, not even the magic word", bytes.size()));
    }
    return error(Code::kDataLoss, "not a .npy file: it does not start with \\x93NUMPY");
  }
  if (bytes.size() < 10) return error(Code::kDataLoss, "cut short within the first 10 bytes");
  const int major = static_cast<unsigned char>(bytes[6]),
            minor = static_cast<unsigned char>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return error(
        Code::kUnimplemented,
        fmt::format(".npy version {}.{} is not known; 1.0, 2.0 and 3.0 are", major, minor));
  }
  return major == 1 ? 10 : 12;
}

// REQUIRES: `bytes` begins with a prefix of that size.
std::size_t header_size(std::string_view bytes, std::size_t prefix) {
  std::size_t size = 0;
  for (std::size_t i = prefix; i-- > 8;) {
    size = size << 8 | static_cast<std::size_t>(static_cast<unsigned char>(bytes[i]));
  }
  return size;
}

Result<Preamble> parse_preamble(std::string_view bytes) {
  TAILOR_ASSIGN_OR_RETURN(const std::size_t prefix, prefix_size(bytes));
  if (bytes.size() < prefix) {
    return error(Code::kDataLoss, fmt::format("cut short within the first {} bytes", prefix));
  }
  const std::size_t length = header_size(bytes, prefix);
  if (bytes.size() - prefix < length) {
    return error(Code::kDataLoss, fmt::format("cut short within the header ({} of {} bytes)",
                                              bytes.size() - prefix, length));
  }
  Preamble preamble;
  TAILOR_ASSIGN_OR_RETURN(preamble.header, HeaderReader(bytes.substr(prefix, length)).read());
  TAILOR_ASSIGN_OR_RETURN(preamble.element, parse_descr(preamble.header.descr));
  preamble.start = prefix + length;
  preamble.size = npy_type_bytes(preamble.element.type);
  for (const std::size_t length_k : preamble.header.shape) {
    // A zero length makes the array empty however large the others are.
    if (length_k != 0 && preamble.size > std::numeric_limits<std::size_t>::max() / length_k) {
      return error(bad_header("'shape' describes more bytes than there can be"));
    }
    preamble.size *= length_k;
  }
  return preamble;
}

// Compares what the header promises with the bytes that are there.
Status check_size(std::size_t promised, std::size_t there) {
  if (there < promised) {
    return Status(Code::kDataLoss,
                  fmt::format("cut short: the header promises {} bytes of numbers, {} are there",
                              promised, there));
  }
  if (there > promised) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} bytes follow the {} bytes of numbers that the header promises",
                              there - promised, promised));
  }
  return Status::ok();
}

Result<NpyArray> parse(std::string_view bytes) {
  TAILOR_ASSIGN_OR_RETURN(const Preamble preamble, parse_preamble(bytes));
  const std::size_t width = npy_type_bytes(preamble.element.type);
  const std::string_view data = bytes.substr(preamble.start);
  TAILOR_RETURN_IF_ERROR(check_size(preamble.size, data.size()));
  NpyArray array;
  array.type = preamble.element.type;
  array.shape = preamble.header.shape;
  array.bytes = preamble.header.fortran_order && array.shape.size() > 1 && !data.empty()
                    ? to_c_order(data, array.shape, width)
                    : std::string(data);
  if (preamble.element.swapped) swap_bytes(array.bytes, width);
  return array;
}

// Bytes read from a file at a time, a multiple of every width.
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
// NumPy writes some hundred bytes.
constexpr std::size_t kHeaderBytesMax = std::size_t{1} << 20;

}  // namespace

std::string_view npy_type_name(NpyType type) {
  switch (type) {
    case NpyType::kF4:
      return "f4";
    case NpyType::kF8:
      return "f8";
    case NpyType::kI4:
      return "i4";
    case NpyType::kI8:
      return "i8";
    case NpyType::kU2:
      return "u2";
  }
  return "?";
}

std::size_t npy_type_bytes(NpyType type) {
  switch (type) {
    case NpyType::kF4:
    case NpyType::kI4:
      return 4;
    case NpyType::kF8:
    case NpyType::kI8:
      return 8;
    case NpyType::kU2:
      return 2;
  }
  return 1;
}

std::size_t NpyArray::size() const { return bytes.size() / npy_type_bytes(type); }

std::vector<double> NpyArray::to_doubles() const {
  std::vector<double> out(size());
  convert_to_doubles(type, bytes, out);
  return out;
}

Result<std::vector<std::int64_t>> NpyArray::to_integers() const {
  std::vector<std::int64_t> out(size());
  switch (type) {
    case NpyType::kI4:
      convert<std::int32_t>(bytes, out);
      return out;
    case NpyType::kI8:
      convert<std::int64_t>(bytes, out);
      return out;
    case NpyType::kU2:
      convert<std::uint16_t>(bytes, out);
      return out;
    case NpyType::kF4:
    case NpyType::kF8:
      break;
  }
  return error(
      Code::kInvalidArgument,
      fmt::format("the array holds {} numbers where integers are needed", npy_type_name(type)));
}

Result<NpyArray> parse_npy(std::string_view bytes, std::string_view name) {
  auto array = parse(bytes);
  if (!array) return error(array.error().with_context(name));
  return array;
}

Result<NpyArray> read_npy(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const std::string bytes, read_file(path));
  return parse_npy(bytes, path);
}

Result<NpyFile> NpyFile::open(const std::string& path) {
  NpyFile npy;
  npy.path_ = path;
  npy.file_.reset(std::fopen(path.c_str(), "rbe"));
  if (!npy.file_) return error(errno_status(errno, "open", path));
  struct stat info {};
  if (::fstat(::fileno(npy.file_.get()), &info) != 0)
    return error(errno_status(errno, "stat", path));
  if (S_ISDIR(info.st_mode)) {
    return error(Code::kInvalidArgument, fmt::format("{} is a directory, not a file", path));
  }
  const auto read_on = [&npy](std::string& bytes, std::size_t size) {
    const std::size_t had = bytes.size();
    bytes.resize(size);
    bytes.resize(had + std::fread(bytes.data() + had, 1, size - had, npy.file_.get()));
  };
  std::string start;
  read_on(start, 12);
  if (std::ferror(npy.file_.get())) return error(errno_status(errno, "read", path));
  auto prefix = prefix_size(start);
  if (!prefix) return error(prefix.error().with_context(path));
  if (start.size() >= *prefix) {
    const std::size_t length = header_size(start, *prefix);
    if (length > kHeaderBytesMax) {
      return error(
          bad_header(fmt::format("it is {} bytes long; up to {} are read", length, kHeaderBytesMax))
              .with_context(path));
    }
    read_on(start, std::max(start.size(), *prefix + length));
  }
  auto preamble = parse_preamble(start);
  if (!preamble) return error(preamble.error().with_context(path));
  const std::size_t width = npy_type_bytes(preamble->element.type);
  if (S_ISREG(info.st_mode)) {
    const auto there = static_cast<std::size_t>(info.st_size);
    const Status status = check_size(preamble->size, there - std::min(there, preamble->start));
    if (!status.is_ok()) return error(status.with_context(path));
  }
  npy.type_ = preamble->element.type;
  npy.swapped_ = preamble->element.swapped;
  npy.fortran_order_ = preamble->header.fortran_order;
  npy.shape_ = preamble->header.shape;
  npy.size_ = preamble->size / width;
  npy.block_ = start.substr(preamble->start);  // numbers that were read with a very short header
  return npy;
}

double NpyFile::spacing() const {
  return type_ == NpyType::kF4 ? kFloat32Spacing : kFloat64Spacing;
}

Result<std::span<const double>> NpyFile::next() {
  const std::size_t width = npy_type_bytes(type_);
  const std::size_t wanted = std::min(kBlockBytes, (size_ - taken_) * width);
  const std::size_t had = block_.size();
  if (wanted > had) {
    block_.resize(wanted);
    const std::size_t got = std::fread(block_.data() + had, 1, wanted - had, file_.get());
    if (std::ferror(file_.get())) return error(errno_status(errno, "read", path_));
    if (had + got < wanted) {
      return error(check_size(size_ * width, taken_ * width + had + got).with_context(path_));
    }
  }
  if (wanted == 0 && (had > 0 || std::fgetc(file_.get()) != EOF)) {
    return error(
        Code::kInvalidArgument,
        fmt::format("{}: more bytes follow the {} bytes of numbers that the header promises", path_,
                    size_ * width));
  }
  const std::string rest = block_.substr(std::min(wanted, block_.size()));
  block_.resize(wanted);
  if (swapped_) swap_bytes(block_, width);
  numbers_.resize(wanted / width);
  convert_to_doubles(type_, block_, numbers_);
  block_ = rest;
  taken_ += numbers_.size();
  return std::span<const double>(numbers_);
}

std::size_t NpyFile::place(std::size_t k) const {
  if (!fortran_order_ || shape_.size() < 2) return k;
  std::size_t place = 0, stride = size_;
  for (const std::size_t length : shape_) {  // the first index runs fastest in the file
    stride /= length;
    place += k % length * stride;
    k /= length;
  }
  return place;
}

template <typename Take>
Status NpyFile::take_all(const Take& take) {
  std::size_t at = taken_;
  while (true) {
    auto numbers = next();
    if (!numbers) return numbers.error();
    if (numbers->empty()) {
      block_ = std::string();
      numbers_ = std::vector<double>();
      return Status::ok();
    }
    if (!fortran_order_ || shape_.size() < 2) {
      for (const double number : *numbers) take(at++, number);
    } else {
      for (const double number : *numbers) take(place(at++), number);
    }
  }
}

Result<std::vector<double>> NpyFile::doubles() {
  std::vector<double> out(size_);
  TAILOR_RETURN_IF_ERROR(take_all([&out](std::size_t at, double number) { out[at] = number; }));
  return out;
}

Result<std::vector<float>> NpyFile::floats(
    bool& rounded, const std::function<std::string(std::size_t)>& name_entry) {
  std::vector<float> out(size_);
  std::optional<std::pair<std::size_t, double>> bad;  // the first in C order
  TAILOR_RETURN_IF_ERROR(take_all([&](std::size_t at, double number) {
    if (!(std::abs(number) <= std::numeric_limits<float>::max())) {
      if (!bad || at < bad->first) bad = {at, number};
      return;
    }
    out[at] = static_cast<float>(number);
    if (static_cast<double>(out[at]) != number) rounded = true;
  }));
  if (bad) {
    return error(
        Code::kInvalidArgument,
        fmt::format("{}: {} is {}; every coordinate must be a finite number within the range of "
                    "float32",
                    path_, name_entry(bad->first), bad->second));
  }
  return out;
}

Result<Cloud> read_npy_cloud(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(NpyFile file, NpyFile::open(path));
  if (file.shape().size() != 2) {
    return error(
        Code::kInvalidArgument,
        fmt::format("{}: a cloud has two dimensions, points by coordinates; this array has "
                    "{}",
                    path, file.shape().size()));
  }
  Cloud cloud;
  TAILOR_ASSIGN_OR_RETURN(cloud.values, file.doubles());
  cloud.count = file.shape()[0];
  cloud.dimension = file.shape()[1];
  return cloud;
}

std::string format_npy(const NpyArray& array) {
  std::size_t size = npy_type_bytes(array.type);
  std::string shape = "(";
  for (const std::size_t length : array.shape) {
    size *= length;
    shape += fmt::format("{}, ", length);
  }
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  if (array.shape.size() == 1) shape.pop_back();
  shape += ")";
  TAILOR_CHECK(array.bytes.size() == size, "{} bytes for a shape of {}", array.bytes.size(), size);
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': {}, }}",
                                   '<', npy_type_name(array.type), shape);
  const std::size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append((64 - unpadded % 64) % 64, ' ');
  header += '\n';
  std::string out(kMagic);
  out += '\x01';
  out += '\x00';
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  std::string data = array.bytes;
  if constexpr (std::endian::native == std::endian::big) {
    swap_bytes(data, npy_type_bytes(array.type));
  }
  return out + data;
}

std::string format_npy(std::span<const double> values, std::span<const std::size_t> shape) {
  NpyArray array;
  array.type = NpyType::kF8;
  array.shape.assign(shape.begin(), shape.end());
  array.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return format_npy(array);
}

Status write_npy(const std::string& path, const NpyArray& array) {
  return write_file_atomic(path, format_npy(array));
}

Status write_npy(const std::string& path, std::span<const double> values,
                 std::span<const std::size_t> shape) {
  return write_file_atomic(path, format_npy(values, shape));
}

}  // namespace tailor::geometry
