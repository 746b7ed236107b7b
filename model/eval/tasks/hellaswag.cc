// HellaSwag (Zellers et al., arXiv 1905.07830), validation split.
//
//   context  clean({activity_label}: {ctx_a} {ctx_b with its first letter upper case, the rest
//            lower})
//   choices  clean(ending), four
//   gold     label, a number or its digits
//
// clean, in this order: trim both ends; " [title]" becomes ". "; every shortest [...] within a line
// is deleted; two spaces become one, in a single pass from the left. Nothing is trimmed afterwards,
// so a context may end in a space, which then moves to the continuation (request.h).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/eval/members.h"
#include "model/eval/task.h"
#include "model/eval/unicode.h"

namespace tailor::eval {
namespace {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t found = text.find(from); found != text.npos; found = text.find(from)) {
    out += text.substr(0, found);
    out += to;
    text.remove_prefix(found + from.size());
  }
  out += text;
  return out;
}

std::string without_brackets(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text[0] == '[') {
      const std::size_t end = text.find_first_of("]\n", 1);
      if (end != text.npos && text[end] == ']') {
        text.remove_prefix(end + 1);
        continue;
      }
    }
    out += text[0];
    text.remove_prefix(1);
  }
  return out;
}

std::string clean(std::string_view text) {
  return replace_all(without_brackets(replace_all(strip(text), " [title]", ". ")), "  ", " ");
}

Result<Item> hellaswag_item(const nlohmann::json& object) {
  TAILOR_ASSIGN_OR_RETURN(const std::string activity, text_member(object, "activity_label"));
  TAILOR_ASSIGN_OR_RETURN(const std::string start, text_member(object, "ctx_a"));
  TAILOR_ASSIGN_OR_RETURN(const std::string rest, text_member(object, "ctx_b"));
  Item item;
  item.context = clean(fmt::format("{}: {} {}", activity, start, capitalize(rest)));
  TAILOR_ASSIGN_OR_RETURN(item.choices, texts_member(object, "endings"));
  for (std::string& ending : item.choices) ending = clean(ending);
  TAILOR_ASSIGN_OR_RETURN(item.gold, index_member(object, "label", item.choices.size()));
  return item;
}

constexpr std::string_view kHellaswagFiles[] = {"hellaswag.jsonl", "hellaswag_val.jsonl",
                                                "hellaswag/hellaswag_val.jsonl"};

}  // namespace

constinit const Task kHellaswag = {"hellaswag", "HellaSwag, validation split (10042 items)",
                                   kHellaswagFiles, hellaswag_item};

}  // namespace tailor::eval
