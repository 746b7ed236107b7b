// Reading a task's data file: JSON lines, or one JSON list of objects.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/eval/task.h"

namespace tailor::eval {

/// The items of one file.
struct ItemFile {
  std::string path;
  std::string sha256;           ///< of the whole file (labels in a second file are not part of it)
  std::size_t items_total = 0;  ///< in the file
  std::vector<Item> items;      ///< the first of them, as many as were asked for
};

/// The task's file in `folder`. Errors: kNotFound with the names that were tried.
Result<std::string> find_item_file(const Task& task, const std::string& folder);

/// Reads and checks the whole file; keeps the first `limit` items (0 = all). Blank lines are passed
/// over, line ends may be CR LF. When lines have no "label" and STEM-labels.lst or STEM.labels.lst
/// lies beside STEM.jsonl, its lines are the labels. Errors, naming file and line: kNotFound,
/// kUnavailable; kInvalidArgument (no items, not JSON or not UTF-8, a member missing or of the
/// wrong kind, fewer than two choices, two items of one id, another number of labels than items).
Result<ItemFile> read_items(const Task& task, const std::string& path, std::size_t limit = 0);

}  // namespace tailor::eval
