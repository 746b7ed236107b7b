// The windows between the files and the acknowledgements.
#include "worker/agent/outbox.h"

#include <gtest/gtest.h>

#include "tests/worker/agent/agent_harness.h"

namespace tailor::agent {
namespace {

TEST(ReportOutbox, SkipsWhatItHasAndStopsAtAGap) {
  ReportOutbox box;
  EXPECT_TRUE(box.add({metric(1), metric(2)}));
  EXPECT_TRUE(box.add({metric(2), metric(3)}));
  EXPECT_EQ(box.read_through(), 3u);
  EXPECT_FALSE(box.add({metric(4), metric(6)}));
  EXPECT_EQ(box.read_through(), 4u);
}

TEST(ReportOutbox, AnAcknowledgementBeyondWhatWasReadMovesOn) {
  ReportOutbox box;
  box.add({metric(1), metric(2)});
  EXPECT_TRUE(box.acknowledge(5));
  EXPECT_EQ(box.read_through(), 5u);
  EXPECT_TRUE(box.take(10, true).empty());
  EXPECT_FALSE(box.acknowledge(5));
  EXPECT_FALSE(box.acknowledge(3));
}

TEST(ReportOutbox, AnOldAcknowledgementAfterASendDoesNotSendTwice) {
  ReportOutbox box;
  box.add({metric(1), metric(2), metric(3)});
  EXPECT_EQ(box.take(2, true).size(), 2u);
  box.acknowledge(1);
  const auto next = box.take(10, true);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].sequence, 3u);
}

TEST(LogOutbox, HandsOutEveryByteOnceAndAgainAfterARestart) {
  LogOutbox box;
  box.add("hello ");
  box.add("world");
  EXPECT_EQ(box.take(4).bytes, "hell");
  EXPECT_EQ(box.take(100).bytes, "o world");
  EXPECT_EQ(box.take(100).bytes, "");
  box.acknowledge(2);
  box.restart(6);
  EXPECT_EQ(box.sent_through(), 6u);
  EXPECT_EQ(box.take(100).bytes, "world");
  box.restart(3);  // fewer than it had: read again from there
  EXPECT_EQ(box.read_through(), 3u);
  EXPECT_EQ(box.take(100).bytes, "");
}

TEST(LogOutbox, SaysWhatIsLeftOutBeforeAPieceEachTimeItIsSent) {
  LogOutbox box;
  box.add("head");
  box.add("tail", 100);
  EXPECT_EQ(box.read_through(), 108u);
  EXPECT_EQ(box.room(10), 2u);
  EXPECT_EQ(box.take(100).left_out, 0u);
  LogOutbox::Taken taken = box.take(2);
  EXPECT_EQ(taken.offset, 104u);
  EXPECT_EQ(taken.left_out, 100u);
  EXPECT_EQ(taken.bytes, "ta");
  taken = box.take(100);
  EXPECT_EQ(taken.offset, 106u);
  EXPECT_EQ(taken.left_out, 0u);
  EXPECT_EQ(taken.bytes, "il");
  box.acknowledge(4);
  box.resend();
  taken = box.take(100);
  EXPECT_EQ(taken.offset, 104u);
  EXPECT_EQ(taken.left_out, 100u);
  EXPECT_EQ(taken.bytes, "tail");
  box.acknowledge(106);
  box.resend();
  taken = box.take(100);
  EXPECT_EQ(taken.offset, 106u);
  EXPECT_EQ(taken.left_out, 0u);
  EXPECT_EQ(taken.bytes, "il");
  box.acknowledge(108);
  EXPECT_EQ(box.read_through(), 108u);
}

}  // namespace
}  // namespace tailor::agent
