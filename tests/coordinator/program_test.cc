// The program tailor-coordinator as a user meets it:
// serves, drains, refuses with a reason and an exit code.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/coordinator/engine/support.h"
#include "tests/coordinator/http/raw_client.h"
#include "tests/support/temporary_folder.h"

namespace tailor::coordinator {
namespace {

namespace fs = std::filesystem;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class ProgramTest : public ::testing::Test {
 protected:
  ~ProgramTest() override {
    for (const pid_t pid : running_) ::kill(pid, SIGKILL);
    for (const pid_t pid : running_) ::waitpid(pid, nullptr, 0);
  }

  /// Starts the program in the folder; its stderr goes to the file "log".
  pid_t start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), std::string(TAILOR_BIN_DIR) + "/tailor-coordinator");
    std::vector<char*> raw;
    for (auto& argument : arguments) raw.push_back(argument.data());
    raw.push_back(nullptr);
    const std::string log = (folder_ / "log").string();
    const std::string where = folder_.string();
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      ::dup2(fd, STDERR_FILENO);
      ::dup2(fd, STDOUT_FILENO);
      if (::chdir(where.c_str()) != 0) ::_exit(126);
      ::execv(raw[0], raw.data());
      ::_exit(127);
    }
    running_.push_back(pid);
    return pid;
  }
  int wait(pid_t pid) {
    int status = 0;
    const bool ended = eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; });
    if (!ended) return -1;
    std::erase(running_, pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int run(std::vector<std::string> arguments) { return wait(start(std::move(arguments))); }
  std::string log() const { return text_of(folder_ / "log"); }

  /// A coordinator on free ports that serves.
  struct Served {
    pid_t pid = 0;
    int grpc = 0;
    int http = 0;
  };
  Served serve(const std::string& database = "t.db") {
    fs::remove(folder_ / "ports.json");
    Served served;
    served.pid = start({"--database", database, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                        "--port-file", "ports.json"});
    EXPECT_TRUE(eventually([&] { return fs::exists(folder_ / "ports.json"); })) << log();
    const auto ports = nlohmann::json::parse(text_of(folder_ / "ports.json"), nullptr, false);
    EXPECT_TRUE(ports.is_object()) << "the port file is whole when it is there";
    if (ports.is_object()) {
      served.grpc = ports.at("grpc");
      served.http = ports.at("http");
    }
    return served;
  }
  int stop(const Served& served) {
    ::kill(served.pid, SIGTERM);
    return wait(served.pid);
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::vector<pid_t> running_;
};

TEST_F(ProgramTest, ServesPrintsItsSettingsAndDrainsOnSigterm) {
  const Served served = serve();
  EXPECT_EQ(http::status_of_answer(http::get(served.http, "/readyz")), 200);
  EXPECT_THAT(log(), HasSubstr("lease=\"30000 ms\""));
  EXPECT_EQ(stop(served), 0) << log();
  EXPECT_THAT(log(), HasSubstr("stopped"));
  EXPECT_THAT(log(), Not(HasSubstr(" error ")));  // the level of a line
}

TEST_F(ProgramTest, StartsAgainOnTheSameDatabaseAlsoAfterBeingKilled) {
  const Served first = serve();
  ::kill(first.pid, SIGKILL);
  EXPECT_EQ(wait(first.pid), -SIGKILL);
  const Served second = serve();
  EXPECT_EQ(http::status_of_answer(http::get(second.http, "/healthz")), 200);
  EXPECT_EQ(stop(second), 0);
}

TEST_F(ProgramTest, ADatabaseInUseIsAConflictThatNamesTheOwner) {
  const Served served = serve();
  EXPECT_EQ(run({"--database", "t.db", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}), 7);
  EXPECT_THAT(log(), HasSubstr(std::to_string(served.pid)));
  EXPECT_EQ(http::status_of_answer(http::get(served.http, "/healthz")), 200);
}

TEST_F(ProgramTest, APortInUseIsAConflictAndNothingIsLeftBehind) {
  const Served served = serve();
  const std::string grpc = "127.0.0.1:" + std::to_string(served.grpc);
  const std::string http = "127.0.0.1:" + std::to_string(served.http);
  EXPECT_EQ(run({"--database", "u.db", "--listen", grpc, "--http", "127.0.0.1:0"}), 7);
  EXPECT_THAT(log(), HasSubstr(grpc));
  EXPECT_EQ(run({"--database", "u.db", "--listen", "127.0.0.1:0", "--http", http}), 7);
  EXPECT_THAT(log(), HasSubstr(http));
  EXPECT_FALSE(fs::exists(folder_ / "u.db"));
}

TEST_F(ProgramTest, APortFileThatCannotBeWrittenIsARefusalThatNamesIt) {
  EXPECT_EQ(run({"--database", "t.db", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                 "--port-file", "no/such/ports.json"}),
            1);
  EXPECT_THAT(log(), HasSubstr("no/such/ports.json"));
}

TEST_F(ProgramTest, BadSettingsAreExitCodeTwo) {
  EXPECT_EQ(run({}), 2);
  EXPECT_THAT(log(), HasSubstr("--database"));
  EXPECT_EQ(run({"--database", "t.db", "--listen", "0.0.0.0:0"}), 2);
  EXPECT_THAT(log(), HasSubstr("--insecure"));
  EXPECT_EQ(run({"--database", "t.db", "--lease", "never"}), 2);
  EXPECT_EQ(run({"--databse", "t.db"}), 2);
  EXPECT_FALSE(fs::exists(folder_ / "t.db"));
}

TEST_F(ProgramTest, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(log(), HasSubstr("Examples:"));
  EXPECT_EQ(run({"--version"}), 0);
}

TEST_F(ProgramTest, ANewerSchemaIsRefusedAndLeftAlone) {
  EXPECT_EQ(stop(serve()), 0);
  {
    // `user_version` of an SQLite file: four bytes at offset 60, big-endian.
    std::fstream file(folder_ / "t.db", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(60);
    file.write("\x00\x00\x03\xe7", 4);
  }
  const std::string before = text_of(folder_ / "t.db");
  EXPECT_EQ(run({"--database", "t.db", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}), 1);
  EXPECT_THAT(log(), HasSubstr("newer"));
  EXPECT_EQ(text_of(folder_ / "t.db"), before);
}

TEST_F(ProgramTest, ACorruptFileIsRefusedWithWhatToDo) {
  std::ofstream(folder_ / "t.db") << "this is no database, whatever its name says\n";
  EXPECT_EQ(run({"--database", "t.db", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}), 1);
  EXPECT_THAT(log(), HasSubstr("t.db"));
  EXPECT_EQ(text_of(folder_ / "t.db"), "this is no database, whatever its name says\n");
}

TEST_F(ProgramTest, AFolderThatIsNotThereIsNamed) {
  EXPECT_EQ(run({"--database", "no/such/t.db", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}),
            1);
  EXPECT_THAT(log(), HasSubstr("no/such"));
}

}  // namespace
}  // namespace tailor::coordinator
