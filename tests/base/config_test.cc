#include "base/config.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace tailor {
namespace {

Result<ConfigDocument> parse(std::string_view text) {
  return ConfigDocument::parse(text, "x.toml");
}

TEST(Config, ReadsValuesAndAcceptsAFileWithoutUnknownKeys) {
  auto doc = parse("name = \"a\"\n[train]\nlr = 3\nevery = \"10 min\"\nok = true\n");
  ASSERT_TRUE(doc.has_value());
  auto root = doc->root();
  EXPECT_EQ(root.string("name"), "a");
  auto train = root.table("train");
  ASSERT_TRUE(train.has_value());
  EXPECT_EQ(train->number("lr"), 3.0);
  EXPECT_EQ(train->parsed("every", &parse_duration_ms), 600000);
  EXPECT_EQ(train->boolean("ok"), true);
  EXPECT_EQ(train->string("absent"), std::nullopt);
  EXPECT_TRUE(train->finish().is_ok());
  EXPECT_TRUE(root.finish().is_ok());
}

TEST(Config, AnUnknownKeyIsAnErrorWithPositionAndTheNearestKnownOne) {
  auto doc = parse("layers = 2\nlayerz = 3\n");
  auto root = doc->root();
  root.integer("layers");
  const Status status = root.finish();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("x.toml:2:1: unknown key `layerz` (did you mean `layers`?)"),
            std::string::npos)
      << status.message();
}

TEST(Config, AWrongTypeIsAnErrorWithPosition) {
  auto doc = parse("layers = \"two\"\n");
  auto root = doc->root();
  EXPECT_EQ(root.integer("layers"), std::nullopt);
  EXPECT_EQ(doc->status().message(), "x.toml:1:10: `layers` must be an integer, not a string");
}

TEST(Config, ARangeErrorSaysWhatIsAllowed) {
  auto doc = parse("a = 7\nb = \"cosin\"\n");
  auto root = doc->root();
  EXPECT_EQ(root.integer_in("a", 0, 5), std::nullopt);
  EXPECT_NE(doc->status().message().find("x.toml:1:5: `a` is 7; allowed: 0 to 5"),
            std::string::npos);
  auto other = parse("b = \"cosin\"\n");
  auto table = other->root();
  EXPECT_EQ(table.one_of("b", {"cosine", "linear"}), std::nullopt);
  EXPECT_NE(other->status().message().find("did you mean \"cosine\"?"), std::string::npos);
}

TEST(Config, BadTomlIsAnErrorWithPosition) {
  const auto doc = parse("a = \n");
  ASSERT_FALSE(doc.has_value());
  EXPECT_EQ(doc.error().message().rfind("x.toml:1:", 0), 0u) << doc.error().message();
}

TEST(Config, ItemsKeepTheOrderOfTheFile) {
  auto doc = parse("[space]\nzeta = 1\n\"ffn.k\" = [1, 2]\nalpha = 3\n");
  auto root = doc->root();
  auto space = root.table("space");
  std::vector<std::string> keys;
  for (auto& [key, value] : space->items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"zeta", "ffn.k", "alpha"}));
  EXPECT_EQ(space->value("ffn.k")->path(), "space.\"ffn.k\"");
  EXPECT_TRUE(space->finish().is_ok());
}

}  // namespace
}  // namespace tailor
