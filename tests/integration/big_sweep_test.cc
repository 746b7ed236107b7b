// The client on a sweep whose lists are many pages: 2,500 candidates, 10,000 trials. (What the
// coordinator answers on 300,000: tests/coordinator/rpc/bounded_test.cc.)
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <future>
#include <set>
#include <sstream>

#include "base/file.h"
#include "tests/integration/cluster.h"

namespace tailor::testing {
namespace {

constexpr int kCandidates = 2'500;
constexpr int kSeeds = 4;
constexpr int kTrials = kCandidates * kSeeds;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// No worker is there: none of this needs one.
class BigSweep : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.start_coordinator();
    std::string candidates;
    for (int i = 2; i < kCandidates; ++i) {  // write_sweep makes two
      candidates += fmt::format("[[candidate]]\nname = \"c{}\"\n\"ffn.d_h\" = {}\n", i, 1'000 + i);
    }
    const CommandResult result = cluster_.tailor(
        {"--timeout", "120", "submit", cluster_.write_sweep("s", 2, kSeeds, candidates)}, 120);
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  CommandResult tailor(std::vector<std::string> arguments) {
    const CommandResult result = cluster_.tailor(std::move(arguments), 120);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }

  Cluster cluster_;
};

TEST_F(BigSweep, IsShownPageByPage) {
  const CommandResult first = tailor({"show", "s"});
  EXPECT_TRUE(has(first.out, "2,500 candidates")) << first.out.substr(0, 500);
  EXPECT_TRUE(has(first.err, "2,400 more (--all, --offset 100)")) << first.err;
  EXPECT_LT(lines_of(first.out).size(), 120u);
  const auto page = cluster_.tailor_json({"show", "s", "--offset", "2400", "--limit", "300"});
  EXPECT_EQ(page["candidates"].size(), 100u);
  EXPECT_EQ(page["candidates_total"], kCandidates);
  EXPECT_EQ(page["candidates"][0]["index"], 2'400);
  const auto all = cluster_.tailor_json({"show", "s", "--all"});
  ASSERT_EQ(all["candidates"].size(), static_cast<std::size_t>(kCandidates));
  EXPECT_EQ(all["candidates"][kCandidates - 1]["index"], kCandidates - 1);
  EXPECT_EQ(all["more"], false);

  const CommandResult listed = tailor({"ls", "s"});
  EXPECT_EQ(lines_of(listed.out).size(), 101u) << "a header and a page";
  EXPECT_TRUE(has(listed.err, fmt::format("100 of {} trials", kTrials))) << listed.err;
  std::set<std::int64_t> ids;
  for (const std::string& line : lines_of(tailor({"--jsonl", "ls", "s", "--all"}).out)) {
    ids.insert(nlohmann::json::parse(line)["id"].get<std::int64_t>());
  }
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(kTrials));
  const auto last = cluster_.tailor_json({"ls", "s", "--order", "candidate", "--offset", "9998"});
  EXPECT_EQ(last["trials"].size(), 2u);
}

TEST_F(BigSweep, IsExportedWhole) {
  const auto csv = lines_of(tailor({"export", "s"}).out);
  EXPECT_EQ(csv.size(), static_cast<std::size_t>(kTrials) + 1);
  const std::string file = (cluster_.dir() / "trials.json").string();
  tailor({"export", "s", "--format", "json", "-o", file});
  const auto json = nlohmann::json::parse(read_file(file).value());
  ASSERT_EQ(json.size(), static_cast<std::size_t>(kTrials));
  EXPECT_EQ(json[0]["state"], "queued");
  EXPECT_EQ(lines_of(tailor({"--jsonl", "export", "s"}).out).size(),
            static_cast<std::size_t>(kTrials));
  const CommandResult curves = tailor({"export", "s", "--what", "curves"});
  EXPECT_EQ(lines_of(curves.out).size(), 1u);
  EXPECT_TRUE(has(curves.err, "no trial of the sweep has a curve")) << curves.err;
}

TEST_F(BigSweep, HasATrialWrittenOutToRunAgain) {
  const std::string folder = (cluster_.dir() / "again").string();
  const CommandResult result = tailor({"reproduce", "t9999", "--to", folder});
  EXPECT_TRUE(has(result.out, "tailor-trainer run " + folder)) << result.out;
  const auto spec = nlohmann::json::parse(read_file(folder + "/spec.json").value());
  const auto about = nlohmann::json::parse(read_file(folder + "/reproduce.json").value());
  EXPECT_EQ(spec["candidate_name"], about["candidate"]);
  EXPECT_EQ(about["trial"], 9'999);
  EXPECT_TRUE(about["attempt"].is_null());
  EXPECT_TRUE(has(read_file(folder + "/sweep.toml").value(), "name = \"s\""));
  EXPECT_EQ(cluster_.tailor({"reproduce", "t9998", "--to", folder}).exit_code, 7)
      << "nothing of another trial may lie there";
}

TEST_F(BigSweep, IsCancelledByAFilterAfterADryRun) {
  const auto dry = cluster_.tailor_json({"cancel", "s", "--state", "queued", "--dry-run"});
  EXPECT_EQ(dry["total"], kTrials);
  EXPECT_EQ(dry["trials"].size(), 1'000u);
  EXPECT_EQ(dry["dry_run"], true);
  const CommandResult said = tailor({"cancel", "s", "--candidate", "c7", "--dry-run"});
  EXPECT_TRUE(has(said.out, "would cancel 4 trials of sweep s1 \"s\"")) << said.out;
  const CommandResult script =
      cluster_.tailor({"cancel", "s", "--candidate", "c7", "--candidate", "c8"});
  EXPECT_EQ(script.exit_code, 2);
  EXPECT_TRUE(has(script.err, "--yes")) << script.err;
  EXPECT_EQ(cluster_.query("SELECT count(*) FROM trial WHERE state = 'cancelled'")[0][0], "0");
  const auto done =
      cluster_.tailor_json({"cancel", "s", "--candidate", "c7", "--candidate", "c8", "--yes"});
  EXPECT_EQ(done["total"], 8);
  EXPECT_EQ(cluster_.query("SELECT count(*) FROM trial WHERE state = 'cancelled'")[0][0], "8");
  const auto again =
      cluster_.tailor_json({"retry", "s", "--state", "cancelled", "--candidate", "c8", "--yes"});
  EXPECT_EQ(again["total"], 4);
  EXPECT_EQ(cluster_.query("SELECT count(*) FROM trial WHERE state = 'cancelled'")[0][0], "4");
  const CommandResult nothing = tailor({"retry", "s", "--class", "oom", "--yes"});
  EXPECT_TRUE(has(nothing.out, "nothing to retry")) << nothing.out;
  const CommandResult wrong = cluster_.tailor({"retry", "s", "--class", "ooom", "--yes"});
  EXPECT_EQ(wrong.exit_code, 2) << wrong.err;
}

TEST_F(BigSweep, IsWatchedToItsEnd) {
  auto watching = std::async(std::launch::async, [this] {
    return cluster_.tailor({"--json", "watch", "s", "--interval", "0.1"}, 120);
  });
  tailor({"pause", "s"});
  tailor({"resume", "s"});
  tailor({"cancel", "s"});
  const CommandResult watched = watching.get();
  EXPECT_EQ(watched.exit_code, 4) << watched.err;
  EXPECT_TRUE(has(watched.err, fmt::format("{} cancelled", kTrials))) << watched.err;
  const auto events = lines_of(watched.out);
  EXPECT_EQ(std::to_string(events.size()), cluster_.query("SELECT count(*) FROM event")[0][0]);
}

}  // namespace
}  // namespace tailor::testing
