// Text files, plain and compressed: whatever lies in one, reading it ends, and every piece is
// UTF-8.
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "model/data/corpus.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temporary_folder.h"

namespace tailor::fuzz {
namespace {

std::string zstd_of(const std::string& text, int window_log, bool checksum) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, checksum ? 1 : 0);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

std::string gzip_of(const std::string& text) {
  z_stream stream{};
  expect(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib");
  std::string in = text;
  std::string out(text.size() + 256, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void check(std::string_view bytes, const std::string& name) {
  static const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  const auto listing = data::list_corpus({path});
  expect(listing.has_value(), "a regular file can be listed");
  for (const bool skip_bad : {false, true}) {
    data::CorpusOptions options;
    options.skip_bad = skip_bad;
    options.piece_bytes = 64;
    options.zstd_window_log = 20;  // or the fuzzer's memory would be the limit
    std::uint64_t text_bytes = 0;
    const auto read = data::read_corpus(listing->files, options, [&](data::CorpusPiece&& piece) {
      expect(is_valid_utf8(piece.text), "pieces are UTF-8");
      text_bytes += piece.text.size();
      return text_bytes < (16u << 20) ? Status::ok() : Status(Code::kCancelled, "enough");
    });
    if (!read) {
      expect(read.error().code() == Code::kCancelled ||
                 read.error().message().find(name) != std::string::npos,
             "errors name the file");
      continue;
    }
    expect(read->bytes == text_bytes, "the summary counts the text");
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const std::string text = "\xEF\xBB\xBFGrass is green.\nna\xC3\xAFve\n";
  const std::string lines = "\xEF\xBB\xBF{\"text\": \"a\\ufeff\"}\n\n{\"text\": \"b\"}\n";
  const std::string skippable("\x50\x2A\x4D\x18\x03\0\0\0abc", 11);
  std::string wide = zstd_of(text, 20, false);
  wide[5] = static_cast<char>(21 << 3 | 1);
  std::string deep = "{\"x\":";
  for (int i = 0; i < 100'000; ++i) deep += "[{\"a\":";
  return {text,
          deep,
          lines,
          "[" + lines + "]",
          std::string("\xFF\xFEh\0i\0", 6),
          std::string("h\0i\0j\0k\0l\0", 10),
          gzip_of(text),
          gzip_of(lines) + gzip_of(lines) + std::string(9, '\0'),
          gzip_of(text) + "garbage",
          zstd_of(text, 10, true),
          skippable + zstd_of(lines, 20, true) + zstd_of(lines, 12, false),
          wide};
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace tailor;
  for (const char* name :
       {"f.txt", "f.jsonl", "f.txt.gz", "f.ndjson.gz", "f.md.zst", "f.json.zst"}) {
    fuzz::check(fuzz::as_text(input, size), name);
  }
  return 0;
}
