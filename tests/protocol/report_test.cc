#include "protocol/report.h"

#include <gmock/gmock.h>

namespace tailor::protocol {
namespace {

TEST(EndClass, EveryNameIsReadBackAndOthersAreRefusedWithTheList) {
  for (int i = 0; i <= static_cast<int>(EndClass::kInfrastructure); ++i) {
    const auto end = static_cast<EndClass>(i);
    EXPECT_EQ(parse_end_class(end_class_name(end)).value(), end);
  }
  const auto unknown = parse_end_class("exploded");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message(),
              ::testing::HasSubstr("node_lost, lease_lost, infrastructure"));
}

TEST(EndClass, EveryExitCodeOfATrainerHasItsClass) {
  EXPECT_EQ(end_class_of_exit(0), EndClass::kCompleted);
  EXPECT_EQ(end_class_of_exit(1), EndClass::kInfrastructure);
  EXPECT_EQ(end_class_of_exit(2), EndClass::kUser);
  EXPECT_EQ(end_class_of_exit(3), EndClass::kData);
  EXPECT_EQ(end_class_of_exit(4), EndClass::kOom);
  EXPECT_EQ(end_class_of_exit(5), EndClass::kNan);
  EXPECT_EQ(end_class_of_exit(6), EndClass::kStopped);
  EXPECT_EQ(end_class_of_exit(7), EndClass::kInfrastructure);
  EXPECT_EQ(end_class_of_exit(8), EndClass::kInfrastructure);
  for (const int other : {-1, 9, 127, 137, 255}) {
    EXPECT_EQ(end_class_of_exit(other), EndClass::kInfrastructure);
  }
}

}  // namespace
}  // namespace tailor::protocol
