// The CUDA plugin cannot run without a GPU and CUDA's libraries, but it must not have a symbol that
// nobody defines: each undefined one is looked up in the libraries that it is loaded with.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tailor {
namespace {

// Symbol names that `nm` prints, without versions.
std::set<std::string> symbols(const std::string& arguments) {
  std::set<std::string> names;
  FILE* pipe = ::popen(("nm -D " + arguments + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return names;
  char* line = nullptr;
  std::size_t size = 0;
  while (::getline(&line, &size, pipe) > 0) {
    std::istringstream fields{std::string(line)};
    std::string field;
    std::string last;
    std::string kind;
    while (fields >> field) {
      kind = last;
      last = field;
    }
    // Weak undefined symbols ("w") may stay undefined.
    if (kind == "w" || kind == "v") continue;
    names.insert(last.substr(0, last.find('@')));
  }
  std::free(line);
  ::pclose(pipe);
  return names;
}

std::string library_of_compiler(const std::string& name) {
  FILE* pipe = ::popen(("g++ -print-file-name=" + name).c_str(), "r");
  char path[4096] = {};
  if (pipe != nullptr) {
    if (std::fgets(path, sizeof path, pipe) == nullptr) path[0] = '\0';
    ::pclose(pipe);
  }
  std::string text = path;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

TEST(CudaPluginTest, EveryUndefinedSymbolIsExportedByALibraryItIsLoadedWith) {
  const std::string plugin = std::string(TAILOR_BIN_DIR) + "/libtailor_cuda.so";
  const std::set<std::string> wanted = symbols("-u " + plugin);
  ASSERT_GT(wanted.size(), 10u) << "nm read nothing from " << plugin;
  std::set<std::string> offered;
  std::vector<std::string> libraries;
  for (const char* name :
       {"libtorch_cuda.so", "libc10_cuda.so", "libtorch_cpu.so", "libc10.so", "libcudart.so.13"}) {
    libraries.push_back(std::string(TAILOR_TORCH_LIB) + "/" + name);
  }
  for (const char* name :
       {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}) {
    libraries.push_back(library_of_compiler(name));
  }
  for (const std::string& library : libraries) offered.merge(symbols("--defined-only " + library));
  std::string missing;
  for (const std::string& name : wanted) {
    if (!offered.contains(name)) missing += "\n  " + name;
  }
  EXPECT_EQ(missing, "");
  // Its own part: it uses the dispatcher and CUDA's run time, and offers what the trainer asks for.
  EXPECT_TRUE(wanted.contains("cudaGetDeviceCount"));
  const std::set<std::string> own = symbols("--defined-only " + plugin);
  EXPECT_TRUE(own.contains("tailor_cuda_device_count"));
  EXPECT_TRUE(own.contains("tailor_cuda_device_name"));
}

}  // namespace
}  // namespace tailor
