// Prints the ids that tokenizers give, for tests/parity/pretrained.sh and tokenizers.sh:
//
//   parity_tokens TOKENIZER FILE...
//       one line of JSON a file: {"plain": [...], "special": [...]}
//   parity_tokens TOKENIZER --speed FILE
//       how fast it encodes, in MB a processor second
//   parity_tokens --cases FILE
//       of lines {"tokenizer": "text of a tokenizer.json", "texts": [...]}; one line each:
//       {"ids": [[plain, special], ...], "cuts": how often texts were cut, "cut_differs": a text
//       whose parts have other ids than the whole, or ""}, or {"refused": why}
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "base/clock.h"
#include "base/file.h"
#include "model/tokenizers/open_tokenizer.h"
#include "model/tokenizers/tokenizer_files.h"
#include "tests/model/tokenizers/parts.h"

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

// Cuts `text` as long documents are cut, in windows of `window` bytes. False: other ids.
bool same_in_parts(tailor::tokenizers::Tokenizer& tokenizer, std::string_view text,
                   std::size_t window, std::size_t* cuts) {
  std::vector<std::uint32_t> whole;
  tokenizer.encode(text, &whole);
  const tailor::test::Parts parts = tailor::test::encoded_in_parts(tokenizer, text, window);
  *cuts += parts.count > 0 ? parts.count - 1 : 0;
  return whole == parts.ids;
}

nlohmann::json answer(const nlohmann::json& one) {
  const tailor::tokenizers::TokenizerHints hints{{}, "</s>", {}};
  auto spec =
      tailor::tokenizers::read_tokenizer_json(one["tokenizer"].get<std::string>(), hints, "case");
  if (!spec) return {{"refused", spec.error().message()}};
  const auto made = tailor::tokenizers::make_text_tokenizer(std::move(*spec), "case");
  if (!made) return {{"refused", made.error().message()}};
  nlohmann::json ids = nlohmann::json::array();
  std::size_t cuts = 0;
  std::string differs;
  for (const nlohmann::json& entry : one["texts"]) {
    const auto text = entry.get<std::string>();
    std::vector<std::uint32_t> plain, special;
    (*made)->encode(text, &plain);
    (*made)->encode_with_specials(text, &special);
    ids.push_back({plain, special});
    for (const std::size_t window : {2, 5, 17, 40}) {
      if (!same_in_parts(**made, text, window, &cuts)) differs = text;
    }
  }
  return {{"ids", ids}, {"cuts", cuts}, {"cut_differs", differs}};
}

Status run_cases(const char* path) {
  TAILOR_ASSIGN_OR_RETURN(const std::string cases, tailor::read_file(path));
  std::istringstream lines(cases);
  for (std::string line; std::getline(lines, line);) {
    fmt::print("{}\n", answer(nlohmann::json::parse(line)).dump());
  }
  return Status::ok();
}

Status run(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--cases") return run_cases(argv[2]);
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
