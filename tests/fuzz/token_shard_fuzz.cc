// Token shards: as they are, and with the header's check put right so that the fields behind it are
// reached. What opens can be read to its end and no further.
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "model/data/token_shard.h"
#include "model/data/token_shard_format.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

namespace format = data::shard_format;

// One file in memory, written anew for every input: thousands of files on a disk would be slow.
int scratch_descriptor() {
  static const int descriptor = ::memfd_create("token_shard_fuzz", MFD_CLOEXEC);
  expect(descriptor >= 0, "there is memory for one file");
  return descriptor;
}

const std::string& scratch() {
  static const std::string path = "/proc/self/fd/" + std::to_string(scratch_descriptor());
  return path;
}

void check(std::string_view bytes) {
  expect(::ftruncate(scratch_descriptor(), 0) == 0 &&
             ::pwrite(scratch_descriptor(), bytes.data(), bytes.size(), 0) ==
                 static_cast<ssize_t>(bytes.size()),
         "the file can be written");
  const auto reader = data::TokenShardReader::open(scratch());
  if (!reader) {
    expect(reader.error().message().find(scratch()) != std::string::npos, "errors name the file");
    return;
  }
  const data::TokenShardInfo& info = reader->info();
  expect(info.token_bytes == 2 || info.token_bytes == 4, "ids have 2 or 4 bytes");
  expect(format::kHeaderBytes + info.token_count * info.token_bytes == bytes.size(),
         "the count fits the file");
  std::vector<std::uint32_t> ids(info.token_count);
  if (reader->read(0, ids).is_ok()) {
    for (const std::uint32_t id : ids) expect(id < info.vocab_size, "ids are below the vocabulary");
  }
  (void)reader->verify().is_ok();
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const std::uint32_t vocab : {300u, 100000u}) {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("tailor-fuzz-" + std::to_string(::getpid())))
            .string();
    auto writer = data::TokenShardWriter::create(path, vocab, 2, sha256_hex("tokenizer"));
    expect(writer.has_value(), "a shard can be started");
    const std::vector<std::uint32_t> ids = {5, 7, 299, 2, 11, 2};
    expect(writer->append(ids, 12, 2).is_ok() && writer->finish().has_value(), "and finished");
    seeds.push_back(read_file(path).value_or(""));
    ::unlink(path.c_str());
  }
  return seeds;
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace tailor;
  namespace format = data::shard_format;
  const std::string_view bytes = fuzz::as_text(input, size);
  fuzz::check(bytes);
  if (size < format::kHeaderBytes) return 0;
  std::string checked(bytes);
  const std::string digest = sha256_hex(bytes.substr(0, format::kHeaderCheckOffset));
  for (std::size_t i = 0; i < 8; ++i) {
    checked[format::kHeaderCheckOffset + i] =
        static_cast<char>(std::stoi(digest.substr(2 * i, 2), nullptr, 16));
  }
  fuzz::check(checked);
  return 0;
}
