#include "coordinator/search/plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "coordinator/search/algorithm.h"
#include "sweep/references.h"
#include "sweep/schedule_request.h"

namespace tailor::search {
namespace {

/// Weights, gradients and two moments in fp32, the bf16 copies of the weights, and the activations
/// that a backward pass needs of one micro batch: per token and layer the norms, q, k, v, attention
/// output and three hidden vectors a sub-MLP, plus one chunk of logits.
/// An estimate for planning only.
std::uint64_t estimate_memory(const sweep::Candidate& candidate, std::int64_t sequence_length) {
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
  Planner(const sweep::Spec& spec, std::size_t rows_max) : rows_max_(rows_max) {
    plan_.spec = spec;
  }

  Result<Plan> run() {
    const sweep::Spec& spec = plan_.spec;
    for (const sweep::NamedCandidate* named : sweep::named_in_order(spec)) {
      ++plan_.points;
      add(named->name, named->overrides);
      if (!plan_.rows.empty() && plan_.rows.back().name == named->name) {
        plan_.rows.back().inserted = named->inserted;
      }
    }
    count_references();
    if (!spec.space.empty()) TAILOR_RETURN_IF_ERROR(add_space());
    for (const PlanRow& row : plan_.rows) plan_.trials += row.trials;
    return std::move(plan_);
  }

 private:
  bool full() const { return plan_.rows.size() >= rows_max_; }

  /// True when it is a candidate of its own.
  bool add(const std::string& name, const sweep::Point& point) {
    if (full()) {
      plan_.exhaustive = false;
      return false;
    }
    bool is_own = false;
    PlanRow row;
    row.name = name.empty() ? sweep::point_name(point) : name;
    row.point = point;
    auto candidate = sweep::resolve(plan_.spec, row.name, point);
    if (candidate) {
      ++plan_.feasible;
      row.feasible = true;
      const auto [first, is_new] = name_by_hash_.emplace(candidate->hash, row.name);
      is_own = is_new;
      if (!is_new) {
        ++plan_.duplicates;
        row.duplicate_of = first->second;
        row.reason = "same architecture as " + first->second;
      }
      if (is_new) row.trials = sweep::seeds_of(plan_.spec, row.name).size();
      if (const auto request = sweep::schedule_of(plan_.spec, point)) {
        row.waits_for = request->from;
        row.schedule = sweep::request_text(*request);
      }
      const std::int64_t length = plan_.spec.data.sequence_length;
      row.training_flops = shape::training_flops_per_token(candidate->architecture, length) *
                           static_cast<double>(candidate->train.tokens);
      row.memory_bytes = estimate_memory(*candidate, length);
      row.candidate = std::move(*candidate);
    } else {
      ++plan_.infeasible;
      row.reason = candidate.error().message();
      ++plan_.infeasible_reasons[sweep::reason_kind(row.reason)];
    }
    plan_.rows.push_back(std::move(row));
    return is_own;
  }

  /// A trial is measured once, for all that need it. REQUIRES: the named candidates are the rows.
  void count_references() {
    std::set<std::pair<std::string, std::uint64_t>> measured;
    for (const PlanRow& row : plan_.rows) {
      if (row.inserted) plan_.inserted += row.trials;
      if (row.waits_for.empty()) continue;
      ++plan_.waiting;
      const auto request = sweep::schedule_of(plan_.spec, row.point);
      measured.insert({row.waits_for, sweep::reference_seed(plan_.spec, *request)});
    }
    plan_.references = measured.size();
  }

  /// What the search of the sweep draws, one point after the other, as `core::refill` asks for it.
  Status add_space() {
    auto algorithm = make_algorithm(plan_.spec.search.algorithm, plan_.spec);
    if (!algorithm) return algorithm.error();
    while (!full()) {
      const std::vector<sweep::Point> points = (*algorithm)->suggest(1);
      if (points.empty()) return Status::ok();
      ++plan_.points;
      if (!add("", points.front())) (*algorithm)->refuse();
    }
    const std::uint64_t left = (*algorithm)->remaining().value_or(1);
    plan_.points += left;
    if (left > 0) plan_.exhaustive = false;
    return Status::ok();
  }

  const std::size_t rows_max_;
  Plan plan_;
  std::unordered_map<std::string, std::string> name_by_hash_;
};

}  // namespace

Result<Plan> make_plan(const sweep::Spec& spec, std::size_t rows_max) {
  return Planner(spec, rows_max).run();
}

}  // namespace tailor::search
