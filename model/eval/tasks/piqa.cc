// PIQA (Bisk et al., arXiv 1911.11641), validation split.
//
//   context  Question: {goal}\nAnswer:
//   choices  sol1, sol2; nothing is trimmed
//   gold     label, 0 or 1; the release has the labels in a second file (items.h)
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/eval/members.h"
#include "model/eval/task.h"

namespace tailor::eval {
namespace {

Result<Item> piqa_item(const nlohmann::json& object) {
  Item item;
  TAILOR_ASSIGN_OR_RETURN(const std::string goal, text_member(object, "goal"));
  item.context = fmt::format("Question: {}\nAnswer:", goal);
  TAILOR_ASSIGN_OR_RETURN(item.choices.emplace_back(), text_member(object, "sol1"));
  TAILOR_ASSIGN_OR_RETURN(item.choices.emplace_back(), text_member(object, "sol2"));
  TAILOR_ASSIGN_OR_RETURN(item.gold, index_member(object, "label", 2));
  return item;
}

constexpr std::string_view kPiqaFiles[] = {"piqa.jsonl", "piqa/valid.jsonl",
                                           "physicaliqa-train-dev/dev.jsonl"};

}  // namespace

constinit const Task kPiqa = {"piqa", "PIQA, validation split (1838 items)", kPiqaFiles, piqa_item};

}  // namespace tailor::eval
