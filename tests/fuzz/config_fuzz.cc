// The coordinator's TOML, and what people write in configs and on command lines: counts, sizes,
// durations, ids.
#include <cmath>

#include "base/ids.h"
#include "base/text.h"
#include "coordinator/config.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {

std::vector<std::string> fuzz_seeds() {
  std::string keys = "a";
  for (int i = 0; i < 200'000; ++i) keys += ".a";
  return {
      "listen = \"127.0.0.1:7070\"\nhttp = \"127.0.0.1:7071\"\ndata_dir = \"d\"\nlease = \"30 "
      "s\"\n",
      "[" + keys + "]\n",
      "20 GiB",
      "0.5M",
      "1e5junk",
      "0x10",
      "-1 s",
      "10 min",
      "t41",
      "t1x",
      "cuda:0"};
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  using fuzz::expect;
  const std::string_view text = fuzz::as_text(data, size);
  if (const auto config = coordinator::parse_config(text, "fuzz.toml", {}); !config) {
    expect(config.error().message().find("fuzz.toml") != std::string::npos, "errors name the file");
    expect(config.error().message().size() < 4000, "messages are short");
  }
  if (size < 64) {
    if (const auto count = parse_count(text)) expect(std::isfinite(*count), "a count is a number");
    (void)parse_bytes(text);
    if (const auto ms = parse_duration_ms(text))
      expect(*ms <= 9'000'000'000'000'000, "a duration fits");
    if (const auto id = TrialId::parse(text)) {
      expect(TrialId::parse(id->to_string()) == id, "an id reads back");
    }
    if (const auto index = cuda_index(text)) expect(*index >= 0, "a device has a number");
  }
  expect(escape_controls(text).find('\x1b') == std::string::npos, "nothing drives the terminal");
  return 0;
}
