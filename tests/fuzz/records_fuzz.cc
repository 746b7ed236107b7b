// Files of an evaluation: the items of every task, and the records of an earlier run.
#include <sys/mman.h>
#include <unistd.h>

#include "model/eval/items.h"
#include "model/eval/records.h"
#include "model/eval/task.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

int descriptor() {
  static const int file = ::memfd_create("fuzz", 0);
  return file;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "[{\"a\":";
  return {
      R"({"id":"1","question":{"stem":"q","choices":[{"text":"a","label":"A"},{"text":"b",)"
      R"("label":"B"}]},"answerKey":"A"})"
      "\n",
      R"([{"goal":"g","sol1":"a","sol2":"b","label":0}])",
      R"({"ctx":"c","endings":["a","b","c","d"],"label":"3","activity_label":"x","ind":4})",
      R"({"task":"arc_easy","id":"1","gold":0,"loglikelihood":[-1.5,-2],"tokens":[1,2],)"
      R"("characters":[1,2],"bytes":[1,2]})"
      "\n",
      deep,
  };
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  const int file = fuzz::descriptor();
  fuzz::expect(
      ::ftruncate(file, 0) == 0 && ::pwrite(file, data, size, 0) == static_cast<ssize_t>(size),
      "the file can be written");
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  for (const eval::Task* task : eval::tasks()) {
    const auto items = eval::read_items(*task, path, 3);
    if (!items)
      fuzz::expect(items.error().message().find(path) != std::string::npos, "errors name the file");
  }
  const auto records = eval::read_records(path);
  if (!records) {
    fuzz::expect(records.error().message().find(path) != std::string::npos, "errors name the file");
  }
  return 0;
}
