#include "model/shape/presets.h"

#include <gmock/gmock.h>

#include "model/shape/count.h"

namespace tailor::shape {
namespace {

using ::testing::HasSubstr;

TEST(Presets, EveryPresetIsValidAndHasItsBody) {
  for (const Preset& preset : presets()) {
    const Architecture a = preset_architecture(preset);
    ASSERT_TRUE(validate(a).is_ok()) << preset.name;
    EXPECT_EQ(count_parameters(a).body, preset.body) << preset.name;
    EXPECT_EQ(find_preset(preset.name)->d_model, preset.d_model);
  }
}

TEST(Presets, TheScalesHaveTheAttentionAndFfnCountsOfTheBrief) {
  struct Row {
    const char* name;
    std::int64_t attention, ffn;
  };
  const Row rows[] = {{"conv-113m-4x", 28'311'552, 84'934'656},
                      {"conv-403m-4x", 100'663'296, 301'989'888},
                      {"conv-906m-4x", 226'492'416, 679'477'248},
                      {"conv-1.07b-4x", 268'435'456, 805'306'368}};
  for (const Row& row : rows) {
    const Counts counts = count_parameters(preset_architecture(find_preset(row.name).value()));
    EXPECT_EQ(counts.attention, row.attention) << row.name;
    EXPECT_EQ(counts.ffn, row.ffn) << row.name;
  }
  const Counts narrow =
      count_parameters(preset_architecture(find_preset("conv-113m-8over3").value()));
  EXPECT_EQ(narrow.body, 113'246'208);
  EXPECT_EQ(narrow.layers.size(), 16u);
}

TEST(Presets, ThoseOfTheScheduleStudyHaveTheTotalThatTheyAreNamedAfter) {
  // Totals by hand: 4 d^2 L + 3 d d_ff L + 50,304 d + (2 L + 1) d of norms.
  struct Row {
    const char* name;
    double named_millions;
    std::int64_t total;
  };
  const Row rows[] = {{"conv-128m", 128, 28'311'552 + 60'162'048 + 38'633'472 + 19'200},
                      {"conv-256m", 256, 67'108'864 + 138'412'032 + 51'511'296 + 33'792},
                      {"conv-440m", 440, 127'401'984 + 254'803'968 + 57'950'208 + 56'448}};
  for (const Row& row : rows) {
    const Counts counts = count_parameters(preset_architecture(find_preset(row.name).value()));
    EXPECT_EQ(counts.total, row.total) << row.name;
    EXPECT_NEAR(static_cast<double>(counts.total) / 1e6, row.named_millions,
                0.01 * row.named_millions);
  }
}

TEST(Presets, AnUnknownNameIsAnsweredWithTheNearest) {
  const auto preset = find_preset("conv-113m-4");
  ASSERT_FALSE(preset.has_value());
  EXPECT_EQ(preset.error().code(), Code::kNotFound);
  EXPECT_THAT(preset.error().message(), HasSubstr("did you mean \"conv-113m-4x\""));
}

}  // namespace
}  // namespace tailor::shape
