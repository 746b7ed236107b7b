// tailor data: the client hands its words to tailor-tokenize, with its output and exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "tests/support/temporary_folder.h"

namespace tailor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class DataCommand : public ::testing::Test {
 protected:
  struct Ran {
    int exit_code = -1;
    std::string out, err;
  };

  DataCommand() { std::ofstream(path("a.txt")) << "some text\n"; }

  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  Ran run(const std::string& arguments) const {
    const std::string out = path("stdout"), err = path("stderr");
    const int status = std::system(
        ("'" TAILOR_BIN_DIR "/tailor' " + arguments + " >" + out + " 2>" + err).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out).value_or(""),
            read_file(err).value_or("")};
  }

  const test::TemporaryFolder temporary_;
  const std::string dir_ = temporary_.path();
};

TEST_F(DataCommand, PreparesVerifiesAndShows) {
  const std::string prepare = "data prepare " + path("a.txt") +
                              " --tokenizer bytes --validation-fraction 0 --out " + path("d");
  // --json before or behind, as with every command.
  for (const std::string& line : {"--json " + prepare, prepare + " --json"}) {
    const Ran ran = run(line);
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(nlohmann::json::parse(ran.out)["tokens"], 11);
  }
  EXPECT_EQ(run("data verify " + path("d")).exit_code, 0);
  EXPECT_THAT(run("data show " + path("d") + " --tokens 4").out, HasSubstr("first text  some\n"));
  EXPECT_THAT(run("data show --tokens 4 " + path("d")).out, HasSubstr("first text  some\n"));
}

TEST_F(DataCommand, ErrorsKeepTheirExitCodesAndSpeakOfTailorData) {
  const Ran missing = run("data show " + path("none"));
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.err, StartsWith("tailor data: "));
  EXPECT_EQ(run("data prepare " + path("a.txt")).exit_code, 2);
  const Ran unknown = run("data prepar x");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean prepare?"));
  EXPECT_EQ(run("data").exit_code, 2);
}

TEST_F(DataCommand, HelpStartsWithExamples) {
  EXPECT_THAT(run("data --help").out, StartsWith("Examples:\n  tailor data prepare"));
  EXPECT_THAT(run("data import --help").out, StartsWith("Examples:\n  tailor data import"));
}

}  // namespace
}  // namespace tailor
