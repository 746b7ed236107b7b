// What a worker finds again in the trials folder.
#include "worker/agent/attempt_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "tests/worker/agent/agent_harness.h"
#include "tests/worker/agent/temporary_folder.h"

namespace tailor::agent {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class AttemptDirectoryTest : public testing::Test {
 protected:
  AttemptDirectory make(const protocol::AttemptRef& ref, const std::string& worker) {
    Result<AttemptDirectory> directory = AttemptDirectory::create(folder_.path(), ref);
    EXPECT_TRUE(directory.has_value()) << directory.error().message();
    EXPECT_TRUE(directory->write_note({worker, ref, {0, 3}, {123, 456, "boot"}, 7}).is_ok());
    return *directory;
  }
  std::vector<AttemptNote> found(const std::string& worker) {
    const auto notes = find_attempts(folder_.path(), worker, &warnings_);
    EXPECT_TRUE(notes.has_value());
    return notes.value_or(std::vector<AttemptNote>());
  }
  TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(AttemptDirectoryTest, IsTrialThenNumberAndNeverReused) {
  make(attempt_ref(41, 2), "node1");
  EXPECT_TRUE(fs::exists(folder_.file("t41/2/worker.json")));
  const auto again = AttemptDirectory::create(folder_.path(), attempt_ref(41, 2));
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), Code::kAlreadyExists);
}

TEST_F(AttemptDirectoryTest, OnlyTheOwnUnfinishedAttemptsAreFound) {
  make(attempt_ref(41, 2), "node1");
  make(attempt_ref(41, 3), "node2");
  make(attempt_ref(7, 1), "node1");
  ASSERT_TRUE(make(attempt_ref(8, 1), "node1").finish().is_ok());
  fs::create_directories(folder_.file("not-a-trial/1"));
  fs::create_directories(folder_.file("t9/x"));
  const auto notes = found("node1");
  ASSERT_THAT(notes, SizeIs(2));
  EXPECT_EQ(notes[0].ref, attempt_ref(7, 1));
  EXPECT_EQ(notes[1], (AttemptNote{"node1", attempt_ref(41, 2), {0, 3}, {123, 456, "boot"}, 7}));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(AttemptDirectoryTest, ADamagedNoteIsNamedAndTheOthersAreFound) {
  make(attempt_ref(41, 1), "node1");
  make(attempt_ref(42, 1), "node1");
  std::ofstream(folder_.file("t41/1/worker.json")) << "{\"worker\": ";
  EXPECT_THAT(found("node1"), SizeIs(1));
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("t41/1/worker.json"));
}

TEST_F(AttemptDirectoryTest, CheckpointsOfTheOtherAttemptsAreOfferedNewestFirst) {
  for (std::uint32_t number : {1u, 2u, 10u, 11u}) make(attempt_ref(41, number), "any");
  for (const char* number : {"1", "10", "11"}) {
    fs::create_directories(folder_.file("t41/" + std::string(number) + "/checkpoints"));
  }
  EXPECT_THAT(checkpoint_folders(folder_.path(), attempt_ref(41, 11)),
              ElementsAre(folder_.file("t41/10/checkpoints"), folder_.file("t41/1/checkpoints")));
}

TEST_F(AttemptDirectoryTest, ARestoredCoordinatorsNumbersAndAGangsMembersHaveFoldersOfTheirOwn) {
  const FencingToken restored = (0x3faull << 40) | 7;
  const protocol::AttemptRef first = attempt_ref(41, 2), second = attempt_ref(41, 2, restored);
  EXPECT_EQ(attempt_folder_name(first), "2");
  EXPECT_EQ(attempt_folder_name(second), "2-3fa");
  EXPECT_EQ(attempt_folder_name(second, 4), "2-3fa.r4");
  make(first, "node1");
  make(second, "node1");
  const auto member = AttemptDirectory::create(folder_.path(), second, 4);
  ASSERT_TRUE(member.has_value());
  AttemptNote note{"node1", second, {0}, {1, 2, "boot"}, 0};
  note.gang = {4, 2, 6};
  note.limits = {1000, 2000};
  note.started_ms = 55;
  ASSERT_TRUE(member->write_note(note).is_ok());
  const auto notes = found("node1");
  ASSERT_THAT(notes, SizeIs(3));
  EXPECT_EQ(std::count(notes.begin(), notes.end(), note), 1);
  for (const char* name : {"2", "2-3fa", "2-3fa.r4"}) {
    fs::create_directories(folder_.file("t41/" + std::string(name) + "/checkpoints"));
  }
  EXPECT_THAT(checkpoint_folders(folder_.path(), attempt_ref(41, 3, restored)),
              ElementsAre(folder_.file("t41/2-3fa/checkpoints"), folder_.file("t41/2/checkpoints")))
      << "members write none";
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(AttemptDirectoryTest, AFolderWithoutATrainerIsTakenBackAndOneWithDataIsNot) {
  const AttemptDirectory empty = make(attempt_ref(41, 1), "node1");
  empty.discard();
  EXPECT_FALSE(fs::exists(empty.path()));
  const AttemptDirectory full = make(attempt_ref(41, 2), "node1");
  std::ofstream(full.file("reports.jsonl")) << "{}\n";
  full.discard();
  EXPECT_TRUE(fs::exists(full.file("reports.jsonl")));
}

TEST_F(AttemptDirectoryTest, TheStoredEndIsReadBack) {
  const AttemptDirectory directory = make(attempt_ref(41, 1), "node1");
  EXPECT_FALSE(directory.read_end().value().has_value());
  ASSERT_TRUE(directory.write_end(end_report(9, protocol::EndClass::kOom)).is_ok());
  const auto end = directory.read_end();
  ASSERT_TRUE(end.has_value() && end->has_value());
  EXPECT_EQ((*end)->sequence, 9u);
  EXPECT_EQ(std::get<protocol::EndReport>((*end)->body).end, protocol::EndClass::kOom);
}

TEST_F(AttemptDirectoryTest, TheLeaseIsDecimalMilliseconds) {
  const AttemptDirectory directory = make(attempt_ref(41, 1), "node1");
  ASSERT_TRUE(directory.write_lease(12'345).is_ok());
  EXPECT_EQ(read_file(directory.file("lease")).value(), "12345\n");
}

}  // namespace
}  // namespace tailor::agent
