// JsonText beside nlohmann's parser: the same text, and the same lines refused (but for what
// JsonText refuses on purpose, and for numbers that are too large for nlohmann).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "model/data/json_text.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

/// What JsonText says of a line that comes in parts of `step` bytes, cut between characters.
std::string read(std::string_view line, std::size_t step, std::string* text) {
  data::JsonText json("text");
  json.start();
  while (!line.empty()) {
    std::size_t size = std::min(step, line.size());
    while (size < line.size() && (static_cast<unsigned char>(line[size]) & 0xC0) == 0x80) ++size;
    const std::string_view wrong = json.feed(line.substr(0, size), text);
    if (!wrong.empty()) return std::string(wrong);
    line.remove_prefix(size);
  }
  return std::string(json.finish());
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"text":"a","n":[1,-2.5e3,true,false,null,{"x":{}}]})",
      R"({"id":7,"text":"\u00e9\ud834\udd1e\n\"\\","z":"\/"})",
      R"({"meta":{"text":1},"text":"größe 𝄞"})",
      R"({"text":"a","text":"b"})",
      R"([{"text":"a"}])",
      std::string("{\"text\":\"a\"}\0", 13),
  };
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace tailor;
  using fuzz::expect;
  const std::string_view line = fuzz::as_text(input, size);
  if (!is_valid_utf8(line) || line.starts_with("\xEF\xBB\xBF")) return 0;
  std::string text;
  const std::string wrong = fuzz::read(line, size, &text);
  for (const std::size_t step : {1, 3, 7}) {
    std::string other;
    const std::string other_wrong = fuzz::read(line, step, &other);
    expect(other_wrong == wrong && (!wrong.empty() || other == text), "parts do not matter");
  }
  if (line.find('\0') != line.npos) {  // the end of its text to nlohmann
    expect(!wrong.empty(), "a NUL is refused");
    return 0;
  }
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  const bool good = parsed.is_object() && parsed.contains("text") && parsed["text"].is_string();
  if (wrong.empty()) {
    if (parsed.is_discarded()) {
      // 1e999 is a number by the grammar.
      expect(line.find_first_of("0123456789") != std::string_view::npos, "what is read is JSON");
    } else {
      expect(good && parsed["text"].get<std::string>() == text, "the text is the parser's");
    }
  } else if (good) {
    const bool on_purpose = wrong.find("two such members") != std::string::npos ||
                            wrong.find("nested too deeply") != std::string::npos ||
                            wrong.find("it is no string") != std::string::npos;  // the first of two
    expect(on_purpose, "what a parser reads is read");
  }
  return 0;
}
