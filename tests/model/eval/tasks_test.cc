// Requests of the tasks against those that lm-evaluation-harness 0.4.13 makes of the same items.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/eval/task.h"
#include "model/eval/unicode.h"
#include "tests/model/eval/reference_items.h"

namespace tailor::eval {
namespace {

void expect_reference_requests(const std::string& task, const std::string& file) {
  SCOPED_TRACE(file);
  const auto read = read_items(**find_task(task), reference_path(file));
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  const auto& expected = reference_scoring()["requests"][task]["zero_shot"];
  ASSERT_EQ(read->items.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Item& item = read->items[i];
    EXPECT_EQ(item.context, expected[i]["context"]);
    EXPECT_EQ(item.gold, expected[i]["gold"]);
    ASSERT_EQ(item.choices.size(), expected[i]["continuations"].size());
    for (std::size_t c = 0; c < item.choices.size(); ++c) {
      const std::string& choice = item.choices[c];
      EXPECT_EQ(std::string(kChoiceDelimiter) + choice, expected[i]["continuations"][c]);
      EXPECT_EQ(code_points(choice), expected[i]["norm_lengths"][c]);
      EXPECT_EQ(choice.size(), expected[i]["byte_lengths"][c]);
    }
  }
}

TEST(EvalTasksTest, MakesTheHarnessRequestsOfTheHubsForm) {
  for (const char* task : {"arc_easy", "hellaswag", "piqa"}) {
    expect_reference_requests(task, std::string(task) + ".jsonl");
  }
}

TEST(EvalTasksTest, MakesTheSameRequestsOfTheReleasesForm) {
  for (const char* task : {"arc_easy", "hellaswag", "piqa"}) {
    expect_reference_requests(task, std::string(task) + ".release.jsonl");
  }
}

// The harness's template for SciQ: "{{support.lstrip()}}\nQuestion: {{question}}\nAnswer:".
TEST(EvalTasksTest, PutsTheSupportInFrontOfSciqQuestions) {
  const auto object = nlohmann::json::parse(R"({"question": "What holds planets in orbit?",
    "distractor3": "glue", "distractor1": "wind", "distractor2": "light",
    "correct_answer": "gravity", "support": " \nThe sun pulls. "})");
  const auto item = kSciq.item(object);
  ASSERT_TRUE(item.has_value());
  EXPECT_EQ(item->context, "The sun pulls. \nQuestion: What holds planets in orbit?\nAnswer:");
  EXPECT_THAT(item->choices, ::testing::ElementsAre("wind", "light", "glue", "gravity"));
  EXPECT_EQ(item->gold, 3u);

  auto bare = object;
  bare["support"] = "";
  EXPECT_EQ(kSciq.item(bare)->context, "\nQuestion: What holds planets in orbit?\nAnswer:");
}

// Python: re.sub(r"\[.*?\]", "", text) does not cross a line end, and leaves what is not closed.
TEST(EvalTasksTest, DeletesTheShortestBracketsOfALine) {
  const auto cleaned = [](const std::string& ending) {
    const auto item = kHellaswag.item({{"activity_label", "A"},
                                       {"ctx_a", "b"},
                                       {"ctx_b", "c"},
                                       {"endings", nlohmann::json::array({ending, "x"})},
                                       {"label", 1}});
    EXPECT_TRUE(item.has_value()) << item.error().to_string();
    return item ? item->choices[0] : "";
  };
  EXPECT_EQ(cleaned("a[b[c]d]e"), "ad]e");
  EXPECT_EQ(cleaned("a[b\nc]d[]"), "a[b\nc]d");
  EXPECT_EQ(cleaned("[a[\n[b]"), "[a[\n");
  EXPECT_EQ(cleaned("open [end"), "open [end");
  EXPECT_EQ(cleaned("a [title]b [title] c"), "a. b. c");
  EXPECT_EQ(cleaned("  \u00a0a    b "), "a  b");
  EXPECT_EQ(cleaned("[title] [title]"), ". ");
}

TEST(EvalTasksTest, NamesTheNearestTask) {
  EXPECT_EQ((*find_task("piqa"))->name, "piqa");
  const auto missing = find_task("hellaswg");
  EXPECT_EQ(missing.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(missing.error().message(), ::testing::HasSubstr("did you mean \"hellaswag\""));
  EXPECT_THAT(missing.error().message(), ::testing::HasSubstr("arc_easy, hellaswag, piqa, sciq"));
}

TEST(EvalTasksTest, DigestsTellItemsApart) {
  const Item item{"1", "Question: a\nAnswer:", {"b", "c"}, 0};
  Item other = item;
  EXPECT_EQ(item.digest().size(), 16u);
  other.id = "2";
  EXPECT_EQ(other.digest(), item.digest());
  other.gold = 1;
  EXPECT_NE(other.digest(), item.digest());
  other = item;
  other.choices = {"bc", ""};
  EXPECT_NE(other.digest(), item.digest());
}

}  // namespace
}  // namespace tailor::eval
