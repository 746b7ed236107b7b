#include "model/eval/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/model/data/temporary_folder.h"

namespace tailor::eval {
namespace {

using ::testing::HasSubstr;

class EvalRecordsTest : public data::TemporaryFolder {};

ItemResult some_result() {
  return {"piqa",
          "crème \"1\"\n",
          "0123456789abcdef",
          1,
          56,
          3,
          {{-1.0 / 3, true, 2, 3, 4}, {-1e-300, false, 5, 0, 0}}};
}

TEST_F(EvalRecordsTest, ReadsBackWhatItWrote) {
  ItemResult other = some_result();
  other.id = "2";
  other.choices.push_back({-std::nextafter(2.0, 3.0), false, 1, 1, 1});
  const std::string file =
      write("r.jsonl", record_line(some_result()) + "\r\n\n" + record_line(other));
  const auto items = read_records(file);
  ASSERT_TRUE(items.has_value()) << items.error().to_string();
  ASSERT_EQ(items->size(), 2u);
  EXPECT_EQ((*items)[0], some_result());
  EXPECT_EQ((*items)[1], other);
}

TEST_F(EvalRecordsTest, WritesTheMetricsForReaders) {
  const auto line = nlohmann::json::parse(record_line(some_result()));
  EXPECT_EQ(line["acc"], 1);
  EXPECT_EQ(line["acc_norm"], 0);
  EXPECT_EQ(line["acc_bytes"], 0);
}

TEST_F(EvalRecordsTest, NamesTheLineThatIsNoRecord) {
  const std::string good = record_line(some_result()) + "\n";
  const auto refusal = [&](const std::string& content) {
    const auto read = read_records(write("r.jsonl", content));
    EXPECT_FALSE(read.has_value()) << content;
    return read ? "" : read.error().message();
  };
  EXPECT_THAT(refusal(""), HasSubstr("holds no records"));
  EXPECT_THAT(refusal(good + "{\"task\": \"pi"), HasSubstr("r.jsonl:2: not a record"));
  EXPECT_THAT(refusal(good + "7\n"), HasSubstr("r.jsonl:2: not a record"));
  EXPECT_THAT(refusal(good + good), HasSubstr("r.jsonl:2: item"));
  const auto changed = [&](const char* key, const nlohmann::json& value) {
    auto line = nlohmann::json::parse(good);
    line[key] = value;
    return refusal(line.dump());
  };
  EXPECT_THAT(changed("id", 3), HasSubstr("\"id\" is not a string"));
  EXPECT_THAT(changed("gold", 2), HasSubstr("\"gold\" is 2"));
  EXPECT_THAT(changed("tokens", {1}), HasSubstr("\"tokens\" is not a list of 2"));
  EXPECT_THAT(changed("tokens", {1, -1}), HasSubstr("\"tokens\" must hold counts"));
  EXPECT_THAT(changed("is_greedy", {0, 1}), HasSubstr("true or false"));
  EXPECT_THAT(changed("loglikelihoods", {-1}), HasSubstr("two or more numbers"));
  EXPECT_THAT(changed("loglikelihoods", {-1, nullptr}), HasSubstr("must hold numbers"));
  EXPECT_THAT(changed("context_tokens", -1), HasSubstr("\"context_tokens\" is not a count"));
}

}  // namespace
}  // namespace tailor::eval
