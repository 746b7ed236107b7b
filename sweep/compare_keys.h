// [compare], [scaling] and [calibrate]: what is compared, decided before any result is seen. Read
// apart from the rest, so that a comparison of stored rows needs no more of a stored file than
// this.
#pragma once

#include <cstdint>
#include <optional>
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

/// Trials of a [calibrate] for every seed, at most.
inline constexpr std::size_t kCalibrationsMax = 4'096;

/// [calibrate]: the base with one layer wider or narrower, each a named candidate.
struct CalibrateFile {
  std::string base;                  ///< a [[candidate]]; "" = the `baseline`
  std::vector<std::int32_t> layers;  ///< empty = all
  std::vector<double> factors;       ///< of that layer's width; none is 1, no two are equal
  ConfigValue where;                 ///< of `factors`
};
/// "layer 3 x 0.25".
std::string calibration_name(std::int32_t layer, double factor);
/// Nullopt without a [calibrate]. Mistakes are noted in the document and answered.
Result<std::optional<CalibrateFile>> read_calibrate(ConfigTable& root);

/// Mistakes are noted in the document and answered.
Result<CompareSpec> read_compare(ConfigTable& root);
/// Without a [scaling]: empty. The entries refer to the document of `root`.
Result<ScalingFile> read_scaling(ConfigTable& root);

/// The candidate that [calibrate] of a stored file varies; "" without one, or when it is the
/// baseline. Errors: kInvalidArgument.
Result<std::string> calibrated_candidate_of_file(std::string_view toml, const std::string& file);

/// [compare] of a stored file, whatever else stands in it. Errors: kInvalidArgument.
Result<CompareSpec> compare_of_file(std::string_view toml, const std::string& file);

}  // namespace tailor::sweep
