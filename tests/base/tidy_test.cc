// Rules of the tree that a compiler does not check, as tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tailor {
namespace {

namespace fs = std::filesystem;

template <typename F>
void for_each_source(F visit) {
  for (const char* folder : {"base", "model", "geometry", "sweep", "proto", "protocol", "storage",
                             "coordinator", "worker", "client", "tests"}) {
    const fs::path root = fs::path(TAILOR_SOURCE_DIR) / folder;
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const auto ext = entry.path().extension();
      if (ext != ".h" && ext != ".cc" && ext != ".cu" && ext != ".inc" && ext != ".proto") continue;
      // Not ours.
      if (entry.path().string().find("/tests/bench/peers/") != std::string::npos) continue;
      std::ifstream in(entry.path());
      std::stringstream text;
      text << in.rdbuf();
      visit(fs::relative(entry.path(), TAILOR_SOURCE_DIR).string(), text.str());
    }
  }
}

TEST(Tidy, TimeIsReadInClockOnly) {
  for_each_source([](const std::string& path, const std::string& text) {
    if (path == "base/clock.cc" || path == "base/clock.h" || path == "tests/base/tidy_test.cc")
      return;
    for (const char* banned : {"system_clock::now", "steady_clock::now"}) {
      EXPECT_EQ(text.find(banned), std::string::npos)
          << path << " reads the clock itself: " << banned;
    }
  });
}

TEST(Tidy, PureFoldersIncludeNoInputOutput) {
  for_each_source([](const std::string& path, const std::string& text) {
    bool pure = false;
    for (const char* folder : {"coordinator/core/", "coordinator/scheduler/", "coordinator/search/",
                               "coordinator/analysis/", "sweep/", "geometry/", "model/shape/"}) {
      pure = pure || path.rfind(folder, 0) == 0;
    }
    if (path.rfind("worker/agent/step", 0) == 0) pure = true;
    if (!pure) return;
    for (const char* banned :
         {"<boost/", "<grpc", "sqlite3", "SQLiteCpp", "<torch/", "<ATen/", ".pb.h\""}) {
      EXPECT_EQ(text.find(std::string("#include ") + (banned[0] == '<' ? banned : "<") +
                          (banned[0] == '<' ? "" : banned)),
                std::string::npos)
          << path << " is pure and includes " << banned;
      if (banned[0] != '<') {
        EXPECT_EQ(text.find(std::string(banned)), std::string::npos)
            << path << " is pure and uses " << banned;
      }
    }
  });
}

TEST(Tidy, ChannelsAreMadeInOnePlace) {
  // There, proxies of the environment are switched off.
  for_each_source([](const std::string& path, const std::string& text) {
    if (path == "protocol/channel.cc" || path == "tests/base/tidy_test.cc") return;
    for (const char* banned : {"grpc::CreateChannel(", "grpc::CreateCustomChannel("}) {
      EXPECT_EQ(text.find(banned), std::string::npos) << path << " makes a channel itself";
    }
  });
}

TEST(Tidy, LinesAreAtMost100CharactersLong) {
  for_each_source([](const std::string& path, const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      // Bytes that continue a character of UTF-8 are not counted.
      const auto characters =
          std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(characters, 100) << path << ":" << number << " is over 100 columns: break it";
    }
  });
}

TEST(Tidy, ForeignTextIsParsedWithLimitsOnly) {
  for_each_source([](const std::string& path, const std::string& text) {
    if (path.rfind("tests/", 0) == 0 || path == "base/json.cc" || path == "base/config.cc") return;
    for (const char* banned : {"json::parse(", "Json::parse(", "json::accept(", "Json::accept(",
                               "sax_parse(", "toml::parse(", "#include <toml++"}) {
      EXPECT_EQ(text.find(banned), std::string::npos)
          << path << ": take base/json.h or base/config.h instead of " << banned;
    }
  });
}

TEST(Tidy, FilesStayReadable) {
  for_each_source([](const std::string& path, const std::string& text) {
    EXPECT_LT(text.size(), 64u * 1024) << path << " is over 64 kB: split it";
    if (fs::path(path).extension() == ".h") {
      EXPECT_NE(text.find("#pragma once"), std::string::npos) << path;
    }
  });
}

}  // namespace
}  // namespace tailor
