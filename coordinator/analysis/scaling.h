// The scaling comparison of a sweep over sizes and families: for each family the law
// L(N) = E + A N^-alpha over its sizes (in body parameters, and in training compute), and how much
// compute the baseline family would need for the loss that another family reaches.
//
//   gain at compute C  =  C_b / C - 1,   L_b(C_b) = L_f(C)
//
// +8.7 % says: the baseline family needs 8.7 % more compute for the same loss. It is read off the
// fitted laws along the sizes of the sweep, whose tokens follow the sweep's own rule: no claim
// about compute-optimal training. Losses are paired by seed over families and sizes; a seed that
// lacks one of them is left out and counted. A family of which a seed failed or was stopped has no
// verdict (`comparison.h` says why). Built from rows, pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/analysis/comparison.h"
#include "coordinator/analysis/scaling_law.h"
#include "storage/records.h"

namespace tailor::analysis {

/// A family at a size: one candidate.
struct ScalingPoint {
  std::string name;                        ///< of the candidate
  std::optional<std::uint32_t> candidate;  ///< unset: the sweep has none
  std::int64_t parameters_body = 0;
  double flops = 0;  ///< of training it, all tokens
};
struct ScalingDesign {
  std::vector<std::string> families;
  std::vector<std::string> sizes;
  std::string baseline;              ///< family
  std::vector<ScalingPoint> points;  ///< [family][size]
  const ScalingPoint& at(std::size_t family, std::size_t size) const {
    return points[family * sizes.size() + size];
  }
};

struct ScalingSizeRow {
  std::string size;
  std::string candidate;
  std::int64_t parameters_body = 0;
  double flops = 0;
  std::optional<double> mean;  ///< of its own finished seeds
  std::optional<double> sd;
  std::uint32_t finished = 0, failed = 0, stopped = 0, lost = 0;
  std::optional<double> centre;    ///< that the law was fitted to (over the seeds used)
  std::optional<double> residual;  ///< centre - law
  PairedSummary paired;            ///< family - baseline family at this size, over common seeds
};

struct BandPoint {
  double x = 0;
  LawEstimate loss;
};
/// The law in one measure of size.
struct ScalingCurve {
  LawEstimate irreducible;  ///< E
  LawEstimate coefficient;  ///< A at `unit`: the loss above E of a model of that size
  LawEstimate exponent;     ///< alpha
  double unit = 1;
  double rms_residual = 0;
  std::vector<BandPoint> band;  ///< over the sizes measured, log-spaced; empty = no law
  std::string note;
};

/// Compute-efficiency gain at one amount of compute.
struct ScalingGain {
  std::string at;                   ///< size of the family, or "middle"
  double flops = 0;                 ///< of the family there
  std::optional<LawEstimate> gain;  ///< 0.087 = +8.7 %
  bool extrapolated = false;        ///< the baseline's compute lies outside its sizes
  double undefined_share = 0;       ///< of the resamples
  std::string note;                 ///< why there is none
};

enum class ScalingVerdict { kNone, kMoreEfficient, kLessEfficient, kNotDistinguishable };
/// "", "more efficient", "less efficient", "not distinguishable".
std::string_view scaling_verdict_name(ScalingVerdict verdict);

struct ScalingFamily {
  std::string name;
  bool incomplete = false;           ///< a seed of it failed or was stopped early
  std::vector<std::uint64_t> seeds;  ///< used: finished at every size
  std::uint32_t seeds_left_out = 0;
  std::vector<ScalingSizeRow> sizes;  ///< by size of the design
  std::optional<ScalingCurve> in_parameters;
  std::optional<ScalingCurve> in_compute;
  // Against the baseline family; empty for it.
  std::uint32_t gain_seeds = 0;    ///< finished at every size of both
  std::vector<ScalingGain> gains;  ///< the middle of the common range first, then by size
  ScalingVerdict verdict = ScalingVerdict::kNone;  ///< of the gain in the middle
  std::string text;
  std::string note;
};

struct ScalingTable {
  std::string baseline;
  std::string objective;
  std::vector<ScalingFamily> families;  ///< of the design, in its order
  std::uint32_t seeds = 0;              ///< distinct seeds of the sweep
  std::uint64_t resamples = 0;
  std::vector<std::string> notes;
  std::uint64_t as_of = 0;  ///< the sweep's newest event when the rows were read; 0 = not known
};

/// Of the resamples. Any fixed value would do.
inline constexpr std::uint64_t kScalingSeed = 0x7363616C65;
inline constexpr int kBandPoints = 25;

/// `baseline` "" = the design's; `objective` "" = "validation_loss".
/// Cost: `affordable_resamples` of a fit a family and measure, twice.
/// Errors: kFailedPrecondition for a design without families; kInvalidArgument when `baseline`
/// names no family, or when trials have completed and none reported `objective`.
Result<ScalingTable> compare_scaling(const ScalingDesign& design,
                                     std::span<const storage::TrialRow> trials,
                                     std::span<const Provenance> provenance,
                                     std::string_view baseline = {},
                                     std::string_view objective = {});

}  // namespace tailor::analysis
