// What is measured at one layer: geometric work by subsample, intrinsic dimension, norms, and how
// work moves with the scale of the clouds. Sampling is science.md 3.6b's: subsamples are disjoint
// and made of whole sequences.
//
// The clouds are those of science.md 3.1: X_l the residual stream that enters the FFN sub-block of
// layer l, Y_l the stream that leaves it, f_l = Y_l - X_l.
//
// Torch-free. Threads: pure functions; threads only by argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "geometry/work_profile.h"

namespace tailor::diagnose {

/// Which rows of the clouds belong together.
struct Sampling {
  std::size_t positions = 0;         ///< rows in use, N
  std::size_t sequences = 0;         ///< they come from so many
  std::size_t subsamples_asked = 0;  ///< R
  std::size_t tokens = 0;            ///< n of every subsample
  std::size_t zero_vectors = 0;      ///< rows left out because some layer has no direction there
  std::vector<std::vector<std::uint32_t>> subsamples;  ///< R' lists of n rows
  std::string reason;                                  ///< why R' < R; empty when R' = R
};

/// Rows come `per_sequence` a sequence, in order; `zero` (or empty) marks rows that are left out.
/// R' subsamples of n rows are made of whole sequences, at most `asked`; where zero vectors leave
/// some with fewer rows, n is the least of them. Errors: kFailedPrecondition when no row is left.
Result<Sampling> sample_rows(std::size_t rows, std::size_t per_sequence, std::size_t tokens,
                             std::size_t asked, const std::vector<bool>& zero);

struct MeasurementOptions {
  double rho = geometry::kDefaultRho;
  std::uint64_t seed = 0;
  int threads = 1;
};

/// The clouds are multiplied by these for the scale exponent; powers of 2, so float32 stays exact.
inline constexpr double kScales[] = {0.5, 1, 2, 4};

/// Geometry and statistic: "raw", "shift".
using WorkKey = std::pair<std::string, std::string>;

struct DimensionValue {
  double value = 0;
  std::vector<double> without_subsample;  ///< empty with a single one, or where it is not defined
  std::string reason;                     ///< why there is no error
};

struct LayerMeasurement {
  int layer = 0;
  std::map<WorkKey, std::vector<double>> work;      ///< by subsample
  std::map<WorkKey, std::vector<double>> by_scale;  ///< of the first subsample, by kScales
  std::string work_reason;                          ///< why there is none
  std::vector<double> norm_x, norm_f;               ///< mean |x|, |f| by subsample
  std::map<std::string, DimensionValue> dimension;  ///< "two_nn", "two_nn_fit", "levina_bickel"
  std::string dimension_reason;
  std::size_t dimension_points = 0, dimension_duplicates = 0;
};

/// Work of several pairs of clouds, each measured once as one sample. The one place that calls
/// geometry::measure_work.
Result<std::vector<std::map<WorkKey, double>>> measure_clouds(
    std::span<const std::pair<std::vector<float>, std::vector<float>>> clouds,
    std::size_t dimension, const MeasurementOptions& options);

/// `before` and `after`: (rows, dimension), row-major. What cannot be measured is absent with its
/// reason. Errors: kOutOfRange for a number that is not finite, by layer and row.
Result<LayerMeasurement> measure_layer(int layer, std::span<const float> before,
                                       std::span<const float> after, std::size_t dimension,
                                       const Sampling& sampling, const MeasurementOptions& options);

nlohmann::ordered_json measurement_json(const LayerMeasurement& measurement);
/// Errors: kDataLoss for what measurement_json did not write.
Result<LayerMeasurement> measurement_from_json(const nlohmann::json& json);

}  // namespace tailor::diagnose
