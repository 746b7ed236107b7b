#include "model/shape/architecture.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "base/rng.h"
#include "model/shape/count.h"

namespace tailor::shape {
namespace {

using ::testing::HasSubstr;

Architecture small() {
  Architecture a;
  a.d_model = 64;
  a.heads = 4;
  a.kv_heads = 2;
  a.head_dim = 16;
  a.vocab_size = 256;
  a.ffn_kind = FfnKind::kHourglass;
  a.widths = {{24, 16}, {16, 8}};
  return a;
}

TEST(Architecture, CanonicalJsonHasEveryFieldInAFixedOrder) {
  EXPECT_EQ(
      canonical_json(small()),
      R"({"family":"llama","d_model":64,"heads":4,"kv_heads":2,"head_dim":16,"vocab_size":256,)"
      R"("tie_embeddings":true,"ffn_kind":"hourglass","ffn_norm":"per_sub",)"
      R"("ffn_outer_residual":false,"widths":[[24,16],[16,8]],"rope_theta":10000,)"
      R"("norm_eps":1e-05})");
}

TEST(Architecture, ScalingIsInTheCanonicalJsonOnlyWhereItIsOn) {
  Architecture a = small();
  const std::string plain = canonical_json(a);
  a.norm_scaling = true;
  const std::string scaled = canonical_json(a);
  EXPECT_EQ(scaled, plain.substr(0, plain.size() - 1) + R"(,"norm_scaling":true})");
  EXPECT_EQ(architecture_from_json(scaled).value(), a);
  EXPECT_FALSE(architecture_from_json(plain).value().norm_scaling);
}

TEST(Architecture, CanonicalJsonIsReadBackUnchanged) {
  Architecture a = small();
  a.family = Family::kOlmo2;
  a.tie_embeddings = false;
  a.ffn_norm = FfnNorm::kPerSubPost;
  a.ffn_outer_residual = true;
  a.rope_theta = 500000.25;
  a.norm_eps = 1.0 / 3.0;
  a.residual_scaling = true;
  const auto back = architecture_from_json(canonical_json(a));
  ASSERT_TRUE(back.has_value()) << back.error().to_string();
  EXPECT_EQ(*back, a);
}

TEST(Architecture, EveryNameIsReadBack) {
  for (const auto family : {Family::kLlama, Family::kOlmo2}) {
    EXPECT_EQ(parse_family(family_name(family)).value(), family);
  }
  for (const auto kind : {FfnKind::kSwiglu, FfnKind::kHourglass}) {
    EXPECT_EQ(parse_ffn_kind(ffn_kind_name(kind)).value(), kind);
  }
  for (const auto norm : {FfnNorm::kPerSub, FfnNorm::kPerSubGainless, FfnNorm::kFirstOnly,
                          FfnNorm::kPerSubPost, FfnNorm::kNone}) {
    EXPECT_EQ(parse_ffn_norm(ffn_norm_name(norm)).value(), norm);
  }
}

TEST(Architecture, AnUnknownNameIsAnsweredWithTheNearestAndTheList) {
  const auto kind = parse_ffn_kind("hourglas");
  ASSERT_FALSE(kind.has_value());
  EXPECT_EQ(kind.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(kind.error().message(), HasSubstr("did you mean \"hourglass\""));
  EXPECT_THAT(kind.error().message(), HasSubstr("allowed: swiglu, hourglass"));
}

TEST(Architecture, ValidationNamesTheFieldAndWhatIsAllowed) {
  struct Case {
    std::function<void(Architecture&)> spoil;
    const char* message;
  };
  const Case cases[] = {
      {[](Architecture& a) { a.d_model = 0; }, "`d_model` is 0; allowed: 1 to"},
      {[](Architecture& a) { a.heads = -1; }, "`heads` is -1"},
      {[](Architecture& a) { a.kv_heads = 3; },
       "`kv_heads` is 3; allowed: divisors of `heads` = 4"},
      {[](Architecture& a) { a.head_dim = 15; }, "`head_dim` is 15; allowed: even"},
      {[](Architecture& a) { a.vocab_size = 0; }, "`vocab_size` is 0"},
      {[](Architecture& a) { a.widths.clear(); }, "`layers` is 0"},
      {[](Architecture& a) { a.widths[1].clear(); }, "`sub-MLPs of layer 1` is 0"},
      {[](Architecture& a) { a.widths[1][1] = 0; }, "`d_h of layer 1, sub-MLP 1` is 0"},
      {[](Architecture& a) { a.ffn_kind = FfnKind::kSwiglu; },
       "layer 0 has 2 sub-MLPs; allowed: 1"},
      {[](Architecture& a) { a.rope_theta = 0; }, "`rope_theta` is 0"},
      {[](Architecture& a) { a.norm_eps = std::numeric_limits<double>::quiet_NaN(); },
       "`norm_eps` is nan"},
      {[](Architecture& a) { a.d_model = std::numeric_limits<std::int32_t>::max(); }, "`d_model`"},
  };
  for (const Case& c : cases) {
    Architecture a = small();
    c.spoil(a);
    const Status status = validate(a);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << c.message;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
  EXPECT_TRUE(validate(small()).is_ok());
}

TEST(Architecture, BadJsonIsRefusedWithTheKey) {
  const std::string good = canonical_json(small());
  const auto with = [&](std::string from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  struct Case {
    std::string json;
    const char* message;
  };
  const Case cases[] = {
      {good.substr(0, good.size() - 1), "not a JSON object"},
      {"[]", "not a JSON object"},
      {"", "not a JSON object"},
      {with("\"d_model\":64", "\"d_modl\":64"), "unknown key `d_modl` (did you mean `d_model`?)"},
      {with("\"d_model\":64,", ""), "`d_model` is missing"},
      {with("\"d_model\":64", "\"d_model\":\"64\""), "`d_model` must be an integer"},
      {with("\"d_model\":64", "\"d_model\":64.5"), "`d_model` must be an integer"},
      {with("\"d_model\":64", "\"d_model\":4294967360"), "`d_model` must be an integer of 32 bits"},
      {with("\"d_model\":64", "\"d_model\":18446744073709551615"), "integer of 32 bits"},
      {with("[[24,16],[16,8]]", "[24,16]"), "`widths` must be a list of lists"},
      {with("true", "1"), "`tie_embeddings` must be true or false"},
      {with("per_sub", "per_suber"), "ffn norm is \"per_suber\""},
      {with("10000", "\"1e4\""), "`rope_theta` must be a number"},
      {with("\"kv_heads\":2", "\"kv_heads\":3"), "divisors of `heads`"},
  };
  for (const Case& c : cases) {
    const auto result = architecture_from_json(c.json);
    ASSERT_FALSE(result.has_value()) << c.json;
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), HasSubstr(c.message));
  }
}

TEST(Architecture, TheLargestValidShapeDoesNotOverflowItsCounts) {
  Architecture a;
  a.d_model = 1 << 18;
  a.heads = a.kv_heads = 1 << 14;
  a.head_dim = 1 << 14;
  a.vocab_size = 1 << 26;
  a.tie_embeddings = false;
  a.family = Family::kOlmo2;
  a.ffn_kind = FfnKind::kHourglass;
  a.widths = uniform_widths(1 << 12, 1 << 10, 1 << 20);
  ASSERT_TRUE(validate(a).is_ok());
  const Counts counts = count_parameters(a);
  // In floating point, where nothing can wrap.
  const double d = a.d_model, e = 16384.0 * 16384.0, layers = 4096, k = 1024;
  const double expected =
      layers * (4 * d * e + 3 * d * k * 1048576 + d + k * d + 2 * e) + d + 2 * 67108864.0 * d;
  EXPECT_GT(counts.total, 0);
  EXPECT_NEAR(static_cast<double>(counts.total) / expected, 1.0, 1e-12);
}

}  // namespace
}  // namespace tailor::shape
