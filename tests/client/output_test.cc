#include "client/output.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tailor/v1/coordinator.pb.h"
#include "tailor/v1/sweep.pb.h"

namespace tailor::client {
namespace {

TEST(Output, MessagesBecomeJsonWithNumbersAndShortEnumNames) {
  v1::Trial trial;
  trial.set_id(9007199254740993ull);  // above 2^53: must not pass through a double
  trial.set_state(v1::TRIAL_STATE_RUNNING);
  (*trial.mutable_values())["b"] = 2.5;
  (*trial.mutable_values())["a"] = std::nan("");
  const Json json = to_json(trial);
  EXPECT_EQ(json["id"].dump(), "9007199254740993");
  EXPECT_EQ(json["state"], "running");
  EXPECT_TRUE(json["objective"].is_null());  // optional and unset
  EXPECT_EQ(json["message"], "");
  EXPECT_EQ(json["values"].dump(), "{\"a\":\"NaN\",\"b\":2.5}");
  trial.set_objective(-HUGE_VAL);
  EXPECT_EQ(to_json(trial)["objective"], "-Infinity");
}

TEST(Output, RepeatedAndNestedMessagesKeepTheirOrder) {
  v1::ListTrialsResponse response;
  response.add_trials()->set_id(2);
  response.add_trials()->set_id(1);
  response.set_total(2);
  const Json json = to_json(response);
  ASSERT_EQ(json["trials"].size(), 2u);
  EXPECT_EQ(json["trials"][0]["id"], 2);
  EXPECT_EQ(json["total"], 2);
}

TEST(Output, WidthCountsCodePointsAndNoEscapes) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("gr\xC3\xBC\xC3\x9F"), 4u);
  EXPECT_EQ(display_width("\033[31mred\033[0m"), 3u);
}

TEST(Output, TextOfOthersNeitherDrivesTheTerminalNorBreaksItsRow) {
  const Printer out(false, false, "always");
  ::testing::internal::CaptureStdout();
  out.table({{"NAME"}, {"MESSAGE"}}, {{out.state("failed"),
                                       "a\tb\n\033[2Jc\xC2\x9B"
                                       "31m"}});
  out.line("x\033]0;title\007");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "NAME\tMESSAGE\n\033[31mfailed\033[0m\ta\\tb\\n\\u001b[2Jc\\u009b31m\n"
            "x\\u001b]0;title\\u0007\n");
}

TEST(Output, LongTextIsBrokenAtSpacesAndGoesOnIndented) {
  EXPECT_EQ(wrapped("one two three", 100, 2), "one two three");
  EXPECT_EQ(wrapped("one two three four", 9, 2), "one two\n  three\n  four");
  EXPECT_EQ(wrapped("first\nsecond line", 100, 2), "first\n  second line");
  EXPECT_EQ(wrapped("a " + std::string(20, 'x') + " b", 10, 0),
            "a\n" + std::string(20, 'x') + "\nb");
  EXPECT_EQ(wrapped("grüße größe maße", 11, 0), "grüße größe\nmaße");
  EXPECT_EQ(wrapped("", 10, 0), "");
}

TEST(Output, JsonLinesAreOneEntryALine) {
  const Printer lines(false, true, "never");
  EXPECT_TRUE(lines.json());
  const Json list = {{"total", 2}, {"trials", {{{"id", 1}}, {{"id", 2}}}}};
  ::testing::internal::CaptureStdout();
  lines.list_document(list, "trials");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "{\"id\":1}\n{\"id\":2}\n");
  ::testing::internal::CaptureStdout();
  lines.document(list);
  std::fflush(stdout);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "{\"total\":2,\"trials\":[{\"id\":1},{\"id\":2}]}\n");
}

}  // namespace
}  // namespace tailor::client
