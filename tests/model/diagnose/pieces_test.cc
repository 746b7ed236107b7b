// Finished pieces: taken over by the same settings only, and never when torn.
#include "model/diagnose/pieces.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/support/temporary_folder.h"

namespace tailor::diagnose {
namespace {

using nlohmann::ordered_json;

TEST(Pieces, AreFoundAgainByTheSameSettingsOnly) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/pieces";
  const auto first = PieceStore::open(path, {{"seed", 1}});
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(first->find("a").has_value());
  ASSERT_TRUE(first->put("a", {{"loss", 0.1}}).is_ok());

  const auto same = PieceStore::open(path, {{"seed", 1}});
  ASSERT_TRUE(same->find("a").has_value());
  EXPECT_EQ(same->find("a")->at("loss"), 0.1);
  const auto other = PieceStore::open(path, {{"seed", 2}});
  EXPECT_FALSE(other->find("a").has_value());
  ASSERT_TRUE(other->put("a", {{"loss", 0.2}}).is_ok());
  EXPECT_FALSE(PieceStore::open(path, {{"seed", 1}})->find("a").has_value());
}

TEST(Pieces, TornOrForeignFilesAreNone) {
  const test::TemporaryFolder folder;
  const auto store = PieceStore::open(folder.path(), {{"seed", 1}});
  ASSERT_TRUE(store->put("a", {{"loss", 0.1}}).is_ok());
  const std::string whole = *read_file(folder.path() + "/a.json");
  for (std::size_t size = 0; size + 2 < whole.size(); ++size) {
    std::ofstream(folder.path() + "/a.json") << whole.substr(0, size);
    EXPECT_FALSE(store->find("a").has_value()) << size;
  }
  std::ofstream(folder.path() + "/a.json") << "[1, 2]";
  EXPECT_FALSE(store->find("a").has_value());
}

}  // namespace
}  // namespace tailor::diagnose
