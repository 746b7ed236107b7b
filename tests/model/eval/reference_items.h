// The items and expected results of tests/data/model/eval: made once with lm-evaluation-harness
// 0.4.13 on invented items in the form of the public data sets.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/eval/items.h"

namespace tailor::eval {

inline std::string reference_path(const std::string& name) {
  return std::string(TAILOR_TEST_DATA) + "/model/eval/" + name;
}

inline const nlohmann::json& reference_scoring() {
  static const nlohmann::json scoring =
      nlohmann::json::parse(std::ifstream(reference_path("lm_eval_scoring.json")));
  return scoring;
}

/// The items of a task in the hub's form.
inline std::vector<Item> reference_items(const std::string& task) {
  const auto file = read_items(**find_task(task), reference_path(task + ".jsonl"));
  EXPECT_TRUE(file.has_value()) << file.error().to_string();
  return file ? file->items : std::vector<Item>{};
}

}  // namespace tailor::eval
