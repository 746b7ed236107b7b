// The .npy reader: what it accepts has as many bytes as its shape says and survives being written.
#include "geometry/npy.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

std::string file(const std::string& header, const std::string& data, int major = 1) {
  std::string out("\x93NUMPY", 6);
  out += static_cast<char>(major);
  out += '\0';
  out += static_cast<char>(header.size() & 0xff);
  out += static_cast<char>(header.size() >> 8);
  if (major > 1) out += std::string(2, '\0');
  return out + header + data;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const std::string data(
      "\0\0\x80\x3f\0\0\0\xc0\x01\x02\x03\x04\x05\x06\x07\x08"
      "\xff\xff\x7f\x7f\0\0\xc0\x7f",
      24);
  return {
      file("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }\n", data),
      file("{'descr': '>f8', 'fortran_order': True, 'shape': (3, 1), }\n", data, 2),
      file("{'descr': '<u2', 'fortran_order': True, 'shape': (2, 3, 2), }\n", data, 3),
      file("{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }   \n", data),
      file("{'descr': '<i4', 'fortran_order': False, 'shape': (), }\n", data.substr(0, 4)),
      file("{'shape': (0, 2), 'descr': \"<f8\", 'fortran_order': False}\n", ""),
      file("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n", data),
      file("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }\n", data),
  };
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  using fuzz::expect;
  const auto array = geometry::parse_npy(fuzz::as_text(data, size), "fuzz.npy");
  if (!array) {
    expect(array.error().message().find("fuzz.npy") != std::string::npos, "errors name the file");
    return 0;
  }
  expect(array->bytes.size() == array->size() * geometry::npy_type_bytes(array->type),
         "the bytes fit the shape");
  expect(array->bytes.size() <= size, "nothing is made up");
  expect(array->to_doubles().size() == array->size(), "to_doubles has every entry");
  const auto integers = array->to_integers();
  expect(!integers || integers->size() == array->size(), "to_integers has every entry");
  const auto again = geometry::parse_npy(geometry::format_npy(*array), "again");
  expect(again.has_value(), "what was read can be written and read");
  expect(again->type == array->type && again->shape == array->shape && again->bytes == array->bytes,
         "writing and reading change nothing");
  return 0;
}
