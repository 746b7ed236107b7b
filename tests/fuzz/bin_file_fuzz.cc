// The .bin files of nanoGPT and llm.c: what opens can be read to its end and no further.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "model/data/bin_file.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

int scratch_descriptor() {
  static const int descriptor = ::memfd_create("bin_file_fuzz", MFD_CLOEXEC);
  expect(descriptor >= 0, "there is memory for one file");
  return descriptor;
}

void check(std::string_view bytes, data::BinFormat format, std::uint32_t id_bytes) {
  static const std::string path = "/proc/self/fd/" + std::to_string(scratch_descriptor());
  expect(::ftruncate(scratch_descriptor(), 0) == 0 &&
             ::pwrite(scratch_descriptor(), bytes.data(), bytes.size(), 0) ==
                 static_cast<ssize_t>(bytes.size()),
         "the file can be written");
  const auto file = data::BinFile::open(path, format, id_bytes);
  if (!file) {
    expect(file.error().message().find(path) != std::string::npos, "errors name the file");
    return;
  }
  const data::BinInfo& info = file->info();
  expect(info.format != data::BinFormat::kAuto, "the format is known");
  expect(info.token_bytes == 2 || info.token_bytes == 4, "ids have 2 or 4 bytes");
  expect(info.token_count > 0, "there are ids");
  expect(info.header_bytes + info.token_count * info.token_bytes == bytes.size(),
         "the count fits the file");
  std::vector<std::uint32_t> ids(info.token_count);
  expect(file->read(0, ids).is_ok(), "all ids can be read");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::uint32_t id = 0;
    std::memcpy(&id, bytes.data() + info.header_bytes + i * info.token_bytes, info.token_bytes);
    expect(ids[i] == id, "ids are as they are stored");
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds = {std::string("\x05\x00\x07\x00\xff\xff", 6)};
  for (const auto& [magic, version, count, width] :
       {std::array<std::int32_t, 4>{20240520, 1, 3, 2}, {20240801, 7, 2, 4}}) {
    std::string bytes(1024 + static_cast<std::size_t>(count * width), '\1');
    const std::int32_t header[] = {magic, version, count};
    std::memcpy(bytes.data(), header, sizeof header);
    seeds.push_back(std::move(bytes));
  }
  return seeds;
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace tailor;
  for (const auto format :
       {data::BinFormat::kAuto, data::BinFormat::kNanoGpt, data::BinFormat::kLlmC}) {
    for (const std::uint32_t id_bytes : {2u, 4u}) {
      fuzz::check(fuzz::as_text(input, size), format, id_bytes);
    }
  }
  return 0;
}
