// ARC-Easy (Clark et al., arXiv 1803.05457), test split.
//
//   context  Question: {question}\nAnswer:
//   choices  the choices' texts, 3 to 5
//   gold     the place of answerKey among the choices' labels (letters or digits)
//
// Two forms of a line: the hub's {"question": TEXT, "choices": {"text": [..], "label": [..]}} and
// the release's {"question": {"stem": TEXT, "choices": [{"text": .., "label": ..}, ..]}}.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/eval/members.h"
#include "model/eval/task.h"

namespace tailor::eval {
namespace {

using nlohmann::json;

struct ArcChoices {
  std::vector<std::string> texts;
  std::vector<std::string> labels;
};

Result<ArcChoices> arc_choices(const json& holder) {
  TAILOR_ASSIGN_OR_RETURN(const json* list, member(holder, "choices"));
  ArcChoices choices;
  if (list->is_object()) {
    TAILOR_ASSIGN_OR_RETURN(choices.texts, texts_member(*list, "text"));
    TAILOR_ASSIGN_OR_RETURN(choices.labels, texts_member(*list, "label"));
  } else if (list->is_array()) {
    for (const json& choice : *list) {
      if (!choice.is_object()) {
        return error(Code::kInvalidArgument, "\"choices\" is not a list of {\"text\", \"label\"}");
      }
      TAILOR_ASSIGN_OR_RETURN(choices.texts.emplace_back(), text_member(choice, "text"));
      TAILOR_ASSIGN_OR_RETURN(choices.labels.emplace_back(), text_member(choice, "label"));
    }
  } else {
    return error(Code::kInvalidArgument, "\"choices\" is neither an object nor a list");
  }
  if (choices.texts.size() != choices.labels.size()) {
    return error(Code::kInvalidArgument, fmt::format("\"choices\" has {} texts but {} labels",
                                                     choices.texts.size(), choices.labels.size()));
  }
  return choices;
}

Result<Item> arc_item(const json& object) {
  Item item;
  TAILOR_ASSIGN_OR_RETURN(item.id, text_member(object, "id"));
  TAILOR_ASSIGN_OR_RETURN(const json* question, member(object, "question"));
  const bool release = question->is_object();
  TAILOR_ASSIGN_OR_RETURN(const std::string text, release ? text_member(*question, "stem")
                                                          : text_member(object, "question"));
  TAILOR_ASSIGN_OR_RETURN(ArcChoices choices, arc_choices(release ? *question : object));
  TAILOR_ASSIGN_OR_RETURN(const std::string key, text_member(object, "answerKey"));
  const auto gold = std::find(choices.labels.begin(), choices.labels.end(), key);
  if (gold == choices.labels.end()) {
    return error(Code::kInvalidArgument,
                 fmt::format("\"answerKey\" is {}, which labels no choice", json(key).dump()));
  }
  item.context = fmt::format("Question: {}\nAnswer:", text);
  item.gold = static_cast<std::size_t>(gold - choices.labels.begin());
  item.choices = std::move(choices.texts);
  return item;
}

constexpr std::string_view kArcFiles[] = {"arc_easy.jsonl", "ARC-Easy-Test.jsonl",
                                          "ARC-Easy/ARC-Easy-Test.jsonl",
                                          "ARC-V1-Feb2018-2/ARC-Easy/ARC-Easy-Test.jsonl"};

}  // namespace

constinit const Task kArcEasy = {"arc_easy", "ARC-Easy, test split (2376 items)", kArcFiles,
                                 arc_item};

}  // namespace tailor::eval
