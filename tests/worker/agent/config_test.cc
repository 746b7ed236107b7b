// flag > file > default, and what is refused.
#include "worker/agent/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/worker/agent/temporary_folder.h"

namespace tailor::agent {
namespace {

using testing::HasSubstr;

class WorkerConfigTest : public testing::Test {
 protected:
  CommandLine parse(std::vector<std::string> arguments) {
    std::vector<const char*> argv{"tailor-worker"};
    for (const std::string& a : arguments) argv.push_back(a.c_str());
    return parse_command_line(static_cast<int>(argv.size()), argv.data());
  }
  std::string write(const std::string& text) {
    std::ofstream(folder_.file("worker.toml")) << text;
    return folder_.file("worker.toml");
  }
  TemporaryFolder folder_;
};

TEST_F(WorkerConfigTest, AFlagWinsOverTheFileAndTheFileOverTheDefault) {
  const std::string file = write(
      "slots = 3\ntrainer_lease = \"2s\"\nexit_when_idle = true\ncoordinator = \"lab:7070\"\n");
  const CommandLine line = parse({"--config", file, "--slots", "5"});
  ASSERT_TRUE(line.config.has_value());
  EXPECT_EQ(line.config->slots, 5);
  EXPECT_EQ(line.config->trainer_lease_ms, 2000);
  EXPECT_EQ(line.config->coordinator, "lab:7070");
  EXPECT_TRUE(line.config->exit_when_idle);
  EXPECT_EQ(line.config->offline_limit_ms, 24ll * 3600 * 1000);
}

TEST_F(WorkerConfigTest, WrongCommandLinesAndFilesEndWithUsage) {
  const std::vector<std::vector<std::string>> cases = {{"--no-such-flag"},
                                                       {"--slots", "many"},
                                                       {"--slots", "-1"},
                                                       {"--trainer-lease", "10 parsecs"},
                                                       {"--config", folder_.file("missing.toml")},
                                                       {"--config", write("slotz = 3\n")}};
  for (const auto& arguments : cases) {
    SCOPED_TRACE(arguments.front());
    const CommandLine line = parse(arguments);
    EXPECT_FALSE(line.config.has_value());
    EXPECT_EQ(line.exit_code, 2);
  }
  EXPECT_EQ(parse({"--help"}).exit_code, 0);
}

TEST_F(WorkerConfigTest, DefaultsThatDependOnTheMachineAreFilledIn) {
  WorkerConfig config;
  config.work_dir = folder_.path();
  config.trainer = "/bin/sh";
  ASSERT_TRUE(complete_config(&config).is_ok());
  EXPECT_GT(config.memory_bytes, 0u);
  ASSERT_TRUE(complete_name(&config).is_ok());
  EXPECT_FALSE(config.name.empty());
  const std::string name = config.name;
  config.name.clear();
  ASSERT_TRUE(complete_name(&config).is_ok());
  EXPECT_EQ(config.name, name) << "kept in the work folder";
  EXPECT_EQ(config.trials_dir, folder_.path() + "/trials");
  EXPECT_TRUE(check_trainer(config).is_ok());
  EXPECT_THAT(describe(config), HasSubstr("offline_limit=86400000ms"));
}

TEST_F(WorkerConfigTest, LabelsAndSizesAreRead) {
  WorkerConfig config;
  config.work_dir = folder_.path();
  config.labels = "fast, rack=7";
  config.memory = "3GiB";
  config.disk_reserve = "5 %";
  ASSERT_TRUE(complete_config(&config).is_ok());
  EXPECT_THAT(config.label_list, testing::ElementsAre("fast", "rack=7"));
  EXPECT_EQ(config.memory_bytes, 3ull << 30);
  EXPECT_DOUBLE_EQ(config.disk_reserve_share, 0.05);
  config.disk_reserve = "2GiB";
  ASSERT_TRUE(complete_config(&config).is_ok());
  EXPECT_EQ(config.disk_reserve_bytes, 2ull << 30);
  EXPECT_EQ(config.disk_reserve_share, 1);
  config.disk_reserve = "0";
  ASSERT_TRUE(complete_config(&config).is_ok());
  EXPECT_EQ(config.disk_reserve_bytes, 0u);
}

TEST_F(WorkerConfigTest, EveryWrongValueIsNamed) {
  const auto message = [&](auto change) {
    WorkerConfig config;
    config.work_dir = folder_.path();
    change(config);
    const Status status = complete_config(&config);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message([](WorkerConfig& c) { c.coordinator = "lab"; }), HasSubstr("--coordinator"));
  EXPECT_THAT(message([](WorkerConfig& c) { c.coordinator = "lab:99999"; }),
              HasSubstr("host:port"));
  EXPECT_THAT(message([](WorkerConfig& c) { c.device = "tpu"; }), HasSubstr("--device"));
  EXPECT_THAT(message([](WorkerConfig& c) { c.work_dir = ""; }), HasSubstr("--work-dir"));
  EXPECT_THAT(message([](WorkerConfig& c) { c.trainer_lease_ms = 1; }),
              HasSubstr("--trainer-lease"));
  EXPECT_THAT(message([](WorkerConfig& c) { c.labels = "a,,b"; }), HasSubstr("--labels"));
  EXPECT_THAT(message([](WorkerConfig& c) { c.labels = "a b"; }), HasSubstr("--labels"));
  EXPECT_THAT(message([](WorkerConfig& c) { c.memory = "much"; }), HasSubstr("--memory"));
  EXPECT_THAT(message([](WorkerConfig& c) { c.disk_reserve = "101%"; }),
              HasSubstr("--disk-reserve"));
  EXPECT_THAT(message([](WorkerConfig& c) { c.disk_reserve = "some"; }),
              HasSubstr("--disk-reserve"));
  WorkerConfig config;
  config.trainer = folder_.file("nothing");
  EXPECT_EQ(check_trainer(config).code(), Code::kNotFound);
  config.trainer = folder_.path();  // a folder may be entered, which looks like "can be run"
  EXPECT_EQ(check_trainer(config).code(), Code::kNotFound);
}

}  // namespace
}  // namespace tailor::agent
