// How ranks find each other, and whom they refuse.
#include "model/train/ranks/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/model/train/ranks/support.h"

namespace tailor::train::ranks {
namespace {

using testing::HasSubstr;

class MeetingTest : public testing::Test {
 protected:
  MeetingOptions options(int rank, int size, std::int64_t wait_ms = 30'000) const {
    return {rank, size, "127.0.0.1", "trial", clock_.now_ms() + wait_ms};
  }

  SystemClock clock_;
  test::MemoryRendezvous rendezvous_;
};

TEST_F(MeetingTest, MissingRanksAreNamed) {
  const auto peers = meet(options(0, 2, 100), rendezvous_, clock_);
  ASSERT_FALSE(peers.has_value());
  EXPECT_EQ(peers.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(peers.error().message(), HasSubstr("waited in vain for rank 1"));
}

TEST_F(MeetingTest, RanksOfDifferentTrialsRefuseEachOther) {
  std::thread first([&] { EXPECT_FALSE(meet(options(0, 2, 500), rendezvous_, clock_)); });
  MeetingOptions other = options(1, 2);
  other.group = "another trial";
  const auto peers = meet(other, rendezvous_, clock_);
  ASSERT_FALSE(peers.has_value());
  EXPECT_EQ(peers.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(peers.error().message(), HasSubstr("\"trial\""));
  EXPECT_THAT(peers.error().message(), HasSubstr("\"another trial\""));
  first.join();
}

TEST_F(MeetingTest, StrangersAreHungUpOn) {
  std::thread first([&] {
    const auto peers = meet(options(0, 2), rendezvous_, clock_);
    ASSERT_TRUE(peers.has_value()) << peers.error().message();
    EXPECT_EQ(peers->at(0).rank, 1);
    EXPECT_GT(peers->at(0).pid, 0);
  });
  const MonotonicMs deadline_ms = clock_.now_ms() + 30'000;
  const auto card = nlohmann::json::parse(*rendezvous_.find("rank/0", deadline_ms));
  const auto stranger = connect_to({card["host"], card["port"]}, clock_, deadline_ms);
  ASSERT_TRUE(stranger.has_value());
  const std::vector<std::byte> words(200, std::byte{'x'});
  ASSERT_TRUE(send_all(*stranger, words, clock_, deadline_ms).is_ok());
  std::byte answer{};
  EXPECT_EQ(receive_all(*stranger, std::span(&answer, 1), clock_, deadline_ms).code(),
            Code::kUnavailable);
  EXPECT_TRUE(meet(options(1, 2), rendezvous_, clock_).has_value());
  first.join();
}

TEST_F(MeetingTest, AddressesAreReadAndWritten) {
  EXPECT_EQ(parse_endpoint("node1:29500")->host, "node1");
  EXPECT_EQ(parse_endpoint("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:80")->port, 80);
  EXPECT_EQ(to_string({"::1", 80}), "[::1]:80");
  EXPECT_EQ(to_string({"node1", 80}), "node1:80");
  for (const char* bad : {"", "node1", "node1:", ":80", "node1:x", "node1:70000", "::1:80"}) {
    EXPECT_FALSE(parse_endpoint(bad).has_value()) << bad;
  }
  EXPECT_EQ(*address_towards({"127.0.0.1", 1}), "127.0.0.1");
  EXPECT_EQ(connect_to({"no-such-host.invalid", 1}, clock_, clock_.now_ms() + 50).error().code(),
            Code::kNotFound);
}

TEST_F(MeetingTest, APortThatIsInUseIsAConflict) {
  const auto first = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(first.has_value());
  const auto second = listen_on(*local_endpoint(*first));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
}

}  // namespace
}  // namespace tailor::train::ranks
