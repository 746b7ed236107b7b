// The CUDA plugin cannot run without a GPU and CUDA's libraries, but it must not have a symbol that
// nobody defines: each undefined one is looked up in the libraries that it is loaded with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "model/kernels/op_check.h"

namespace tailor {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[4096];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe))
    text.append(buffer, got);
  ::pclose(pipe);
  return text;
}

// Symbol names that `nm` prints, without versions.
std::set<std::string> symbols(const std::string& arguments) {
  std::set<std::string> names;
  std::istringstream lines(output_of("nm -D " + arguments + " 2>/dev/null"));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
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
  return names;
}

std::string library_of_compiler(const std::string& name) {
  std::string text = output_of("g++ -print-file-name=" + name);
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
  libraries.push_back(TAILOR_CUBLASLT);
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
  // Its own part: the dispatcher, CUDA's run time, products and graphs;
  // and what the trainer asks for.
  const auto wants = [&](const std::string& start) {
    const auto found = wanted.lower_bound(start);
    return found != wanted.end() && found->starts_with(start);
  };
  for (const char* name : {"cudaGetDeviceCount", "cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic",
                           "_ZN2at4cuda9CUDAGraph13capture_begin", "_ZN2at4cuda9CUDAGraph6replay",
                           "_ZN5torch7LibraryC1E"}) {
    EXPECT_TRUE(wants(name)) << name;
  }
  const std::set<std::string> own = symbols("--defined-only " + plugin);
  for (const char* name :
       {"tailor_cuda_device_count", "tailor_cuda_device_name", "tailor_cuda_make_graph"}) {
    EXPECT_TRUE(own.contains(name)) << name;
  }
}

// Architectures whose machine code stands in the fat binaries of `file`: a header (magic, version,
// its size, size of what follows), then entries (kind: 2 for machine code; header size; size; ...
// at 28 the architecture), as cuobjdump lists them.
std::set<std::uint32_t> architectures_of(const std::string& file) {
  const auto number = [&](std::size_t at, auto value) {
    if (at + sizeof value <= file.size()) std::memcpy(&value, file.data() + at, sizeof value);
    return value;
  };
  std::set<std::uint32_t> found;
  const std::string magic("\x50\xed\x55\xba", 4);
  for (std::size_t at = file.find(magic); at != std::string::npos; at = file.find(magic, at + 4)) {
    const std::size_t end = at + 16 + number(at + 8, std::uint64_t{0});
    for (std::size_t entry = at + 16; entry + 64 <= std::min(end, file.size());) {
      if (number(entry, std::uint16_t{0}) == 2) found.insert(number(entry + 28, std::uint32_t{0}));
      entry += number(entry + 4, std::uint32_t{0}) + number(entry + 8, std::uint64_t{0});
    }
  }
  return found;
}

TEST(CudaPluginTest, EveryKernelIsThereForEveryArchitecture) {
  std::ifstream stream(std::string(TAILOR_BIN_DIR) + "/libtailor_cuda.so", std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  // Kernels are registered by name; the names of template instances hold that of the template.
  for (const char* kernel : {"rms_norm_kernel", "rms_norm_backward_kernel", "column_sum_kernel",
                             "swiglu_kernel", "swiglu_backward_kernel", "rope_kernel",
                             "cross_entropy_kernel", "sum_squares_kernel", "sum_parts_kernel"}) {
    EXPECT_NE(file.find(std::to_string(std::strlen(kernel)) + kernel), std::string::npos) << kernel;
  }
  const std::set<std::uint32_t> found = architectures_of(file);
  std::istringstream wanted(TAILOR_CUDA_ARCHITECTURES);
  std::string architecture;
  while (std::getline(wanted, architecture, ',')) {
    EXPECT_TRUE(found.contains(static_cast<std::uint32_t>(std::stoul(architecture))))
        << "no machine code for sm_" << architecture;
  }
}

// Instances of kernel template `kernel` in the names of `file`: "8 f32 bf16" for values a lane
// takes at a time and types. A mangled name goes on "kernelILi8EfNS1_4Bf16EEEv...": a repeated type
// is written S4_.
std::set<std::string> instances_of(const std::string& file, const std::string& kernel) {
  const std::regex types("f|NS[0-9A-Z]*_4Bf16E|S[0-9A-Z]*_");
  std::set<std::string> found;
  const std::string start = std::to_string(kernel.size()) + kernel + "ILi";
  for (std::size_t at = file.find(start); at != std::string::npos; at = file.find(start, at + 1)) {
    std::size_t next = at + start.size();
    std::string text(1, file[next]);
    next += 2;                                        // the digit and its E
    if (file.compare(next, 2, "Lb") == 0) next += 4;  // rope_kernel's direction
    std::smatch type;
    std::string last;
    const std::string rest = file.substr(next, 40);
    auto from = rest.begin();
    while (
        std::regex_search(from, rest.end(), type, types, std::regex_constants::match_continuous)) {
      if (type.str()[0] != 'S') last = type.str() == "f" ? "f32" : "bf16";
      text += " " + last;
      from += type.length();
    }
    found.insert(text);
  }
  return found;
}

// nvcc made what op_table.h lists, no more and no less.
TEST(CudaPluginTest, KernelsHaveTheCombinationsOfTheTableOfOperators) {
  std::ifstream stream(std::string(TAILOR_BIN_DIR) + "/libtailor_cuda.so", std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(stream)), {});
  using namespace kernels;
  for (const char* name : {"rms_norm", "rms_norm_backward", "swiglu", "swiglu_backward",
                           "rope_split", "rope_merge", "cross_entropy_"}) {
    const Operator* line = find_operator(kOperators, name);
    ASSERT_NE(line, nullptr) << name;
    const bool norm = std::string(name).starts_with("rms_norm");
    std::set<std::string> wanted;
    for (const Combination& combination : combinations_of(*line)) {
      for (const char* lanes : {"1", "8"}) {
        std::string text = std::string(lanes) + " " + std::string(type_name(combination.x));
        if (norm) text += " " + std::string(type_name(combination.y));
        wanted.insert(text);
      }
    }
    std::string kernel = name;
    if (kernel.starts_with("rope")) kernel = "rope";
    if (kernel.ends_with("_")) kernel.pop_back();
    EXPECT_EQ(instances_of(file, kernel + "_kernel"), wanted) << name;
  }
}

}  // namespace
}  // namespace tailor
