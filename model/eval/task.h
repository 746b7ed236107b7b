// Multiple-choice tasks: how one line of a public data file becomes a context and its choices, by
// the rules of EleutherAI's lm-evaluation-harness 0.4.13 (science.md 7.2), zero-shot.
//
// A model scores context + " " + choice for every choice; no letters, no list of choices. To add a
// task: one file in tasks/, one line in table.cc.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::eval {

/// What stands between a context and a choice.
inline constexpr std::string_view kChoiceDelimiter = " ";

/// One question.
struct Item {
  /// The data set's own name of the item, or its number in the file from 1 on where it has none.
  std::string id;
  std::string context;
  std::vector<std::string> choices;  ///< at least two; without the delimiter
  std::size_t gold = 0;              ///< index of the right choice

  /// 16 hex digits that are equal only for equal requests and gold: whether two runs saw one item.
  std::string digest() const;
};

/// A task: a row of the table.
struct Task {
  std::string_view name;
  std::string_view what;  ///< for people: the split and its number of items
  /// Names of its file in a data folder, tried in order: ours first, then those of the releases.
  std::span<const std::string_view> files;
  /// Reads one object of the file; `id` stays empty where items have no name. Errors:
  /// kInvalidArgument naming the member.
  Result<Item> (*item)(const nlohmann::json& object);
};

/// All tasks, in the order in which they are listed.
std::span<const Task* const> tasks();

/// Errors: kInvalidArgument with the nearest name and the list.
Result<const Task*> find_task(std::string_view name);

// The tasks, one a file of tasks/.
extern const Task kArcEasy;
extern const Task kHellaswag;
extern const Task kPiqa;
extern const Task kSciq;

}  // namespace tailor::eval
