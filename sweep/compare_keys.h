// [compare] and [scaling]: what is compared, decided before any result is seen. Read apart from the
// rest, so that a comparison of stored rows needs no more of a stored file than this.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "sweep/spec.h"

namespace tailor::sweep {

/// Families and sizes of a [scaling], at most. Their product is what is trained for every seed.
inline constexpr std::size_t kScalingEntriesMax = 16;

/// One [[scaling.family]] or [[scaling.size]].
struct ScalingEntry {
  std::string name;
  Point point;  ///< what it sets; `budget.parameters` too
  ConfigValue where;
};
struct ScalingFile {
  std::vector<ScalingEntry> families;
  std::vector<ScalingEntry> sizes;
  std::string baseline;  ///< family
};

/// Mistakes are noted in the document and answered.
Result<CompareSpec> read_compare(ConfigTable& root);
/// Without a [scaling]: empty. The entries refer to the document of `root`.
Result<ScalingFile> read_scaling(ConfigTable& root);

/// [compare] of a stored file, whatever else stands in it. Errors: kInvalidArgument.
Result<CompareSpec> compare_of_file(std::string_view toml, const std::string& file);

}  // namespace tailor::sweep
