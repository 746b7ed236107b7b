#include "sweep/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "base/stats.h"

namespace tailor::sweep {
namespace {

/// Weights, gradients and two moments in fp32, the bf16 copies of the weights, and the activations
/// that a backward pass needs of one micro batch: per token and layer the norms, q, k, v, attention
/// output and three hidden vectors a sub-MLP, plus one chunk of logits.
/// An estimate for planning only.
std::uint64_t estimate_memory(const Candidate& candidate, std::int64_t sequence_length) {
  const shape::Architecture& a = candidate.architecture;
  const protocol::TrainSpec& train = candidate.train;
  const bool bf16 = train.precision == protocol::Precision::kBf16;
  const double value_bytes = bf16 ? 2 : 4;
  const double weights = static_cast<double>(candidate.counts.total) * (16 + (bf16 ? 2 : 0));
  const auto tokens = static_cast<double>(train.micro_batch_tokens > 0 ? train.micro_batch_tokens
                                                                       : train.batch_tokens);
  const double d = a.d_model;
  double per_token = 2 * d;
  double largest = 0;
  for (const shape::LayerWidths& widths : a.widths) {
    const double hidden = std::accumulate(widths.begin(), widths.end(), 0.0);
    const double layer = 3 * d + 2.0 * a.head_dim * (a.heads + a.kv_heads) +
                         2 * d * static_cast<double>(widths.size()) + 3 * hidden;
    largest = std::max(largest, layer);
    per_token += train.recompute ? d : layer;
  }
  if (train.recompute) per_token += largest;  // one layer at a time
  const double chunk =
      static_cast<double>(std::min<std::int64_t>(sequence_length, 2048)) * a.vocab_size;
  return static_cast<std::uint64_t>(weights + tokens * per_token * value_bytes + 4 * chunk);
}

class Planner {
 public:
  Planner(const Spec& spec, std::size_t rows_max) : rows_max_(rows_max) { plan_.spec = spec; }

  Plan run() {
    const Spec& spec = plan_.spec;
    // The baseline first, as it is resolved first.
    for (const bool baseline : {true, false}) {
      for (const NamedCandidate& named : spec.candidates) {
        if ((named.name == spec.baseline) != baseline) continue;
        ++plan_.points;
        add(named.name, named.overrides);
      }
    }
    if (!spec.space.empty()) {
      if (spec.search.algorithm == "random") {
        add_random();
      } else {
        add_grid();
      }
    }
    plan_.trials = (plan_.feasible - plan_.duplicates) * spec.seeds.size();
    const auto n = static_cast<double>(spec.seeds.size());
    plan_.smallest_p = std::min(1.0, 2 * std::pow(0.5, n));
    plan_.resolvable_effect_sd = n < 2 ? std::numeric_limits<double>::infinity()
                                       : student_t_quantile(0.975, n - 1) / std::sqrt(n);
    return std::move(plan_);
  }

 private:
  bool full() const { return plan_.rows.size() >= rows_max_; }

  void add(const std::string& name, const Point& point) {
    if (full()) {
      plan_.exhaustive = false;
      return;
    }
    PlanRow row;
    row.name = name.empty() ? point_name(point) : name;
    row.point = point;
    auto candidate = resolve(plan_.spec, row.name, point);
    if (candidate) {
      ++plan_.feasible;
      row.feasible = true;
      const auto [first, is_new] = name_by_hash_.emplace(candidate->hash, row.name);
      if (!is_new) {
        ++plan_.duplicates;
        row.duplicate_of = first->second;
        row.reason = "same architecture as " + first->second;
      }
      const std::int64_t length = plan_.spec.data.sequence_length;
      row.training_flops = shape::training_flops_per_token(candidate->architecture, length) *
                           static_cast<double>(candidate->train.tokens);
      row.memory_bytes = estimate_memory(*candidate, length);
      row.candidate = std::move(*candidate);
    } else {
      ++plan_.infeasible;
      row.reason = candidate.error().message();
      ++plan_.infeasible_reasons[reason_kind(row.reason)];
    }
    plan_.rows.push_back(std::move(row));
  }

  void add_grid() {
    const Spec& spec = plan_.spec;
    const std::uint64_t size = search_size(spec);
    plan_.points += size;
    for (std::uint64_t i = 0; i < size; ++i) {
      if (full()) {
        plan_.exhaustive = false;
        return;
      }
      add("", grid_point(spec, i));
    }
  }

  /// The distinct points that the random search will draw, in its order.
  void add_random() {
    constexpr int kRepeatsMax = 10'000;  // as coordinator/search/random.cc: a small space ends here
    const Spec& spec = plan_.spec;
    const std::uint64_t wanted = search_size(spec);
    std::unordered_set<std::string> seen;
    int repeats = 0;
    for (std::uint64_t i = 0; seen.size() < wanted && repeats < kRepeatsMax; ++i) {
      if (full()) {
        plan_.exhaustive = false;
        plan_.points += wanted - seen.size();
        return;
      }
      const Point point = random_point(spec, spec.search.seed, i);
      if (!seen.insert(point_name(point)).second) {
        ++repeats;
        continue;
      }
      repeats = 0;
      ++plan_.points;
      add("", point);
    }
  }

  const std::size_t rows_max_;
  Plan plan_;
  std::unordered_map<std::string, std::string> name_by_hash_;
};

}  // namespace

Plan make_plan(const Spec& spec, std::size_t rows_max) { return Planner(spec, rows_max).run(); }

}  // namespace tailor::sweep
