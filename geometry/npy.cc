// The .npy format: a small recursive reader for the header's dictionary,
// then a copy of the entries.
#include "geometry/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"

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

Result<NpyArray> parse(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    if (bytes.size() < kMagic.size() && kMagic.starts_with(bytes)) {
      return error(Code::kDataLoss,
                   fmt::format("cut short: {} bytes, not even the magic word", bytes.size()));
    }
    return error(Code::kDataLoss, "not a .npy file: it does not start with \\x93NUMPY");
  }
  if (bytes.size() < 10) return error(Code::kDataLoss, "cut short within the first 10 bytes");
  const auto byte = [bytes](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i]));
  };
  const std::size_t major = byte(6);
  if (major < 1 || major > 3 || byte(7) != 0) {
    return error(
        Code::kUnimplemented,
        fmt::format(".npy version {}.{} is not known; 1.0, 2.0 and 3.0 are", major, byte(7)));
  }
  std::size_t header_size = byte(8) | byte(9) << 8;
  std::size_t start = 10;
  if (major > 1) {
    if (bytes.size() < 12) return error(Code::kDataLoss, "cut short within the first 12 bytes");
    header_size |= byte(10) << 16 | byte(11) << 24;
    start = 12;
  }
  if (bytes.size() - start < header_size) {
    return error(Code::kDataLoss, fmt::format("cut short within the header ({} of {} bytes)",
                                              bytes.size() - start, header_size));
  }
  TAILOR_ASSIGN_OR_RETURN(const Header header,
                          HeaderReader(bytes.substr(start, header_size)).read());
  TAILOR_ASSIGN_OR_RETURN(const ElementType element, parse_descr(header.descr));

  const std::size_t width = npy_type_bytes(element.type);
  const std::string_view data = bytes.substr(start + header_size);
  std::size_t size = width;
  for (const std::size_t length : header.shape) {
    // A zero length makes the array empty however large the others are.
    if (length != 0 && size > std::numeric_limits<std::size_t>::max() / length) {
      return error(bad_header("'shape' describes more bytes than there can be"));
    }
    size *= length;
  }
  if (data.size() < size) {
    return error(Code::kDataLoss,
                 fmt::format("cut short: the header promises {} bytes of numbers, {} are there",
                             size, data.size()));
  }
  if (data.size() > size) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} bytes follow the {} bytes of numbers that the header promises",
                             data.size() - size, size));
  }
  NpyArray array;
  array.type = element.type;
  array.shape = header.shape;
  array.bytes = header.fortran_order && header.shape.size() > 1 && size != 0
                    ? to_c_order(data, header.shape, width)
                    : std::string(data);
  if (element.swapped) swap_bytes(array.bytes, width);
  return array;
}

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
  switch (type) {
    case NpyType::kF4:
      convert<float>(bytes, out);
      break;
    case NpyType::kF8:
      convert<double>(bytes, out);
      break;
    case NpyType::kI4:
      convert<std::int32_t>(bytes, out);
      break;
    case NpyType::kI8:
      convert<std::int64_t>(bytes, out);
      break;
    case NpyType::kU2:
      convert<std::uint16_t>(bytes, out);
      break;
  }
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

Result<Cloud> read_npy_cloud(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const NpyArray array, read_npy(path));
  if (array.shape.size() != 2) {
    return error(
        Code::kInvalidArgument,
        fmt::format("{}: a cloud has two dimensions, points by coordinates; this array has "
                    "{}",
                    path, array.shape.size()));
  }
  Cloud cloud;
  cloud.values = array.to_doubles();
  cloud.count = array.shape[0];
  cloud.dimension = array.shape[1];
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
