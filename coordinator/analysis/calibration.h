// What width does for the loss, layer by layer: the direct measurement that geometric work is a
// proxy of (science.md 8, question 3). A width sweep trains a base network, and the base with one
// layer wider or narrower, all with the same seeds and tokens.
//
// Model of layer l, near the base and with all other layers as they are:
//
//   L(w) = C + beta (w / w_0)^-a          w_0 the base's width, beta in nats at it
//   D(w) = L(w) - L(w_0) = -s phi(ln(w / w_0)),   phi(x) = (1 - e^{-a x}) / a, for a = 0 phi(x) = x
//
//   demand      s = a beta   = -dL / d ln w at the base: nats for a factor e of width
//   exponent    a
//   difficulty  beta = s / a
//
// Only D is measured, so C (the other layers and what cannot be learned) falls out, and with it the
// noise that a seed's runs share. s and a are fitted to the means of D over seeds by least squares:
// s is linear for a given a, and a is searched on 181 values from kWidthExponentMin to
// kWidthExponentMax and then by golden section. s and a stay well defined where a is small and beta
// runs away, which is why they are fitted and beta is derived.
//
// Errors: jackknife over seeds through the whole fit; interval = value +- t_{.975, n-1} SE (beta on
// the log scale). What cannot be known is refused with its reason: a where s cannot be told from 0
// or a runs to the end of the range, beta where a cannot be told from 0, every error with one seed
// or where seeds of that layer failed (those that are left are the ones that went well).
//
// Pure. Cost: (seeds + 1) fits a layer, each 221 x widths.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/shape/architecture.h"

namespace tailor::analysis {

inline constexpr double kWidthExponentMin = -3;
inline constexpr double kWidthExponentMax = 6;

/// A layer's width, all its sub-MLPs together.
struct LayerWidth {
  std::int32_t layer = 0;
  std::int64_t width = 0;
};
/// The one layer in which `other` differs from `base`; nullopt when they differ in more than the
/// widths of one layer, or not at all.
std::optional<LayerWidth> differing_layer(const shape::Architecture& base,
                                          const shape::Architecture& other);

/// A trial of a width sweep.
struct WidthRun {
  std::optional<LayerWidth> change;  ///< unset: the base
  std::uint64_t seed = 0;
  std::optional<double> loss;  ///< unset: it has none, or none yet
  bool failed = false;         ///< it ended without one by its own fault, or was stopped
};

/// A statistic of the base, by layer, as trials of it measured it.
struct MeasuredSeries {
  std::string geometry;                                  ///< "hyperbolic", ...
  std::string statistic;                                 ///< "topology", ..., "two_nn"
  std::map<std::uint64_t, std::vector<double>> by_seed;  ///< [layer]
};

struct WidthSweep {
  std::vector<std::int64_t> base;  ///< widths by layer
  std::vector<WidthRun> runs;
  std::vector<MeasuredSeries> work;
  std::vector<MeasuredSeries> dimensions;
};

/// A number with its error, or why there is none.
struct Calibrated {
  std::optional<double> value;
  std::string no_value;
  std::optional<double> standard_error;  ///< of ln(value) for a difficulty
  std::optional<double> low, high;       ///< 95 %
  std::string no_error;                  ///< "" exactly when there is an error, or no value
};

struct WidthPoint {
  std::int64_t width = 0;
  double difference = 0;  ///< mean over the seeds used, to the base
  double fitted = 0;
};

struct LayerCalibration {
  std::int32_t layer = 0;
  std::int64_t base_width = 0;
  std::vector<WidthPoint> points;    ///< by width, without the base's 0
  std::vector<std::uint64_t> seeds;  ///< used: finished at the base and at every width
  std::uint32_t seeds_left_out = 0;
  std::uint32_t failed = 0;  ///< runs
  Calibrated demand, exponent, difficulty;
  double rms_residual = 0;  ///< of the fit; 0 for two widths, which it passes through
  std::string note;
};

/// Rank correlation over layers of what was fitted with what was measured.
struct CalibrationCorrelation {
  std::string fitted;             ///< "demand", "difficulty", "exponent"
  std::string geometry;           ///< of the measurement
  std::string statistic;          ///< an exponent is compared with 2 / dimension
  Calibrated rho;                 ///< Spearman; error by jackknife over seeds
  double p_shift = 1;             ///< circular shifts of depth (model/diagnose/correlation.h)
  std::optional<double> partial;  ///< given depth
};

struct Calibration {
  std::vector<LayerCalibration> layers;  ///< that were varied, by number
  std::vector<CalibrationCorrelation> correlations;
  std::uint32_t seeds = 0;  ///< of the base that have a loss
  std::vector<std::string> notes;
};

/// Errors: kFailedPrecondition when no layer was varied, or the base has no loss; kInvalidArgument
/// for a layer that the base does not have, a loss that is not finite, or a pair of width and seed
/// that comes twice.
Result<Calibration> calibrate(const WidthSweep& sweep);

}  // namespace tailor::analysis
