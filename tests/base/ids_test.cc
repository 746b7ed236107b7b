#include "base/ids.h"

#include <gtest/gtest.h>

namespace tailor {
namespace {

TEST(Ids, ReadBackWhatTheyPrint) {
  EXPECT_EQ(TrialId{41}.to_string(), "t41");
  EXPECT_EQ(TrialId::parse("t41"), TrialId{41});
  EXPECT_EQ(TrialId::parse("41"), TrialId{41});
  EXPECT_EQ((AttemptId{TrialId{41}, 2}).to_string(), "t41.2");
}

TEST(Ids, RefuseWhatIsNoId) {
  for (const char* text : {"", "t", "0", "t0", "s4", "4x", "-1", "99999999999999999999999"}) {
    EXPECT_EQ(TrialId::parse(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tailor
