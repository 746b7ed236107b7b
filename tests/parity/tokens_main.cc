// Prints the ids that a tokenizer gives for files, for tests/parity/pretrained.sh:
//
//   parity_tokens TOKENIZER FILE...
//     one line of JSON a file: {"plain": [...], "special": [...]}
//   parity_tokens TOKENIZER --speed FILE
//     how fast it encodes, in MB a processor second
#include <fmt/format.h>

#include <string_view>

#include "base/clock.h"
#include "base/file.h"
#include "model/tokenizers/open_tokenizer.h"

namespace {

using tailor::Result;
using tailor::Status;

Status measure(tailor::tokenizers::Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::uint32_t> ids;
  const double begin = tailor::process_cpu_seconds();
  tokenizer.encode(text, &ids);
  const double seconds = tailor::process_cpu_seconds() - begin;
  fmt::print("{{\"mb_per_cpu_s\": {:.2f}, \"tokens\": {}}}\n",
             static_cast<double>(text.size()) / seconds / 1e6, ids.size());
  return Status::ok();
}

Status run(int argc, char** argv) {
  if (argc < 3) return Status(tailor::Code::kInvalidArgument, "usage: TOKENIZER [--speed] FILE...");
  TAILOR_ASSIGN_OR_RETURN(const auto tokenizer, tailor::tokenizers::open_tokenizer(argv[1]));
  bool speed = false;
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--speed") {
      speed = true;
      continue;
    }
    TAILOR_ASSIGN_OR_RETURN(const std::string text, tailor::read_file(argv[i]));
    if (speed) {
      TAILOR_RETURN_IF_ERROR(measure(*tokenizer, text));
      continue;
    }
    std::vector<std::uint32_t> plain, special;
    tokenizer->encode(text, &plain);
    tokenizer->encode_with_specials(text, &special);
    fmt::print("{{\"plain\": [{}], \"special\": [{}]}}\n", fmt::join(plain, ", "),
               fmt::join(special, ", "));
  }
  return Status::ok();
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = run(argc, argv);
  if (!status.is_ok()) fmt::print(stderr, "parity_tokens: {}\n", status.message());
  return status.is_ok() ? 0 : 1;
}
