// The search algorithms by name. To add one: a file NAME.cc with its factory in algorithms.h, and a
// line here; tests/coordinator/search then runs the shared suite over it.
#include <algorithm>
#include <array>

#include "coordinator/search/algorithms.h"
#include "coordinator/search/suggest.h"

namespace tailor::search {
namespace {

struct Entry {
  std::string_view name;
  Factory make;
};

constexpr std::array kTable = {
    Entry{"grid", make_grid},
    Entry{"random", make_random},
};

}  // namespace

Result<std::unique_ptr<Algorithm>> make_algorithm(std::string_view name, const sweep::Spec& spec) {
  // Conditions are known to suggest() alone.
  const bool conditions = std::any_of(spec.space.begin(), spec.space.end(),
                                      [](const sweep::Axis& axis) { return !axis.when.empty(); });
  for (const Entry& entry : kTable) {
    if (entry.name == name && !conditions) return entry.make(spec);
  }
  const std::vector<std::string_view> names = suggest_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return make_learning(spec);
  return error(unknown_algorithm(name));
}

std::vector<std::string_view> algorithm_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kTable) names.push_back(entry.name);
  return names;
}

}  // namespace tailor::search
