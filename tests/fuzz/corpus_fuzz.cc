// Corpora as they lie on disk, compressed or not: what is read is UTF-8, and its length is what the
// summary says; what is refused is refused with the file's name.
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "model/data/corpus.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

std::string path_of(const std::string& name) {
  static const struct Folder {
    Folder() {
      path = (std::filesystem::temp_directory_path() /
              ("tailor-fuzz-corpus-" + std::to_string(::getpid())))
                 .string();
      std::filesystem::create_directories(path);
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    std::string path;
  } folder;
  return folder.path + "/" + name;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void read_as(const std::string& name, std::string_view bytes, bool skips) {
  const std::string path = path_of(name);
  std::ofstream(path, std::ios::binary) << bytes;
  data::CorpusOptions options;
  options.skip_bad = skips;
  options.piece_bytes = 1 << 16;
  std::uint64_t bytes_read = 0;
  const auto sink = [&](data::CorpusPiece&& piece) {
    expect(is_valid_utf8(piece.text), "documents are UTF-8");
    bytes_read += piece.text.size();
    // A few bytes of zstd become gigabytes of text: that is the writer's right, and not this test's
    // time.
    return bytes_read < (64u << 20) ? Status::ok() : Status(Code::kCancelled, path + " is enough");
  };
  const auto summary = data::read_corpus({{path, name, bytes.size()}}, options, sink);
  if (!summary) {
    expect(summary.error().message().find(name) != std::string::npos, "errors name the file");
  } else {
    expect(summary->bytes == bytes_read, "the summary counts what was read");
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const std::string lines =
      "{\"text\":\"one\",\"n\":[1,{\"x\":null}]}\n{\"id\":7,\"text\":\"\\u00e9\\ud834\\udd1e\"}\n\n"
      "{\"text\":\"\"}\n";
  std::string deep = "{\"x\":";
  for (int i = 0; i < 100'000; ++i) deep += "[{\"a\":";
  return {
      lines, zstd(lines), gzip(lines), gzip(lines) + gzip(lines), zstd(std::string(1 << 20, 'a')),
      deep};
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  const std::string_view text = fuzz::as_text(data, size);
  const bool compressed = text.starts_with("\x1f\x8b") || text.starts_with("\x28\xb5\x2f\xfd");
  const bool skips = size % 2 == 0;
  if (!compressed) {
    fuzz::read_as("a.jsonl", text, skips);
    fuzz::read_as("a.txt", text, skips);
  } else if (text.starts_with("\x1f")) {
    fuzz::read_as("a.jsonl.gz", text, skips);
  } else {
    fuzz::read_as("a.jsonl.zst", text, skips);
  }
  return 0;
}
