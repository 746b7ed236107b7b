// SciQ (Welbl, Liu and Gardner, W-NUT 2017), test split.
//
//   context  {support, its leading white space removed}\nQuestion: {question}\nAnswer:
//   choices  distractor1, distractor2, distractor3, correct_answer
//   gold     3, always: "first maximum wins ties" works against the model here
//
// The release is one JSON list of objects, which items.h reads like lines.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/eval/members.h"
#include "model/eval/task.h"
#include "model/eval/unicode.h"

namespace tailor::eval {
namespace {

Result<Item> sciq_item(const nlohmann::json& object) {
  Item item;
  TAILOR_ASSIGN_OR_RETURN(const std::string support, text_member(object, "support"));
  TAILOR_ASSIGN_OR_RETURN(const std::string question, text_member(object, "question"));
  item.context = fmt::format("{}\nQuestion: {}\nAnswer:", strip_left(support), question);
  for (const char* key : {"distractor1", "distractor2", "distractor3", "correct_answer"}) {
    TAILOR_ASSIGN_OR_RETURN(item.choices.emplace_back(), text_member(object, key));
  }
  item.gold = 3;
  return item;
}

constexpr std::string_view kSciqFiles[] = {"sciq.jsonl", "sciq/test.json",
                                           "SciQ dataset-2 3/test.json"};

}  // namespace

constinit const Task kSciq = {"sciq", "SciQ, test split (1000 items)", kSciqFiles, sciq_item};

}  // namespace tailor::eval
