// Data files as users have them, and those that are wrong.
#include "model/eval/items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/data/temporary_folder.h"

namespace tailor::eval {
namespace {

using ::testing::HasSubstr;

class EvalItemsTest : public data::TemporaryFolder {
 protected:
  /// The message of the failure that reading `content` must be.
  std::string refusal(const Task& task, std::string_view content) {
    const auto read = read_items(task, write("items.jsonl", content));
    EXPECT_FALSE(read.has_value()) << content;
    if (read) return "";
    EXPECT_EQ(read.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(read.error().message(), HasSubstr(path("items.jsonl")));
    return read.error().message();
  }
};

constexpr const char* kPiqaLine = R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 0})";

TEST_F(EvalItemsTest, ReadsLinesWithCarriageReturnsBlankLinesAndNoLastLineEnd) {
  const std::string line = kPiqaLine;
  const auto read = read_items(
      kPiqa, write("x.jsonl", "\xEF\xBB\xBF" + line + "\r\n\r\n  \n" + line + "\n" + line));
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  ASSERT_EQ(read->items.size(), 3u);
  EXPECT_EQ(read->items[2].id, "3");
  EXPECT_EQ(read->sha256, *sha256_file(path("x.jsonl")));
}

TEST_F(EvalItemsTest, AByteOrderMarkIsNoTextInAnyOfTheFilesAndUtf16IsNamed) {
  const std::string mark = "\xEF\xBB\xBF";
  const std::string line = kPiqaLine;
  const auto list = read_items(kPiqa, write("list.json", mark + "[" + line + "," + line + "]"));
  ASSERT_TRUE(list.has_value()) << list.error().to_string();
  EXPECT_EQ(list->items.size(), 2u);
  write("valid-labels.lst", mark + "1\n");
  const auto labelled =
      read_items(kPiqa, write("valid.jsonl", R"({"goal": "g", "sol1": "a", "sol2": "b"})"));
  ASSERT_TRUE(labelled.has_value()) << labelled.error().to_string();
  EXPECT_EQ(labelled->items[0].gold, 1u);
  std::string wide = "\xFF\xFE";
  for (const char c : line) wide += {c, '\0'};
  EXPECT_THAT(read_items(kPiqa, write("wide.jsonl", wide)).error().message(),
              HasSubstr("wide.jsonl is UTF-16LE text"));
}

TEST_F(EvalItemsTest, KeepsTheFirstItemsWhenLimited) {
  const std::string line = std::string(kPiqaLine) + "\n";
  const auto read = read_items(kPiqa, write("x.jsonl", line + line + line), 2);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->items.size(), 2u);
  EXPECT_EQ(read->items_total, 3u);
}

TEST_F(EvalItemsTest, ReadsTheListThatSciqIsReleasedAs) {
  const std::string file = write("sciq/test.json", R"( [
    {"question": "q1", "distractor3": "3", "distractor1": "1", "distractor2": "2",
     "correct_answer": "c", "support": "s"},
    {"question": "q2", "distractor3": "3", "distractor1": "1", "distractor2": "2",
     "correct_answer": "c", "support": ""}])");
  EXPECT_EQ(*find_item_file(kSciq, folder_.string()), file);
  const auto read = read_items(kSciq, file);
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->items[1].context, "\nQuestion: q2\nAnswer:");
  const auto bad = read_items(kSciq, write("test.json", R"([{"question": "q", "support": ""}])"));
  EXPECT_THAT(bad.error().message(), HasSubstr("test.json, item 1: \"distractor1\" is missing"));
}

TEST_F(EvalItemsTest, FindsFilesUnderTheNamesOfTheReleases) {
  write("ARC-Easy/ARC-Easy-Test.jsonl", "");
  write("hellaswag_val.jsonl", "");
  EXPECT_EQ(*find_item_file(kArcEasy, folder_.string()), path("ARC-Easy/ARC-Easy-Test.jsonl"));
  EXPECT_EQ(*find_item_file(kHellaswag, folder_.string()), path("hellaswag_val.jsonl"));
  const auto missing = find_item_file(kPiqa, folder_.string());
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("piqa.jsonl"));
  EXPECT_THAT(missing.error().message(), HasSubstr("--tasks piqa=FILE"));
}

TEST_F(EvalItemsTest, TakesLabelsFromTheFileBesideIt) {
  const std::string line = "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\"}\n";
  const std::string file = write("piqa/valid.jsonl", line + line);
  write("piqa/valid-labels.lst", "1\r\n0\r\n");
  const auto read = read_items(kPiqa, *find_item_file(kPiqa, folder_.string()));
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->items[0].gold, 1u);
  EXPECT_EQ(read->items[1].gold, 0u);
  write("piqa/valid-labels.lst", "1\n");
  EXPECT_THAT(read_items(kPiqa, file).error().message(), HasSubstr("1 labels, but"));
  write("piqa/valid-labels.lst", "1\n2\n");
  EXPECT_THAT(read_items(kPiqa, file).error().message(), HasSubstr(":2: \"label\" is \"2\""));
  std::filesystem::remove(path("piqa/valid-labels.lst"));
  EXPECT_THAT(read_items(kPiqa, file).error().message(), HasSubstr(":1: \"label\" is missing"));
}

TEST_F(EvalItemsTest, RefusesFilesWithoutItems) {
  for (const char* content : {"", "\n \r\n", "[]", " [ ]\n"}) {
    EXPECT_THAT(refusal(kPiqa, content), HasSubstr("holds no items"));
  }
  EXPECT_EQ(read_items(kPiqa, path("absent.jsonl")).error().code(), Code::kNotFound);
}

TEST_F(EvalItemsTest, NamesTheLineThatIsWrong) {
  const std::string good = std::string(kPiqaLine) + "\n";
  EXPECT_THAT(refusal(kPiqa, good + "{\"goal\": \"cut"), HasSubstr(":2: the line is not JSON"));
  EXPECT_THAT(refusal(kPiqa, good + "\n\"text\"\n"), HasSubstr(":3: not an object"));
  EXPECT_THAT(refusal(kPiqa, "{\"goal\": \"\xff\"}"),
              HasSubstr(":1: the line is not JSON in UTF-8"));
  EXPECT_THAT(refusal(kPiqa, "[1, 2"), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal(kPiqa, "[1]"), HasSubstr("item 1: not an object"));
  EXPECT_THAT(refusal(kPiqa, std::string(100000, '[')), HasSubstr("is not JSON"));
}

TEST_F(EvalItemsTest, NamesTheMemberThatIsWrong) {
  const struct {
    const Task& task;
    const char* line;
    const char* message;
  } cases[] = {
      {kPiqa, R"({"sol1": "a", "sol2": "b", "label": 0})", ":1: \"goal\" is missing"},
      {kPiqa, R"({"goal": null, "sol1": "a", "sol2": "b", "label": 0})", "\"goal\" is missing"},
      {kPiqa, R"({"goal": 1, "sol1": "a", "sol2": "b", "label": 0})", "\"goal\" is not a string"},
      {kPiqa, R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})", "\"label\" is 2"},
      {kPiqa, R"({"goal": "g", "sol1": "a", "sol2": "b", "label": -1})", "\"label\" is -1"},
      {kPiqa, R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 0.5})", "\"label\" is 0.5"},
      {kPiqa, R"({"goal": "g", "sol1": "a", "sol2": "b", "label": ""})", "\"label\" is \"\""},
      {kPiqa, R"({"goal": "g", "sol1": "a", "sol2": "b", "label": "1x"})", "\"label\" is \"1x\""},
      {kHellaswag, R"({"activity_label": "A", "ctx_a": "b", "ctx_b": "c", "endings": ["d"],
        "label": 0})",
       "is not JSON"},  // an object over two lines
      {kHellaswag,
       R"({"activity_label": "A", "ctx_a": "b", "ctx_b": "c", "endings": ["d"], "label": 0})",
       "fewer than two choices"},
      {kHellaswag,
       R"({"activity_label": "A", "ctx_a": "b", "ctx_b": "c", "endings": ["d", 1], "label": 0})",
       "\"endings\" is not a list of strings"},
      {kHellaswag,
       R"({"activity_label": "A", "ctx_a": "b", "ctx_b": "c", "endings": [], "label": 0})",
       "\"label\" is 0"},
      {kArcEasy,
       R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, )"
       R"("answerKey": "A"})",
       "\"id\" is missing"},
      {kArcEasy,
       R"({"id": "i", "question": "q", "choices": {"text": ["a", "b", "c"], "label": ["A", "B"]}, )"
       R"("answerKey": "A"})",
       "\"choices\" has 3 texts but 2 labels"},
      {kArcEasy,
       R"({"id": "i", "question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, )"
       R"("answerKey": "1"})",
       "\"answerKey\" is \"1\", which labels no choice"},
      {kArcEasy, R"({"id": "i", "question": "q", "choices": "a", "answerKey": "1"})",
       "\"choices\" is neither"},
      {kArcEasy, R"({"id": "i", "question": {"stem": "q", "choices": ["a"]}, "answerKey": "A"})",
       "\"choices\" is not a list of {"},
      {kArcEasy, R"({"id": "i", "question": {"stem": "q"}, "answerKey": "A"})",
       "\"choices\" is missing"},
      {kSciq,
       R"({"question": "q", "distractor1": "1", "distractor2": "2", "distractor3": "3", )"
       R"("correct_answer": "c"})",
       "\"support\" is missing"},
  };
  for (const auto& bad : cases) {
    EXPECT_THAT(refusal(bad.task, bad.line), HasSubstr(bad.message)) << bad.line;
  }
}

TEST_F(EvalItemsTest, RefusesAnIdTwice) {
  const std::string line =
      R"({"id": "x", "question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, )"
      R"("answerKey": "A"})";
  EXPECT_THAT(refusal(kArcEasy, line + "\n" + line),
              HasSubstr(":2: the id \"x\" is that of " + path("items.jsonl") + ":1 too"));
}

}  // namespace
}  // namespace tailor::eval
