// The table of statistics. To add one: write statistics/NAME.cc and add its line to table.cc.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "geometry/statistics/statistic.h"

namespace tailor::geometry {

/// Every statistic, in the order in which profiles list them.
std::span<const Statistic> statistics();

/// Errors: kInvalidArgument naming the known ones.
Result<const Statistic*> find_statistic(std::string_view name);

}  // namespace tailor::geometry
