// Small spaces for the tests of search algorithms.
#pragma once

#include <string>
#include <vector>

#include "coordinator/search/algorithm.h"

namespace tailor::search {

/// 3 x 2 x 4 = 24 points.
inline sweep::Spec finite_space() {
  sweep::Spec spec;
  sweep::Axis k;
  k.path = "ffn.k";
  k.values = {std::int64_t{1}, std::int64_t{2}, std::int64_t{4}};
  sweep::Axis kind;
  kind.path = "ffn.norm";
  kind.values = {std::string("per_sub"), std::string("none")};
  sweep::Axis width;
  width.path = "d_model";
  width.is_integer = true;
  width.min = 64;
  width.max = 256;
  width.step = 64;
  spec.space = {k, kind, width};
  spec.search.seed = 7;
  spec.search.trials = 20;
  spec.seeds = {1};
  return spec;
}

/// One axis has no grid.
inline sweep::Spec continuous_space() {
  sweep::Spec spec = finite_space();
  sweep::Axis lr;
  lr.path = "train.optimizer.lr";
  lr.min = 1e-4;
  lr.max = 1e-1;
  lr.log = true;
  spec.space.push_back(lr);
  spec.search.trials = 50;
  return spec;
}

inline std::string text_of(const sweep::Point& point) {
  std::string text;
  for (const auto& [path, value] : point) text += path + "=" + sweep::to_text(value) + " ";
  return text;
}

inline std::vector<std::string> take(Algorithm& algorithm, std::size_t count) {
  std::vector<std::string> texts;
  for (const sweep::Point& point : algorithm.suggest(count)) texts.push_back(text_of(point));
  return texts;
}

}  // namespace tailor::search
