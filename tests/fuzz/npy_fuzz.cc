// The .npy readers: what they accept has as many bytes as its shape says and survives being
// written; both say the same.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

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
      file("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 8), }\n", data),
      file("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }\n", data),
  };
}

namespace {

// The same bytes as a file: the reader that takes them a block at a time must say the same.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("npy", MFD_CLOEXEC)) {
    expect(descriptor_ >= 0, "a file in memory can be made");
    expect(::write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
           "a file in memory can be written");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void expect_file_reader_refuses(std::string_view bytes) {
  const MemoryFile memory(bytes);
  auto file = geometry::NpyFile::open(memory.path());
  expect(!file || !file->doubles(), "what one reader refuses the other refuses");
}

void expect_file_reader_agrees(std::string_view bytes, const geometry::NpyArray& array) {
  const MemoryFile memory(bytes);
  auto file = geometry::NpyFile::open(memory.path());
  expect(file.has_value() && file->shape() == array.shape && file->size() == array.size(),
         "the header is read alike");
  const auto values = file->doubles();
  expect(values.has_value(), "the numbers are read");
  const std::vector<double> all = array.to_doubles();
  expect(values->size() == all.size() &&
             (all.empty() ||
              std::memcmp(values->data(), all.data(), all.size() * sizeof(double)) == 0),
         "both readers give the same numbers");
}

}  // namespace
}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  using fuzz::expect;
  const auto array = geometry::parse_npy(fuzz::as_text(data, size), "fuzz.npy");
  if (!array) {
    fuzz::expect_file_reader_refuses(fuzz::as_text(data, size));
    expect(array.error().message().find("fuzz.npy") != std::string::npos, "errors name the file");
    return 0;
  }
  fuzz::expect_file_reader_agrees(fuzz::as_text(data, size), *array);
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
