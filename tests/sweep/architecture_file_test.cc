#include "sweep/architecture_file.h"

#include <gmock/gmock.h>

#include "model/shape/count.h"

namespace tailor::sweep {
namespace {

using ::testing::StartsWith;

shape::Architecture parsed(const std::string& text) {
  auto result = parse_architecture_toml(text, "arch.toml");
  EXPECT_TRUE(result.has_value()) << result.error().to_string();
  return result.value_or(shape::Architecture());
}

TEST(ArchitectureFile, EveryKeyIsRead) {
  const auto a = parsed(R"(
family = "olmo2"
d_model = 96
layers = 3
head_dim = 32
heads = 4
kv_heads = 2
vocab_size = 1000
tie_embeddings = false
rope_theta = 1e6
norm_eps = 1e-7
norm_scaling = true
residual_scaling = true
ffn = { kind = "hourglass", k = 2, d_h = 40, norm = "first_only", outer_residual = true }
schedule = { kind = "linear", high = 1.5, low = 0.5 }
)");
  EXPECT_EQ(a.family, shape::Family::kOlmo2);
  EXPECT_EQ(a.d_model, 96);
  EXPECT_EQ(a.head_dim, 32);
  EXPECT_EQ(a.heads, 4);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_EQ(a.vocab_size, 1000);
  EXPECT_FALSE(a.tie_embeddings);
  EXPECT_EQ(a.rope_theta, 1e6);
  EXPECT_EQ(a.norm_eps, 1e-7);
  EXPECT_EQ(a.ffn_kind, shape::FfnKind::kHourglass);
  EXPECT_EQ(a.ffn_norm, shape::FfnNorm::kFirstOnly);
  EXPECT_TRUE(a.ffn_outer_residual);
  EXPECT_TRUE(a.norm_scaling);
  EXPECT_TRUE(a.residual_scaling);
  EXPECT_EQ(a.widths, (std::vector<shape::LayerWidths>{{60, 60}, {40, 40}, {20, 20}}));
}

TEST(ArchitectureFile, DefaultsFollowTheFamily) {
  const auto llama = parsed("d_model = 128\nlayers = 2\nffn.d_h = 256\n");
  EXPECT_EQ(llama.heads, 2);
  EXPECT_EQ(llama.kv_heads, 2);
  EXPECT_EQ(llama.head_dim, 64);
  EXPECT_EQ(llama.vocab_size, 50'304);
  EXPECT_TRUE(llama.tie_embeddings);
  EXPECT_EQ(llama.ffn_norm, shape::FfnNorm::kPerSub);
  EXPECT_EQ(llama.rope_theta, 1e4);
  EXPECT_EQ(llama.norm_eps, 1e-5);
  const auto olmo2 =
      parsed("[architecture]\nfamily = \"olmo2\"\nd_model = 128\nlayers = 2\nd_h_ratio = 1.5\n");
  EXPECT_EQ(olmo2.ffn_norm, shape::FfnNorm::kPerSubPost);
  EXPECT_EQ(olmo2.rope_theta, 5e5);
  EXPECT_EQ(olmo2.norm_eps, 1e-6);
  EXPECT_EQ(olmo2.widths, shape::uniform_widths(2, 1, 192));
}

TEST(ArchitectureFile, APresetIsAStartingPointThatOtherKeysChange) {
  EXPECT_EQ(shape::count_parameters(parsed("preset = \"conv-113m-4x\"\n")).body, 113'246'208);
  const auto deeper = parsed("preset = \"conv-113m-4x\"\nlayers = 13\n");
  EXPECT_EQ(deeper.layers(), 13);
  EXPECT_EQ(deeper.d_model, 768);
  EXPECT_EQ(parsed("preset = \"conv-113m-4x\"\nd_h_ratio = 2\n").widths[0][0], 1536);
}

TEST(ArchitectureFile, WidthsMayBeGivenOneByOne) {
  const auto a = parsed("d_model = 64\nffn.kind = \"hourglass\"\nwidths = [[24, 16], [16, 8]]\n");
  EXPECT_EQ(a.widths, (std::vector<shape::LayerWidths>{{24, 16}, {16, 8}}));
}

TEST(ArchitectureFile, MistakesAreAnsweredWithTheirPosition) {
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"d_model = 64\nlayers = 2\nffn.d_h = 8\nlayer = 3\n",
       "arch.toml:4:1: unknown key `layer` (did you mean `layers`?)"},
      {"d_model = 64\nlayers = 2\nffn.dh = 8\n",
       "arch.toml:3:5: unknown key `ffn.dh` (did you mean `d_h`?)"},
      {"d_model = 64\nlayers = \"2\"\n",
       "arch.toml:2:10: `layers` must be an integer, not a string"},
      {"d_model = 0\n", "arch.toml:1:11: `d_model` is 0; allowed: 1 to 262144"},
      {"d_model = 64\nffn = 3\n", "arch.toml:2:7: `ffn` must be a table, not an integer"},
      {"preset = \"conv-113m-4\"\n",
       "arch.toml:1:10: there is no preset \"conv-113m-4\" (did you mean"},
      {"d_model = 64\nlayers = 2\n", "arch.toml:1:1: `ffn.d_h` (or `d_h_ratio`) is missing"},
      {"layers = 2\nffn.d_h = 8\n", "arch.toml:1:1: `d_model` is missing"},
      {"d_model = 100\nlayers = 2\nffn.d_h = 8\n",
       "arch.toml:1:1: `d_model` is 100; allowed: multiples of"},
      {"d_model = 64\nlayers = 2\nffn = { d_h = 8, k = 2 }\n",
       "arch.toml:1:1: `ffn.k` is 2; allowed: 1"},
      {"d_model = 64\nlayers = 2\nffn = { kind = \"hourglass\", d_h = 8 }\n",
       "arch.toml:1:1: `ffn.k` is missing"},
      {"d_model = 64\nlayers = 2\nffn.d_h = 8\nd_h_ratio = 1\n",
       "arch.toml:4:13: `d_h_ratio` and `ffn.d_h`"},
      {"d_model = 64\nwidths = [[8], [0]]\n", "arch.toml:2:17: `widths[1][0]` is 0; allowed: 1 to"},
      {"d_model = 64\nwidths = [\"8\"]\n", "arch.toml:2:11: `widths[0]` must be a list"},
      {"d_model = 64\nwidths = []\n", "arch.toml:2:10: `widths` is empty"},
      {"d_model = 64\nwidths = [[8]]\nlayers = 1\n",
       "arch.toml:2:10: `widths` is complete and `layers`"},
      {"d_model = 64\nwidths = [[8, 8]]\n", "arch.toml:1:1: layer 0 has 2 sub-MLPs"},
      {"d_model = 64\nlayers = 4\nffn.d_h = 2\nschedule = { kind = \"cosine\", high = 100, low = "
       "0.01 }\n",
       "arch.toml:1:1: sub-MLP 3 of 4 would get no hidden unit"},
      {"[architecture]\nd_model = 64\nlayers = 1\nffn.d_h = 2\n[train]\n",
       "arch.toml:5:2: unknown key `train`"},
      {"d_model = \n", "arch.toml:1:"},
  };
  for (const Case& c : cases) {
    const auto result = parse_architecture_toml(c.text, "arch.toml");
    ASSERT_FALSE(result.has_value()) << c.text;
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), StartsWith(c.message)) << c.text;
  }
}

}  // namespace
}  // namespace tailor::sweep
