// Are the errors that a profile reports true? Many draws of the same experiment: a new set of
// sequences each time, the same network. What a quantity varies by from draw to draw is its true
// standard error; what the profiles report is held against it. For a test and a bench.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "geometry/allocation.h"
#include "geometry/jackknife.h"
#include "geometry/profile_shaping.h"
#include "geometry/statistics/table.h"
#include "geometry/work_profile.h"

namespace tailor::geometry::testing {

struct ErrorSimulation {
  std::size_t sequences = 64;
  std::size_t tokens_of_sequence = 8;
  double intra_class = 0.3;  ///< correlation of two tokens of one sequence
  std::size_t layers = 4;
  std::size_t dimension = 8;
  std::size_t draws = 200;
  std::uint64_t seed = 1;
  bool give_sequences = true;
  WorkOptions work = {.tokens = 64, .linear_tokens = 512, .subsamples = 8};
  std::int64_t quantum = 8;  ///< of integer widths, about 1000 wide
};

/// One experiment: activations before the layers, and after each.
class SimulatedTokens {
 public:
  SimulatedTokens(const ErrorSimulation& of, std::uint64_t draw) {
    Rng network = Rng::split(of.seed, "network");
    Rng rng = Rng::split(of.seed, "draw " + std::to_string(draw));
    const std::size_t d = of.dimension, n = of.sequences * of.tokens_of_sequence;
    const double shared = std::sqrt(of.intra_class), own = std::sqrt(1 - of.intra_class);
    const auto normals = [](Rng& from, std::size_t count) {
      std::vector<double> out(count);
      for (double& x : out) x = from.normal();
      return out;
    };
    before_.resize(n * d);
    // How far a token moves: a part that all layers share, a part of each.
    std::vector<std::vector<double>> moves(of.layers, std::vector<double>(n));
    for (std::size_t c = 0; c < of.sequences; ++c) {
      const std::vector<double> place = normals(rng, d), move = normals(rng, of.layers + 1);
      for (std::size_t t = 0; t < of.tokens_of_sequence; ++t) {
        const std::size_t i = c * of.tokens_of_sequence + t;
        sequence_of_.push_back(static_cast<std::int64_t>(c));
        for (std::size_t k = 0; k < d; ++k) {
          before_[i * d + k] = static_cast<float>(shared * place[k] + own * rng.normal());
        }
        const double all = shared * move[of.layers] + own * rng.normal();
        for (std::size_t l = 0; l < of.layers; ++l) {
          const double mine = shared * move[l] + own * rng.normal();
          moves[l][i] = std::sqrt(0.8) * all + std::sqrt(0.2) * mine;
        }
      }
    }
    for (std::size_t l = 0; l < of.layers; ++l) {
      const std::vector<double> weights = normals(network, d * d);
      const double scale = 1.5 / static_cast<double>(l + 1);
      std::vector<float>& after = after_.emplace_back(before_);
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<double> direction(d);
        double norm = 0;
        for (std::size_t k = 0; k < d; ++k) {
          for (std::size_t j = 0; j < d; ++j) {
            direction[k] += weights[k * d + j] * static_cast<double>(before_[i * d + j]);
          }
          norm += direction[k] * direction[k];
        }
        const double length = scale * (1 + 0.3 * moves[l][i]) / std::sqrt(norm);
        for (std::size_t k = 0; k < d; ++k) {
          after[i * d + k] += static_cast<float>(length * direction[k]);
        }
      }
    }
    for (std::size_t l = 0; l < of.layers; ++l) {
      clouds_.push_back(
          {.layer = static_cast<int>(l), .before = before_, .after = after_[l], .dimension = d});
    }
  }
  SimulatedTokens(const SimulatedTokens&) = delete;
  SimulatedTokens& operator=(const SimulatedTokens&) = delete;

  std::span<const LayerClouds> clouds() const { return clouds_; }
  std::span<const std::int64_t> sequence_of() const { return sequence_of_; }

 private:
  std::vector<float> before_;
  std::vector<std::vector<float>> after_;
  std::vector<std::int64_t> sequence_of_;
  std::vector<LayerClouds> clouds_;
};

/// Values and errors of one quantity over the draws, its layers one after the other.
struct Simulated {
  std::vector<std::vector<double>> values, errors;  // [layer][draw]

  void add(std::span<const double> value, std::span<const double> error) {
    TAILOR_CHECK(value.size() == error.size());
    values.resize(value.size());
    errors.resize(value.size());
    for (std::size_t l = 0; l < value.size(); ++l) {
      values[l].push_back(value[l]);
      errors[l].push_back(error[l]);
    }
  }
  /// Reported over true standard error (root mean squares), the layers together.
  double ratio() const {
    double reported = 0, truth = 0;
    for (std::size_t l = 0; l < values.size(); ++l) {
      double mean = 0, square = 0, seen = 0, error = 0;
      for (std::size_t i = 0; i < values[l].size(); ++i) {
        const double step = values[l][i] - mean;
        mean += step / ++seen;
        square += step * (values[l][i] - mean);
        error += errors[l][i] * errors[l][i];
      }
      // Relative to the mean, so that no layer outweighs the others.
      truth += square / (seen - 1) / (mean * mean);
      reported += error / seen / (mean * mean);
    }
    return std::sqrt(reported / truth);
  }
};

/// Widths of about 1000, cut from a smoothed profile; with a quantum in multiples of it.
inline Result<std::vector<double>> simulated_widths(std::span<const double> work,
                                                    std::int64_t quantum) {
  AllocationProblem problem;
  TAILOR_ASSIGN_OR_RETURN(problem.work, shape_profile(work, {}));
  problem.exponent = {0.2};
  problem.floor = {64};
  problem.budget = 1024.0 * static_cast<double>(work.size());
  if (quantum > 0) {
    TAILOR_ASSIGN_OR_RETURN(const IntegerAllocation rounded, allocate_integer(problem, quantum));
    return std::vector<double>(rounded.widths.begin(), rounded.widths.end());
  }
  TAILOR_ASSIGN_OR_RETURN(const Allocation solved, allocate(problem));
  return solved.widths;
}

/// Runs it: quantities by name, "raw shift", "raw shift smoothed", "... widths", "... integers",
/// "... front load". `subsamples`: R' of the last draw.
inline std::map<std::string, Simulated> simulate_errors(const ErrorSimulation& of,
                                                        std::size_t* subsamples = nullptr) {
  std::map<std::string, Simulated> all;
  for (std::uint64_t draw = 0; draw < of.draws; ++draw) {
    const SimulatedTokens tokens(of, draw);
    WorkOptions options = of.work;
    options.seed = draw;
    if (of.give_sequences) options.sequences = tokens.sequence_of();
    const auto profile = measure_work(tokens.clouds(), options);
    TAILOR_CHECK(profile.has_value());
    if (subsamples != nullptr) *subsamples = profile->subsamples;
    for (const WorkEntry& entry : profile->entries) {
      if (entry.layer != 0) continue;
      const std::string name = std::string(geometry_name(entry.geometry)) + " " + entry.statistic;
      std::vector<double> values, errors;
      for (const WorkEntry& other : profile->entries) {
        if (other.geometry != entry.geometry || other.statistic != entry.statistic) continue;
        TAILOR_CHECK(other.standard_error.has_value());
        values.push_back(other.value);
        errors.push_back(*other.standard_error);
      }
      all[name].add(values, errors);
      const auto series = work_series(*profile, entry.geometry, entry.statistic);
      TAILOR_CHECK(series.has_value());
      const auto derived = [&](const char* what, const Pipeline& pipeline) {
        const auto result = derive(*series, pipeline);
        TAILOR_CHECK(result.has_value() && !result->errors.empty());
        all[name + " " + what].add(result->values, result->errors);
      };
      derived("smoothed", [](std::span<const double> work) { return shape_profile(work, {}); });
      derived("widths", [](std::span<const double> work) { return simulated_widths(work, 0); });
      derived("integers",
              [&](std::span<const double> work) { return simulated_widths(work, of.quantum); });
      derived("front load", [](std::span<const double> work) -> Result<std::vector<double>> {
        TAILOR_ASSIGN_OR_RETURN(const double share, front_load_index(work));
        return std::vector<double>{share};
      });
    }
  }
  return all;
}

}  // namespace tailor::geometry::testing
