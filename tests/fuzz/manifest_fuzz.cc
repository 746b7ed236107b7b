// dataset.json: as it is, and with its check put right so that the fields behind it are reached.
// What is read can be written and read again.
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "model/data/manifest.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

void check(std::string_view bytes) {
  const auto manifest = data::parse_manifest(bytes, "fuzz.json");
  if (!manifest) {
    expect(manifest.error().message().find("fuzz.json") != std::string::npos,
           "errors name the file");
    return;
  }
  for (const data::ManifestTokenizerFile& file : manifest->tokenizer.files) {
    expect(file.file.starts_with("tokenizer"), "files of the tokenizer lie in the folder");
  }
  expect(manifest->tokenizer.eos_id < manifest->tokenizer.vocab_size, "EOS is an id");
  for (const data::ManifestSplit& split : manifest->splits) {
    for (const data::ManifestShard& shard : split.shards) {
      expect(shard.file.find('/') == std::string::npos, "shards lie in the folder");
      expect(shard.sha256.size() == 64, "hashes are whole");
    }
  }
  const std::string again = data::format_manifest(*manifest);
  const auto twice = data::parse_manifest(again, "fuzz.json");
  expect(twice.has_value() && *twice == *manifest, "what was read survives being written");
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  data::DatasetManifest manifest;
  manifest.tokenizer = {"bytes", sha256_hex("t"), 257, 256, {}, {}};
  manifest.settings = {{"made_by", "prepare"}, {"shard_tokens", "100"}};
  manifest.splits[0].shards = {{"train-00000.tokens", sha256_hex("a"), 10, 2, 8, 148, 256},
                               {"train-00001.tokens", sha256_hex("b"), 4, 1, 3, 136, 97}};
  manifest.sources = {{"a.txt", 11, sha256_hex("s"), 1, 0, 11, 0, false},
                      {"b.jsonl", 20, sha256_hex("u"), 2, 1, 9, 3, true}};
  const std::string first = data::format_manifest(manifest);
  manifest.tokenizer.bos_id = 0;
  manifest.tokenizer.files = {{"tokenizer.json", 7, sha256_hex("f")}};
  manifest.passed_over = {{".png", 2, "a.png"}};
  manifest.warnings = {"a sentence"};
  return {first, data::format_manifest(manifest), data::format_manifest({}), "{}", "[[[[[[[["};
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace tailor;
  using Json = nlohmann::ordered_json;
  const std::string_view bytes = fuzz::as_text(input, size);
  fuzz::check(bytes);
  Json json = Json::parse(bytes, nullptr, false);
  if (!json.is_object() || !json.contains("check")) return 0;
  json.erase("check");
  // Only what is flat: the writer of JSON goes down by recursion.
  if (bytes.find("[[[") != std::string_view::npos || bytes.find("{{{") != std::string_view::npos) {
    return 0;
  }
  const auto replace = Json::error_handler_t::replace;
  json["check"] = sha256_hex(json.dump(-1, ' ', false, replace));
  fuzz::check(json.dump(1, ' ', false, replace));
  return 0;
}
