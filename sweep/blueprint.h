// Blueprint: what a set of [architecture] keys says before its widths are known.
// Internal to sweep/.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "model/shape/architecture.h"
#include "model/shape/schedule.h"
#include "sweep/spec.h"

namespace tailor::sweep {

struct Blueprint {
  shape::Architecture frame;  ///< valid; widths all 1, they only say L and K
  shape::WidthSchedule schedule;
  std::int32_t k = 1;
  double d_h = 0;             ///< wanted mean hidden width; 0 = not given
  double ratio = 0;           ///< wanted mean hidden width / d_model; 0 = not given
  bool fixed_widths = false;  ///< the widths of `frame` are given as they shall be
};

/// Errors: kInvalidArgument naming the missing or wrong key.
Result<Blueprint> make_blueprint(const Point& keys);

std::optional<std::int32_t> integer_of(const Point& keys, std::string_view path);
std::optional<double> number_of(const Point& keys, std::string_view path);

}  // namespace tailor::sweep
