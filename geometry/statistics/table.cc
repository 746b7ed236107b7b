// The explicit list: order is fixed, the linker can drop nothing,
// and the list is the documentation.
#include "geometry/statistics/table.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/text.h"

namespace tailor::geometry {

extern const Statistic kShiftStatistic;
extern const Statistic kGromovStatistic;
extern const Statistic kTopologyStatistic;

std::span<const Statistic> statistics() {
  static const Statistic table[] = {
      kShiftStatistic,
      kGromovStatistic,
      kTopologyStatistic,
  };
  return table;
}

Result<const Statistic*> find_statistic(std::string_view name) {
  std::vector<std::string_view> names;
  std::string known;
  for (const Statistic& statistic : statistics()) {
    if (statistic.name == name) return &statistic;
    names.push_back(statistic.name);
    known += known.empty() ? "" : ", ";
    known += statistic.name;
  }
  const std::string near = nearest_name(name, names);
  return error(
      Code::kInvalidArgument,
      fmt::format("unknown statistic \"{}\"{}; known: {}", name,
                  near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near), known));
}

}  // namespace tailor::geometry
