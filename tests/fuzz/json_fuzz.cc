// base/json and what reads through it without files: what is accepted writes itself as JSON that
// reads back to the same value, and no reader built on it goes down.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "geometry/work_profile_json.h"
#include "model/shape/architecture.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"a":[1,-2,2.5e3,true,false,null,"\u00e9\ud834\udd1e"],"b":{"c":{},"d":[]}})",
      R"([18446744073709551615,-9223372036854775808,18446744073709551616,1e308,-0,"x"])",
      "\xEF\xBB\xBF {} \n",
      std::string("{}\0garbage", 10),
      R"({"a":1,"a":2})",
      std::string(1000, '[') + std::string(1000, ']'),
      R"({"family":"llama","d_model":64,"heads":4,"kv_heads":2,"head_dim":16,"vocab_size":256,)"
      R"("tie_embeddings":true,"ffn_kind":"hourglass","ffn_norm":"per_sub",)"
      R"("ffn_outer_residual":false,)"
      R"("widths":[[24,16],[16,8]],"rope_theta":10000,"norm_eps":1e-05})",
      R"({"format":"tailor work profile","version":1,"tokens":9,"subsamples":1,"rho":0.7,"seed":1,)"
      R"("dropped":0,"entries":[{"layer":0,"sub_block":-1,"geometry":"euclidean",)"
      R"("statistic":"topology",)"
      R"("value":1.5,"standard_error":0.1}],"subsample_positions":[[1,2]]})",
  };
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  using fuzz::expect;
  const std::string_view text = fuzz::as_text(data, size);
  const auto value = parse_json(text);
  const auto ordered = parse_ordered_json(text);
  expect(value.has_value() == ordered.has_value() && value.has_value() == check_json(text).is_ok(),
         "all three readers accept the same texts");
  if (value) {
    expect(text.find('\0') == text.npos, "no NUL is accepted");
    const auto again = parse_json(value->dump());
    expect(again && again->dump() == value->dump(), "a value reads back");
    expect(nlohmann::json(*value).dump() == value->dump(), "a value can be copied");
  } else {
    expect(value.error().message().size() < 1000, "messages are short");
  }
  if (const auto shape = shape::architecture_from_json(text)) {
    const auto again = shape::architecture_from_json(shape::canonical_json(*shape));
    expect(again && *again == *shape, "an architecture reads back");
  }
  if (const auto profile = geometry::work_profile_from_json(text)) {
    expect(geometry::work_profile_from_json(geometry::work_profile_json(*profile)).has_value(),
           "a work profile reads back");
  }
  return 0;
}
