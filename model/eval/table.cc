// The list of tasks, and what all of them share.
#include <fmt/format.h>

#include <array>

#include "base/hash.h"
#include "base/text.h"
#include "model/eval/task.h"

namespace tailor::eval {

std::span<const Task* const> tasks() {
  static constexpr std::array kTasks = {
      &kArcEasy,
      &kHellaswag,
      &kPiqa,
      &kSciq,
  };
  return kTasks;
}

Result<const Task*> find_task(std::string_view name) {
  std::vector<std::string_view> known;
  std::string list;
  for (const Task* task : tasks()) {
    if (task->name == name) return task;
    known.push_back(task->name);
    list += fmt::format("{}{}", list.empty() ? "" : ", ", task->name);
  }
  const std::string near = nearest_name(name, known);
  return error(Code::kInvalidArgument,
               fmt::format("there is no task \"{}\"{}; the tasks are {}", escape_controls(name),
                           near.empty() ? "" : fmt::format(": did you mean \"{}\"?", near), list));
}

std::string Item::digest() const {
  Sha256 hash;
  const auto add = [&hash](std::string_view text) {
    hash.update(fmt::format("{} ", text.size()));
    hash.update(text);
  };
  add(context);
  for (const std::string& choice : choices) add(choice);
  add(std::to_string(gold));
  return hash.hex().substr(0, 16);
}

}  // namespace tailor::eval
