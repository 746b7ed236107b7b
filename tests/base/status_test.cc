#include "base/status.h"

#include <gtest/gtest.h>

namespace tailor {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return error(Code::kInvalidArgument, "odd");
  return x / 2;
}
Status check_quarter(int x, int* out) {
  TAILOR_ASSIGN_OR_RETURN(const int h, half(x));
  TAILOR_ASSIGN_OR_RETURN(*out, half(h));
  return Status::ok();
}
Result<std::string> quarter_text(int x) {
  int q = 0;
  TAILOR_RETURN_IF_ERROR(check_quarter(x, &q));
  return std::to_string(q);
}

TEST(Status, CodesCarryGrpcNumbers) {
  EXPECT_EQ(static_cast<int>(Code::kNotFound), 5);
  EXPECT_EQ(static_cast<int>(Code::kUnauthenticated), 16);
}

TEST(Status, ContextIsPutInFrontAndKeepsTheCode) {
  const Status s = Status(Code::kNotFound, "no such file").with_context("loading x");
  EXPECT_EQ(s.code(), Code::kNotFound);
  EXPECT_EQ(s.to_string(), "not_found: loading x: no such file");
  EXPECT_TRUE(Status::ok().with_context("x").is_ok());
}

TEST(Status, MacrosPassTheFailureUpThroughBothKindsOfFunction) {
  int q = 0;
  EXPECT_TRUE(check_quarter(12, &q).is_ok());
  EXPECT_EQ(q, 3);
  EXPECT_EQ(check_quarter(6, &q).message(), "odd");
  EXPECT_EQ(quarter_text(8).value(), "2");
  EXPECT_EQ(quarter_text(7).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tailor
