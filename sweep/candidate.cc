// Resolution: overlay, frame, budget, constraints, recipe, in this order.
#include "sweep/candidate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "model/shape/budget.h"
#include "sweep/architecture_file.h"
#include "sweep/blueprint.h"
#include "sweep/constraint_names.h"
#include "sweep/expression.h"
#include "sweep/keys.h"
#include "sweep/references.h"

namespace tailor::sweep {
namespace {

/// What complete widths say too.
constexpr std::string_view kSaidByWidths[] = {"layers", "ffn.k", "ffn.d_h", "d_h_ratio"};

constexpr std::string_view kNotSatisfied = "does not satisfy";

/// [architecture] with the overrides of `point` on top, and those of the recipe apart.
struct Merged {
  Point architecture;
  Point train;
  std::optional<std::int64_t> budget;  // its own, in place of the sweep's
};

Result<Merged> merge(const Spec& spec, const Point& point) {
  Merged out{spec.architecture, {}, {}};
  for (const auto& [path, value] : point) {
    const Key* key = find_key(path);
    if (key == nullptr)
      return error(Code::kInvalidArgument, fmt::format("there is no key `{}`", path));
    TAILOR_RETURN_IF_ERROR(check_value(*key, value));
    if (path.starts_with("train.")) {
      out.train[path] = value;
      continue;
    }
    if (path == "budget.parameters") {
      if (!spec.budget) {
        return error(Code::kInvalidArgument,
                     "sets `budget.parameters`, but this file has no [budget] (which says how "
                     "parameters are counted and what is solved for)");
      }
      out.budget = std::get<std::int64_t>(value);
      continue;
    }
    // Two ways to say one thing: the override replaces the other one too.
    if (path == "widths") {
      for (const std::string_view other : kSaidByWidths) out.architecture.erase(std::string(other));
      std::erase_if(out.architecture,
                    [](const auto& entry) { return entry.first.starts_with("schedule."); });
    }
    if (path == "ffn.d_h") out.architecture.erase("d_h_ratio");
    if (path == "d_h_ratio") out.architecture.erase("ffn.d_h");
    out.architecture[path] = value;
  }
  if (point.contains("widths")) {
    for (const auto& [path, value] : point) {
      const bool same = std::find(std::begin(kSaidByWidths), std::end(kSaidByWidths), path) !=
                        std::end(kSaidByWidths);
      if (!same && !path.starts_with("schedule.")) continue;
      return error(
          Code::kInvalidArgument,
          fmt::format("`widths` is complete and `{}` is given too; allowed: one of them", path));
    }
  }
  if (point.contains("schedule.kind")) drop_foreign_schedule_keys(out.architecture, point);
  TAILOR_RETURN_IF_ERROR(check_schedule_keys(out.architecture));
  if (point.contains("ffn.d_h") && point.contains("d_h_ratio")) {
    return error(Code::kInvalidArgument,
                 "`ffn.d_h` and `d_h_ratio` are both given; allowed: one of them");
  }
  return out;
}

const NamedCandidate* find_candidate(const Spec& spec, const std::string& name) {
  for (const NamedCandidate& candidate : spec.candidates) {
    if (candidate.name == name) return &candidate;
  }
  return nullptr;
}

/// The baseline's architecture as its keys say, without any budget.
Result<shape::Architecture> baseline_as_given(const Spec& spec) {
  const NamedCandidate* baseline = find_candidate(spec, spec.baseline);
  if (baseline == nullptr) {
    return error(Code::kInvalidArgument,
                 "the budget is \"same as baseline\" but there is no `baseline`");
  }
  TAILOR_ASSIGN_OR_RETURN(const Merged merged, merge(spec, baseline->overrides));
  auto built = build_architecture(merged.architecture);
  if (!built)
    return error(built.error().with_context(fmt::format("the baseline \"{}\"", spec.baseline)));
  return built;
}

Result<shape::BudgetTarget> target_of(const Spec& spec, std::optional<std::int64_t> own) {
  const Budget& budget = *spec.budget;
  shape::BudgetTarget out{0, budget.counts, budget.width_multiple, budget.tolerance};
  if (own) {
    out.parameters = *own;
    return out;
  }
  if (budget.of_each_size) {
    return error(Code::kInvalidArgument,
                 "has no budget: `budget.parameters` is \"of each size\", and this candidate is of "
                 "no [[scaling.size]]; give it `budget.parameters` of its own");
  }
  if (budget.parameters) {
    out.parameters = *budget.parameters;
    return out;
  }
  TAILOR_ASSIGN_OR_RETURN(const shape::Architecture baseline, baseline_as_given(spec));
  out.parameters = shape::budgeted(shape::count_parameters(baseline), budget.counts);
  return out;
}

/// A candidate that sets the solved-for size itself is taken as it is.
bool is_pinned(const Budget& budget, const Point& point) {
  if (point.contains("widths")) return true;
  switch (budget.solve_for) {
    case SolveFor::kHiddenWidth:
      return point.contains("ffn.d_h") || point.contains("d_h_ratio");
    case SolveFor::kLayers:
      return point.contains("layers");
    case SolveFor::kModelWidth:
      return point.contains("d_model");
  }
  return false;
}

Result<shape::BudgetSolution> check_pinned(const Point& keys, const shape::BudgetTarget& target) {
  TAILOR_ASSIGN_OR_RETURN(shape::Architecture architecture, build_architecture(keys));
  const std::int64_t off =
      shape::budgeted(shape::count_parameters(architecture), target.counts) - target.parameters;
  if (std::abs(off) > target.tolerance) {
    return error(
        Code::kOutOfRange,
        fmt::format("misses the budget of {} parameters ({}) by {} {}: it sets the size that "
                    "`budget.solve_for` would solve; leave it out, or give the budget a tolerance",
                    with_thousands(target.parameters), shape::budget_counts_name(target.counts),
                    with_thousands(std::abs(off)), off > 0 ? "too many" : "too few"));
  }
  return shape::BudgetSolution{std::move(architecture), off};
}

Result<shape::BudgetSolution> solve(const Budget& budget, const Point& keys,
                                    const shape::BudgetTarget& target) {
  if (budget.solve_for == SolveFor::kHiddenWidth) {
    TAILOR_ASSIGN_OR_RETURN(const Blueprint blueprint, make_blueprint(keys));
    return shape::solve_hidden_width(blueprint.frame, blueprint.schedule, target);
  }
  const bool layers = budget.solve_for == SolveFor::kLayers;
  const std::string free = layers ? "layers" : "d_model";
  const Key* key = find_key(free);
  const std::int32_t step = layers ? 1 : integer_of(keys, "head_dim").value_or(64);
  // A first frame says what is wrong with the other keys, if anything is.
  Point trial = keys;
  trial[free] = std::int64_t{step};
  if (const auto kv_heads = integer_of(keys, "kv_heads");
      !layers && kv_heads && !keys.contains("heads")) {
    trial[free] = std::int64_t{step} * *kv_heads;
  }
  TAILOR_ASSIGN_OR_RETURN(const Blueprint first, make_blueprint(trial));
  if (first.d_h <= 0 && first.ratio <= 0) {
    return error(
        Code::kInvalidArgument,
        fmt::format("`ffn.d_h` (or `d_h_ratio`) is missing: solving for {} needs it", free));
  }
  const shape::FrameAt frame_at = [&](std::int32_t size) -> std::optional<shape::Architecture> {
    trial[free] = std::int64_t{size};
    auto blueprint = make_blueprint(trial);
    if (!blueprint) return std::nullopt;
    return std::move(blueprint->frame);
  };
  return shape::solve_size(frame_at, step, static_cast<std::int32_t>(key->high), step,
                           {first.d_h, first.ratio}, first.schedule, target);
}

/// With budget.attention = "fixed": solving for hidden widths leaves attention as the keys say.
Status check_attention(const Spec& spec, const Point& keys) {
  Point base = spec.architecture;
  if (const NamedCandidate* baseline = find_candidate(spec, spec.baseline)) {
    TAILOR_ASSIGN_OR_RETURN(const Merged merged, merge(spec, baseline->overrides));
    base = merged.architecture;
  }
  TAILOR_ASSIGN_OR_RETURN(const Blueprint wanted, make_blueprint(base));
  TAILOR_ASSIGN_OR_RETURN(const Blueprint given, make_blueprint(keys));
  const std::int64_t fixed = shape::count_parameters(wanted.frame).attention;
  const std::int64_t attention = shape::count_parameters(given.frame).attention;
  if (attention == fixed) return Status::ok();
  return {Code::kOutOfRange,
          fmt::format("has {} attention parameters where `budget.attention` = \"fixed\" allows {}",
                      with_thousands(attention), with_thousands(fixed))};
}

/// Constraints belong to [space]: a candidate that the file names is meant as it stands.
bool is_named(const Spec& spec, const std::string& name, const Point& point) {
  const NamedCandidate* named = find_candidate(spec, name);
  return named != nullptr && named->overrides == point;
}

Status check_constraints(const Spec& spec, const Candidate& candidate) {
  for (const std::string& text : spec.constraints) {
    TAILOR_ASSIGN_OR_RETURN(const Expression expression, Expression::parse(text));
    std::string values;
    const bool holds = expression.holds([&](std::string_view name) {
      const double value = constraint_value(candidate, name);
      if (values.find(fmt::format("{} = ", name)) == std::string::npos) {
        values += fmt::format("{}{} = {:g}", values.empty() ? "" : ", ", name, value);
      }
      return value;
    });
    if (!holds) {
      return {Code::kOutOfRange, fmt::format("{} \"{}\" ({})", kNotSatisfied, text, values)};
    }
  }
  return Status::ok();
}

/// The part of `identity` that came later: nothing for defaults, so that older hashes stay.
std::string later_identity(const protocol::TrainSpec& t) {
  std::string out;
  if (t.optimizer.lr_mode == protocol::LrMode::kMup) {
    out += fmt::format("|mup={}", t.optimizer.mup_base_width);
  }
  if (t.schedule.kind == protocol::LrScheduleKind::kWsd) {
    out += fmt::format("|decay={},{}", t.schedule.decay_fraction,
                       static_cast<int>(t.schedule.decay_shape));
  }
  if (t.down_init != protocol::DownInit::kFixed) out += "|dn_init=fan_in";
  if (t.z_loss != 0) out += fmt::format("|z_loss={}", t.z_loss);
  if (t.nan_skip_limit != 0) out += fmt::format("|nan_skip={}", t.nan_skip_limit);
  return out;
}

/// Everything that changes what a trial computes, in a fixed form.
std::string identity(const shape::Architecture& architecture, const protocol::TrainSpec& t) {
  return shape::canonical_json(architecture) +
         fmt::format("|tokens={}|batch={}|micro={}|lr={}|beta1={}|beta2={}|eps={}|decay={}|clip={}",
                     t.tokens, t.batch_tokens, t.micro_batch_tokens, t.optimizer.lr,
                     t.optimizer.beta1, t.optimizer.beta2, t.optimizer.eps,
                     t.optimizer.weight_decay, t.optimizer.clip) +
         fmt::format("|schedule={}|warmup={}|warmup_steps={}|final={}|precision={}|init_std={}",
                     static_cast<int>(t.schedule.kind), t.schedule.warmup_fraction,
                     t.schedule.warmup_steps, t.schedule.final_fraction,
                     static_cast<int>(t.precision), t.init_std) +
         fmt::format("|evaluate_every={}|validation={}", t.evaluate_every_tokens,
                     t.validation_tokens) +
         later_identity(t);
}

Status check_geometry(const Spec& spec, const shape::Architecture& architecture) {
  for (const std::int32_t layer : spec.geometry.layers) {
    if (layer < architecture.layers()) continue;
    return {Code::kOutOfRange,
            fmt::format("has {} layers, but `evaluate.geometry.layers` names layer {} "
                        "(they count from 0)",
                        architecture.layers(), layer)};
  }
  return Status::ok();
}

/// The recipe of a candidate with `counts` parameters; `overrides`: its assignments to "train.*".
Result<protocol::TrainSpec> recipe(const Spec& spec, const Point& overrides,
                                   const shape::Counts& counts) {
  protocol::TrainSpec train = spec.train;
  double per_parameter = spec.tokens_per_parameter;
  for (const auto& [path, value] : overrides) {
    TAILOR_RETURN_IF_ERROR(
        set_train(path, value, spec.data.sequence_length, &train, &per_parameter));
  }
  TAILOR_RETURN_IF_ERROR(finish_train(spec.data.sequence_length, per_parameter, &train));
  if (per_parameter > 0) {
    const double tokens = std::round(per_parameter * static_cast<double>(counts.body));
    if (tokens > 1e15) {
      return error(Code::kOutOfRange,
                   fmt::format("would train on {:g} tokens; allowed: up to 1e15", tokens));
    }
    train.tokens = std::max<std::int64_t>(1, static_cast<std::int64_t>(tokens));
  }
  if (train.optimizer.lr_mode == protocol::LrMode::kStepLaw) {
    if (overrides.contains("train.optimizer.lr")) {
      return error(
          Code::kInvalidArgument,
          "sets `train.optimizer.lr`, but `train.optimizer.lr_mode` = \"step_law\" sets it "
          "too; leave one out");
    }
    train.optimizer.lr =
        step_law_lr(static_cast<double>(counts.body), static_cast<double>(train.tokens));
  }
  return train;
}

}  // namespace

std::span<const std::string_view> constraint_names() {
  static constexpr std::string_view kNames[] = {
      "d_model",   "layers", "heads",     "kv_heads",  "head_dim", "vocab_size",
      "k",         "d_h",    "d_h_ratio", "attention", "ffn",      "norms",
      "embedding", "body",   "total",     "tokens",    "lr"};
  return kNames;
}

double constraint_value(const Candidate& candidate, std::string_view name) {
  const shape::Architecture& a = candidate.architecture;
  const shape::Counts& counts = candidate.counts;
  const double mean = static_cast<double>(counts.ffn) / (3.0 * a.d_model) /
                      (static_cast<double>(a.layers()) * static_cast<double>(a.widths[0].size()));
  if (name == "d_model") return a.d_model;
  if (name == "layers") return a.layers();
  if (name == "heads") return a.heads;
  if (name == "kv_heads") return a.kv_heads;
  if (name == "head_dim") return a.head_dim;
  if (name == "vocab_size") return a.vocab_size;
  if (name == "k") return static_cast<double>(a.widths[0].size());
  if (name == "d_h") return mean;
  if (name == "d_h_ratio") return mean / a.d_model;
  if (name == "attention") return static_cast<double>(counts.attention);
  if (name == "ffn") return static_cast<double>(counts.ffn);
  if (name == "norms") return static_cast<double>(counts.norms);
  if (name == "embedding") return static_cast<double>(counts.embedding);
  if (name == "body") return static_cast<double>(counts.body);
  if (name == "total") return static_cast<double>(counts.total);
  if (name == "tokens") return static_cast<double>(candidate.train.tokens);
  if (name == "lr") return candidate.train.optimizer.lr;
  return std::nan("");  // parse refuses other names
}

Result<std::int64_t> parameters_as_given(const Spec& spec, const Point& point) {
  TAILOR_CHECK(spec.budget.has_value(), "no budget");
  TAILOR_ASSIGN_OR_RETURN(const Merged merged, merge(spec, point));
  TAILOR_ASSIGN_OR_RETURN(const shape::Architecture built, build_architecture(merged.architecture));
  TAILOR_RETURN_IF_ERROR(shape::validate(built));
  return shape::budgeted(shape::count_parameters(built), spec.budget->counts);
}

double step_law_lr(double parameters, double tokens) {
  return 1.79 * std::pow(parameters, -0.713) * std::pow(tokens, 0.307);
}

Result<Candidate> resolve(const Spec& spec, const std::string& name, const Point& point) {
  TAILOR_ASSIGN_OR_RETURN(const Merged merged, merge(spec, point));
  Candidate out;
  out.name = name.empty() ? point_name(point) : name;
  out.point = point;
  if (spec.budget) {
    if (spec.budget->fix_attention) {
      TAILOR_RETURN_IF_ERROR(check_attention(spec, merged.architecture));
    }
    TAILOR_ASSIGN_OR_RETURN(const shape::BudgetTarget target, target_of(spec, merged.budget));
    TAILOR_ASSIGN_OR_RETURN(shape::BudgetSolution solution,
                            is_pinned(*spec.budget, point)
                                ? check_pinned(merged.architecture, target)
                                : solve(*spec.budget, merged.architecture, target));
    out.architecture = std::move(solution.architecture);
    out.budget_error = solution.error;
  } else {
    TAILOR_ASSIGN_OR_RETURN(out.architecture, build_architecture(merged.architecture));
  }
  TAILOR_RETURN_IF_ERROR(shape::validate(out.architecture));
  out.counts = shape::count_parameters(out.architecture);
  TAILOR_ASSIGN_OR_RETURN(out.train, recipe(spec, merged.train, out.counts));
  if (!is_named(spec, out.name, point)) TAILOR_RETURN_IF_ERROR(check_constraints(spec, out));
  TAILOR_RETURN_IF_ERROR(check_geometry(spec, out.architecture));
  out.waiting = asks_for_geometry(merged.architecture);
  if (out.waiting) TAILOR_RETURN_IF_ERROR(status_of(request_of(merged.architecture)));
  out.hash = out.waiting ? waiting_hash(out.name, out.architecture, out.train)
                         : identity_hash(out.architecture, out.train);
  return out;
}

std::string waiting_hash(const std::string& name, const shape::Architecture& architecture,
                         const protocol::TrainSpec& train) {
  return sha256_hex(fmt::format("waiting|{}|{}", name, identity_hash(architecture, train)));
}

std::string again_hash(const std::string& name, const shape::Architecture& architecture,
                       const protocol::TrainSpec& train) {
  return sha256_hex(fmt::format("again|{}|{}", name, identity_hash(architecture, train)));
}

Result<Candidate> with_widths(const Candidate& waiting, std::vector<shape::LayerWidths> widths) {
  Candidate out = waiting;
  out.architecture.widths = std::move(widths);
  TAILOR_RETURN_IF_ERROR(shape::validate(out.architecture));
  out.counts = shape::count_parameters(out.architecture);
  if (out.counts.total != waiting.counts.total) {
    return error(
        Code::kOutOfRange,
        fmt::format("its widths give {} parameters and the uniform ones {}",
                    with_thousands(out.counts.total), with_thousands(waiting.counts.total)));
  }
  out.waiting = false;
  out.hash = identity_hash(out.architecture, out.train);
  return out;
}

std::optional<ScheduleRequest> schedule_of(const Spec& spec, const Point& point) {
  if (!asks_for_geometry(point)) return std::nullopt;
  const auto merged = merge(spec, point);
  if (!merged) return std::nullopt;
  auto request = request_of(merged->architecture);
  if (!request) return std::nullopt;
  return *std::move(request);
}

std::string identity_hash(const shape::Architecture& architecture,
                          const protocol::TrainSpec& train) {
  return sha256_hex(identity(architecture, train));
}

Result<Candidate> restore(const Spec& spec, std::string name, Point point,
                          shape::Architecture architecture, std::string hash) {
  TAILOR_ASSIGN_OR_RETURN(const Merged merged, merge(spec, point));
  Candidate out;
  out.name = std::move(name);
  out.point = std::move(point);
  out.architecture = std::move(architecture);
  TAILOR_RETURN_IF_ERROR(shape::validate(out.architecture));
  out.counts = shape::count_parameters(out.architecture);
  TAILOR_ASSIGN_OR_RETURN(out.train, recipe(spec, merged.train, out.counts));
  out.hash = std::move(hash);
  out.waiting = asks_for_geometry(merged.architecture) &&
                out.hash == waiting_hash(out.name, out.architecture, out.train);
  if (!out.waiting && identity_hash(out.architecture, out.train) != out.hash &&
      again_hash(out.name, out.architecture, out.train) != out.hash) {
    return error(Code::kFailedPrecondition,
                 "its stored architecture with the recipe of the stored file is not what was "
                 "submitted: its hash differs");
  }
  return out;
}

bool is_from_file(const Spec& spec, const std::string& name, const Point& point) {
  return is_named(spec, name, point);
}

std::string reason_kind(std::string_view reason) {
  if (reason.starts_with(kNotSatisfied)) return std::string(reason.substr(0, reason.rfind(" (")));
  std::string out;
  for (std::size_t i = 0; i < reason.size(); ++i) {
    const char c = reason[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit) {
      out += c;
      continue;
    }
    // "1,152" and "0.25" are one number each.
    while (i + 1 < reason.size() &&
           std::string_view("0123456789,.").find(reason[i + 1]) != std::string_view::npos)
      ++i;
    if (reason[i] == ',' || reason[i] == '.') --i;
    out += 'N';
  }
  return out;
}

Result<std::vector<Candidate>> resolve_named(const Spec& spec) {
  std::vector<Candidate> out;
  const auto add = [&](const NamedCandidate& named) -> Status {
    auto candidate = resolve(spec, named.name, named.overrides);
    if (!candidate)
      return candidate.error().with_context(fmt::format("candidate \"{}\"", named.name));
    out.push_back(std::move(*candidate));
    return Status::ok();
  };
  for (const NamedCandidate* named : named_in_order(spec)) TAILOR_RETURN_IF_ERROR(add(*named));
  return out;
}

protocol::TrialSpec make_trial_spec(const Spec& spec, const Candidate& candidate,
                                    std::uint64_t seed, bool measured) {
  protocol::TrialSpec out;
  out.sweep_name = spec.name;
  out.candidate_name = candidate.name;
  out.seed = seed;
  out.architecture = candidate.architecture;
  out.data = spec.data;
  out.train = candidate.train;
  out.geometry = measured ? reference_geometry(spec) : spec.geometry;
  return out;
}

}  // namespace tailor::sweep
