// The explicit list: order is fixed, the linker can drop nothing, and the list is the
// documentation.
#include "geometry/statistics/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/text.h"

namespace tailor::geometry {

extern const Statistic kShiftStatistic;

std::span<const Statistic> statistics() {
  static const Statistic table[] = {
      kShiftStatistic,
  };
  return table;
}

Result<const Statistic*> find_statistic(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Statistic& statistic : statistics()) {
    if (statistic.name == name) return &statistic;
    names.push_back(statistic.name);
  }
  const std::string near = nearest_name(name, names);
  return error(Code::kInvalidArgument,
               fmt::format("unknown statistic \"{}\"{}; known: {}", name,
                           near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                           fmt::join(names, ", ")));
}

}  // namespace tailor::geometry
