// Layer sensitivity and local additivity from losses under perturbation (science.md 5.1; the forms
// are ours, the paper's are not published where we could read them).
//
// A probe perturbs what the FFN of some layers adds to the residual stream, f_l:
//
//   relative      f_l + eps rms(f_l) xi      xi ~ N(0, I), rms over the coordinates of each token
//   absolute      f_l + eps rms(x_l) xi      x_l the stream that enters the FFN
//   attenuation   (1 - eps) f_l
//   ablation      0                          (eps = 1)
//
// dL_S(eps) = loss under the probe of the layers S less the clean loss, nats a token, the mean over
// draws of xi. Draw r of layer l is the same xi for every eps and every S, and shared by the
// sequences: so noise that has nothing to do with eps or with S cancels.
//
//   lambda_l = sum_eps eps^2 dL_l / sum_eps eps^4            slope on eps^2 through the origin
//   R^2      = 1 - sum (dL - lambda eps^2)^2 / sum dL^2      not centred: there is no constant
//   linear   = a of the least-squares fit dL = a eps + b eps^2
//
//   A(S) = dL_S / sum_{l in S} dL_l,   both with the same draw
//
// A is 1 where the loss is a quadratic without terms between layers. "Locally additive" (ours): the
// median of A lies within 0.1 of 1 at the smallest eps whose dL exceeds 3 standard errors.
//
// Standard errors: sequences and draws are both samples, crossed: every sequence sees every draw.
// SE^2 = jackknife over sequences^2 + jackknife over draws^2, a little too large (their interaction
// is counted twice). With one sequence, or one draw of a random kind, there is none, and a reason.
//
// Torch-free. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tailor::diagnose {

enum class Perturbation { kRelative, kAbsolute, kAttenuation, kAblation };
inline constexpr Perturbation kPerturbations[] = {Perturbation::kRelative, Perturbation::kAbsolute,
                                                  Perturbation::kAttenuation,
                                                  Perturbation::kAblation};
/// "relative", "absolute", "attenuation", "ablation".
std::string_view perturbation_name(Perturbation kind);
/// Errors: kInvalidArgument naming the known ones.
Result<Perturbation> parse_perturbation(std::string_view name);
/// Whether it has draws.
bool is_random(Perturbation kind);

/// One loss to be measured.
struct Probe {
  Perturbation kind = Perturbation::kRelative;
  std::vector<int> layers;  ///< ascending, at least one
  double eps = 0;
  int draw = 0;  ///< 0 for kinds without draws
  friend bool operator==(const Probe&, const Probe&) = default;
};

struct ProbeOptions {
  std::vector<Perturbation> kinds = {Perturbation::kRelative};  ///< the first is the primary one
  std::vector<double> eps = {0.05, 0.1, 0.2};                   ///< ascending, above 0
  int draws = 4;
  std::vector<int> subset_sizes = {2, 4, 8, 0};  ///< 0: all layers
  int subsets = 20;                              ///< different ones of each size, at most
  std::uint64_t seed = 0;

  Status validate() const;
};

/// All probes for `layers` layers: of each kind every layer x eps x draw (ablation: once a layer);
/// of the primary kind random subsets x eps, each with one draw (subset i with draw i mod draws; of
/// all layers, of which there is one subset, every draw). Ordered by first layer, so that a
/// group of neighbours shares most of the forward pass. REQUIRES: options are valid.
std::vector<Probe> plan_probes(int layers, const ProbeOptions& options);

/// Losses of probes.
struct ProbeResults {
  std::vector<double> clean;       ///< of each sequence, nats, summed over its scored tokens
  std::int64_t scored_tokens = 0;  ///< of each sequence
  std::vector<Probe> probes;       ///< as plan_probes gave them
  std::vector<std::vector<double>> losses;  ///< [probe][sequence]; NaN where it was not finite
};

/// A number, its error, or why there is none.
struct Estimate {
  std::optional<double> value;
  std::optional<double> standard_error;
  std::string reason;  ///< why value (or else standard_error) is absent
};

/// Of a mean over samples that are left out in turn. `theta(sequence, draw)` computes it without
/// that sequence or draw (-1: none left out).
using Leaving = std::function<Result<double>(int sequence, int draw)>;
/// `draws` 0: the quantity has none. See "Standard errors" above.
Estimate crossed_estimate(int sequences, int draws, const Leaving& theta);

/// dL by eps of one layer.
struct SlopeFit {
  double slope = 0;
  double r_squared = 0;
  double linear = 0;  ///< with a single eps: 0
};
/// REQUIRES: eps.size() == losses.size(), not empty, eps above 0.
SlopeFit fit_slope(const std::vector<double>& eps, const std::vector<double>& losses);

struct LayerSensitivity {
  Estimate lambda;  ///< slope on eps^2; of ablation dL itself
  Estimate linear;  ///< absent with fewer than two eps
  std::optional<double> r_squared;
  std::vector<double> eps;
  std::vector<Estimate> loss_changes;  ///< dL by eps
};

struct AdditivitySummary {
  double eps = 0;
  int size = 0;  ///< |S|; 0: all sizes together
  std::size_t subsets = 0;
  Estimate median;
  std::optional<double> low, high;  ///< 5 and 95 % quantiles of A
  std::optional<double> r_squared;  ///< squared correlation of dL_S and the sums
  Estimate mean_change;             ///< mean of dL_S
  std::string reason;               ///< why there is no R^2
};

/// One subset's two sides.
struct SubsetPoint {
  double eps = 0;
  std::vector<int> layers;
  int draw = 0;
  double change = 0;  ///< dL_S
  double sum = 0;     ///< sum of dL_l
};

/// Looks at results; holds a copy of what it needs.
class Sensitivity {
 public:
  /// Errors: kInvalidArgument when counts do not fit each other; kOutOfRange when a clean loss is
  /// not finite.
  static Result<Sensitivity> create(ProbeResults results, int layers, const ProbeOptions& options);

  int sequences() const { return static_cast<int>(results_.clean.size()); }
  /// nats a token.
  Estimate clean_loss() const;
  /// Of every layer.
  std::vector<LayerSensitivity> layers(Perturbation kind) const;
  /// lambda_l of every layer without one sequence or draw (-1: with all). Errors: a loss that is
  /// not finite.
  Result<std::vector<double>> lambdas(Perturbation kind, int sequence = -1, int draw = -1) const;
  /// By eps, of each size and then of all (size 0).
  std::vector<AdditivitySummary> additivity() const;
  std::vector<SubsetPoint> subset_points() const;
  /// "Locally additive" above, or why that cannot be said.
  Result<bool> locally_additive() const;
  int draws() const { return options_.draws; }
  Perturbation primary() const { return options_.kinds.front(); }
  const std::vector<Perturbation>& kinds() const { return options_.kinds; }

 private:
  Sensitivity() = default;
  // Mean of the loss changes of one probe's place over draws. Errors: a loss that is not finite.
  Result<double> change(Perturbation kind, const std::vector<int>& layers, double eps,
                        int only_draw, int without_sequence, int without_draw) const;
  Result<SubsetPoint> subset_point(const Probe& probe, int without_sequence) const;
  std::vector<const Probe*> subset_probes(double eps, int size) const;
  AdditivitySummary summary(double eps, int size) const;

  // Draw and index in `results_` of the probes of one place.
  using Place = std::tuple<Perturbation, std::vector<int>, double>;
  using Draws = std::vector<std::pair<int, std::size_t>>;

  ProbeResults results_;
  ProbeOptions options_;
  int layers_ = 0;
  std::map<Place, Draws> places_;
};

}  // namespace tailor::diagnose
