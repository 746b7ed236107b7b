// Sweep files: any text is a Spec or an error with the file's name, in bounded depth, time and
// memory.
#include <sstream>

#include "base/file.h"
#include "base/toml_limits.h"
#include "sweep/spec.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

std::string nested(std::string_view open, std::string_view close, int depth) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

constexpr std::string_view kHead = R"(name = "a"
objectives = ["validation_loss", "tokens_per_second:max"]
baseline = "b"
[data]
train = "t-*.tokens"
validation = ["v.tokens"]
sequence_length = 64
[architecture]
family = "llama"
d_model = 64
layers = 2
head_dim = 16
ffn = { kind = "swiglu", d_h = 96 }
[budget]
parameters = "same as baseline"
counts = "body"
solve_for = "d_h"
[[candidate]]
name = "b"
[[candidate]]
name = "c"
schedule = { kind = "cosine", high = 1.5, low = 0.5 }
[space]
constraints = ["25 <= d_model / layers <= 500 and not d_model % 64 == 0"]
"ffn.k" = [1, 2]
layers = { min = 1, max = 4 }
[train]
tokens = "1M"
lr = { min = 1e-4, max = 1e-2, scale = "log" }
)";

}  // namespace

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds = {std::string(kHead)};
  // What once overran the stack: one header, key, list or table of any depth.
  const std::string head(kHead);
  std::string keys = "a";
  for (int i = 0; i < 200'000; ++i) keys += ".a";
  seeds.push_back("[{a.b=}]");  // toml++ aborted
  seeds.push_back(head + "[" + keys + "]\n");
  seeds.push_back(head + "[[" + keys + "]]\n");
  seeds.push_back(head + keys + " = 1\n");
  seeds.push_back(head + "x = { " + keys + " = 1 }\n");
  seeds.push_back(head + "x = " + nested("[", "]", 200'000) + "\n");
  seeds.push_back(head + "x = " + nested("{a = ", "}", 200'000) + "\n");
  seeds.push_back("constraints = [\"" + nested("(", ")", 1000) + " < 2\"]\n" + head);
  return seeds;
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  const std::string_view text = fuzz::as_text(data, size);
  const auto spec = sweep::parse(text, "fuzz.toml", "/base");
  if (!spec) {
    fuzz::expect(spec.error().message().find("fuzz.toml") != std::string::npos,
                 "errors name the file");
    fuzz::expect(spec.error().message().size() < 4000, "messages are short");
  } else {
    fuzz::expect(!find_toml_excess(text), "what is accepted keeps the limits");
    fuzz::expect(!spec->name.empty(), "a sweep has a name");
  }
  return 0;
}
