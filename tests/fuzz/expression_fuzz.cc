// Constraints: any text is a condition, which can be evaluated, or an error.
#include "sweep/expression.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {

std::vector<std::string> fuzz_seeds() {
  std::string sums = "a", negations = "not a < 1", minus = "a", powers = "1 < a", parts = "a";
  for (int i = 0; i < 900; ++i) {
    sums += "+a";
    negations = "not " + negations;
    minus = "-" + minus;
    powers += " < a";
    parts = "(" + parts + ")";
  }
  return {"25 <= d_model / layers <= 500 and d_model % 64 == 0",
          "not (ffn.k > 1 or heads != 4) and -d_h * 2.5e3 < 1_000",
          "1 / 0 < 2",
          sums + " < 1",
          negations,
          minus + " < 1",
          powers,
          parts + " < 1"};
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  const auto condition = sweep::Expression::parse(fuzz::as_text(data, size));
  if (!condition) {
    fuzz::expect(!condition.error().message().empty() && condition.error().message().size() < 5000,
                 "an error says something, shortly");
    return 0;
  }
  for (const double value : {0.0, 1.0, -3.5, 1e300}) {
    (void)condition->holds([&](std::string_view) { return value; });
  }
  return 0;
}
