// Settings: file below command line, mistakes named, nothing but loopback without --insecure.
#include "coordinator/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace tailor::coordinator {
namespace {

using ::testing::HasSubstr;

Result<CommandLine> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tailor-coordinator");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

TEST(Config, HasDefaultsThatServeLoopbackOnly) {
  const auto command = parse({"--database", "t.db"});
  ASSERT_TRUE(command.has_value()) << command.error().message();
  EXPECT_EQ(command->config.listen, "127.0.0.1:7070");
  EXPECT_EQ(command->config.http, "127.0.0.1:7071");
  EXPECT_EQ(command->config.lease_ms, 30'000);
  EXPECT_FALSE(command->config.insecure);
}

TEST(Config, TheCommandLineWinsOverTheFileAndTheFileOverDefaults) {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("c.toml");
  std::ofstream(file) << "database = \"file.db\"\nheartbeat = \"2s\"\nlease = \"60s\"\n";
  const auto command = parse({"--config", file.c_str(), "--lease", "90s"});
  ASSERT_TRUE(command.has_value()) << command.error().message();
  EXPECT_EQ(command->config.database, (std::filesystem::current_path() / "file.db").string());
  EXPECT_EQ(command->config.heartbeat_ms, 2'000);
  EXPECT_EQ(command->config.lease_ms, 90'000);
}

TEST(Config, RefusesAnUnknownKeyWithThePlaceAndTheNearestName) {
  const auto config = parse_config("database = \"t.db\"\nheartbeet = \"5s\"\n", "c.toml", {});
  ASSERT_FALSE(config.has_value());
  EXPECT_THAT(config.error().message(), HasSubstr("c.toml:2:"));
  EXPECT_THAT(config.error().message(), HasSubstr("heartbeat"));
}

TEST(Config, RefusesAddressesOtherThanLoopbackUnlessInsecure) {
  for (const char* address :
       {"0.0.0.0:7070", "192.168.1.5:7070", "[::]:7070", "example.org:7070"}) {
    const auto refused = parse({"--database", "t.db", "--listen", address});
    ASSERT_FALSE(refused.has_value()) << address;
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.error().message(), HasSubstr("--insecure"));
    EXPECT_TRUE(parse({"--database", "t.db", "--listen", address, "--insecure"}).has_value());
    EXPECT_FALSE(parse({"--database", "t.db", "--http", address}).has_value());
  }
  for (const char* address : {"127.0.0.1:0", "127.3.2.1:80", "localhost:7070", "[::1]:7070"}) {
    EXPECT_TRUE(parse({"--database", "t.db", "--listen", address}).has_value()) << address;
  }
}

TEST(Config, RefusesNonsense) {
  EXPECT_FALSE(parse({}).has_value());
  EXPECT_FALSE(parse({"--database", "t.db", "--listen", "7070"}).has_value());
  EXPECT_FALSE(parse({"--database", "t.db", "--listen", "127.0.0.1:70707"}).has_value());
  EXPECT_FALSE(parse({"--database", "t.db", "--lease", "1s"}).has_value()) << "below 3 heartbeats";
  EXPECT_FALSE(parse({"--database", "t.db", "--heartbeat", "soon"}).has_value());
  EXPECT_FALSE(parse({"--database", "t.db", "--log-level", "loud"}).has_value());
  EXPECT_FALSE(parse({"--database", "t.db", "--nonsense"}).has_value());
  EXPECT_FALSE(parse({"--config", "/no/such/file.toml"}).has_value());
}

TEST(Config, SaysWhatQuarantinesAWorkerAndWhetherTrialsMakeRoom) {
  const auto plain = parse_config("database = \"/t.db\"\n", "c.toml", {});
  ASSERT_TRUE(plain.has_value());
  EXPECT_TRUE(plain->preemption);
  EXPECT_THAT(plain->quarantine_patterns, ::testing::Contains("uncorrectable ECC error"));
  const auto config = parse_config(
      "database = \"/t.db\"\npreemption = false\n[quarantine]\nafter = 5\nprobe = \"1 h\"\n"
      "patterns = [\"Xid 79\"]\n",
      "c.toml", {});
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_FALSE(config->preemption);
  EXPECT_EQ(config->quarantine_after, 5u);
  EXPECT_EQ(config->quarantine_probe_ms, 3'600'000);
  EXPECT_THAT(config->quarantine_patterns, ::testing::ElementsAre("Xid 79"));
  EXPECT_TRUE(validate(*config).is_ok());
  for (const char* bad :
       {"after = 0", "probe = \"1 ms\"", "patterns = [\"x\"]", "patterns = [7]", "until = 3"}) {
    const auto refused = parse_config(
        std::string("database = \"/t.db\"\n[quarantine]\n") + bad + "\n", "c.toml", {});
    EXPECT_FALSE(refused.has_value() && validate(*refused).is_ok()) << bad;
  }
}

TEST(Config, SaysWhatIsPrunedAndRefusesAgesThatMustBeMistakes) {
  const auto config = parse_config(
      "database = \"/t.db\"\n[prune]\nlogs = \"30d\"\nevents = \"90d\"\nlogs_bytes = \"2 GB\"\n",
      "c.toml", {});
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->prune_logs_ms, 30ll * 86'400'000);
  EXPECT_EQ(config->prune_points_ms, 0);
  EXPECT_EQ(config->prune_events_ms, 90ll * 86'400'000);
  EXPECT_EQ(config->prune_logs_bytes, 2'000'000'000u);
  const auto young = parse_config("[prune]\nlogs = \"30s\"\n", "c.toml", {});
  ASSERT_FALSE(young.has_value());
  EXPECT_THAT(young.error().message(), HasSubstr("logs"));
  const auto unknown = parse_config("[prune]\nlog = \"30d\"\n", "c.toml", {});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message(), HasSubstr("logs"));
}

TEST(Config, HostsThatAreAllowedBesideTheOwnOnesAreNamesAndNothingElse) {
  const auto config = parse_config(
      "database = \"/t.db\"\nallowed_hosts = [\"tailor.lab\", \"[fd00::7]\"]\n", "c.toml", {});
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_THAT(config->allowed_hosts, ::testing::ElementsAre("tailor.lab", "[fd00::7]"));
  EXPECT_TRUE(validate(*config).is_ok());
  const auto command =
      parse({"--database", "t.db", "--allowed-host", "a.lab", "--allowed-host", "b.lab:80"});
  ASSERT_TRUE(command.has_value()) << command.error().message();
  EXPECT_THAT(command->config.allowed_hosts, ::testing::ElementsAre("a.lab", "b.lab:80"));
  EXPECT_THAT(describe(command->config), HasSubstr("a.lab"));
  EXPECT_TRUE(parse({"--database", "t.db", "--allowed-host", "*"}).has_value());
  for (const char* wrong : {"http://a.lab", "a lab", "a.lab/x", ""}) {
    const auto refused = parse({"--database", "t.db", "--allowed-host", wrong});
    EXPECT_FALSE(refused.has_value()) << wrong;
  }
}

}  // namespace
}  // namespace tailor::coordinator
