// tailor plan: what a sweep will run, before anything runs. Works on the file alone.
#include "coordinator/search/plan.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "client/format.h"
#include "client/sweep_file.h"
#include "client/table.h"
#include "coordinator/analysis/power.h"
#include "sweep/retry_rules.h"

namespace tailor::client {
namespace {

Json row_json(const search::PlanRow& row) {
  Json out;
  out["name"] = row.name;
  out["feasible"] = row.feasible;
  out["reason"] = row.reason;
  out["duplicate_of"] = row.duplicate_of.empty() ? Json(nullptr) : Json(row.duplicate_of);
  if (!row.feasible) return out;
  const auto& candidate = row.candidate;
  const auto& architecture = candidate.architecture;
  out["d_model"] = architecture.d_model;
  out["layers"] = architecture.layers();
  out["heads"] = architecture.heads;
  out["kv_heads"] = architecture.kv_heads;
  out["head_dim"] = architecture.head_dim;
  out["ffn_kind"] = std::string(shape::ffn_kind_name(architecture.ffn_kind));
  // Not known before the measurement: the counts are exact all the same.
  out["widths"] = row.waits_for.empty() ? Json(architecture.widths) : Json();
  out["waits_for"] = row.waits_for.empty() ? Json() : Json(row.waits_for);
  out["schedule"] = row.schedule.empty() ? Json() : Json(row.schedule);
  out["inserted"] = row.inserted;
  out["trials"] = row.trials;
  out["attention"] = candidate.counts.attention;
  out["ffn"] = candidate.counts.ffn;
  out["norms"] = candidate.counts.norms;
  out["embedding"] = candidate.counts.embedding;
  out["body"] = candidate.counts.body;
  out["total"] = candidate.counts.total;
  out["budget_error"] = candidate.budget_error;
  out["tokens"] = candidate.train.tokens;
  out["lr"] = candidate.train.optimizer.lr;
  out["training_flops"] = row.training_flops;
  out["memory_bytes"] = row.memory_bytes;
  return out;
}

/// "4 x 512" when every sub-MLP has one width, else "4 x 128..384".
std::string widths_text(const shape::Architecture& architecture) {
  std::int32_t low = architecture.widths[0][0], high = low;
  for (const auto& layer : architecture.widths) {
    for (const std::int32_t w : layer) {
      low = std::min(low, w);
      high = std::max(high, w);
    }
  }
  const std::size_t k = architecture.widths[0].size();
  return low == high ? fmt::format("{} x {}", k, low) : fmt::format("{} x {}..{}", k, low, high);
}

/// Trials of the whole sweep, were the points that were not looked at like those that were.
std::uint64_t estimated_trials(const search::Plan& plan) {
  if (plan.exhaustive || plan.rows.empty()) return plan.trials;
  const double share =
      static_cast<double>(plan.feasible - plan.duplicates) / static_cast<double>(plan.rows.size());
  return static_cast<std::uint64_t>(std::llround(share * static_cast<double>(plan.points) *
                                                 static_cast<double>(plan.spec.seeds.size())));
}

/// What the seeds of the whole sweep can tell of its comparisons.
analysis::Prospect prospect_of(const search::Plan& plan) {
  const std::uint64_t seeds = plan.spec.seeds.size();
  const std::uint64_t candidates = estimated_trials(plan) / std::max<std::uint64_t>(seeds, 1);
  const auto& compare = plan.spec.compare;
  return analysis::prospect_of(seeds, candidates > 0 ? candidates - 1 : 0, compare.primary,
                               compare.smallest_effect, compare.expected_sd);
}

Json prospect_json(const analysis::Prospect& prospect) {
  Json out;
  out["comparisons"] = prospect.comparisons;
  out["primary"] = prospect.primary;
  out["smallest_effect"] = prospect.smallest_effect;
  out["expected_sd"] = prospect.expected_sd ? Json(*prospect.expected_sd) : Json(nullptr);
  out["sd_that_resolves"] = json_number(prospect.sd_that_resolves);
  out["detectable"] = prospect.detectable ? json_number(*prospect.detectable) : Json(nullptr);
  out["seeds_needed"] = prospect.seeds_needed ? Json(*prospect.seeds_needed) : Json(nullptr);
  out["holm_smallest_p"] = prospect.holm_smallest_p;
  out["holm_seeds"] = prospect.holm_seeds;
  out["westfall_young_smallest_p"] = prospect.westfall_young_smallest_p;
  out["text"] = analysis::prospect_text(prospect);
  return out;
}

void print(const Printer& out, const search::Plan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : plan.rows) {
    if (!row.feasible) {
      rows.push_back(
          {row.name, out.state("infeasible"), "", "", "", "", "", "", "", "", row.reason});
      continue;
    }
    const auto& c = row.candidate;
    const std::string state = !row.duplicate_of.empty() ? "same as " + row.duplicate_of
                              : !row.waits_for.empty()  ? "cut from " + row.waits_for
                              : row.inserted            ? "inserted"
                                                        : "ok";
    rows.push_back({row.name, state, std::to_string(c.architecture.layers()),
                    std::to_string(c.architecture.d_model),
                    row.waits_for.empty() ? widths_text(c.architecture) : "(" + row.schedule + ")",
                    with_thousands(c.counts.body),
                    plan.spec.budget ? fmt::format("{:+}", c.budget_error) : "-",
                    with_thousands(c.counts.total), fmt::format("{:.3g}", c.train.optimizer.lr),
                    fmt::format("{:.2e}", row.training_flops),
                    fmt::format("{:.2f} GiB", static_cast<double>(row.memory_bytes) / (1 << 30))});
  }
  out.table({{"CANDIDATE"},
             {"STATE"},
             {"L", Align::kRight},
             {"D_MODEL", Align::kRight},
             {"K x D_H", Align::kRight},
             {"BODY", Align::kRight},
             {"OFF BUDGET", Align::kRight},
             {"TOTAL", Align::kRight},
             {"LR", Align::kRight},
             {"FLOPS/TRIAL", Align::kRight},
             {"MEMORY", Align::kRight}},
            rows);
  const std::size_t n = plan.spec.seeds.size();
  out.note(fmt::format(
      "{}{} candidates feasible, {} infeasible, {} the same as another; {} trials{}",
      plan.exhaustive ? "" : fmt::format("of the first {}: ", plan.rows.size()), plan.feasible,
      plan.infeasible, plan.duplicates, plan.trials,
      plan.inserted > 0 ? fmt::format(", {} of them only to be measured", plan.inserted)
                        : fmt::format(" = {} x {} seeds", plan.feasible - plan.duplicates, n)));
  if (plan.waiting > 0) {
    out.note(fmt::format(
        "the widths of {} {} cut from {} when {} measured: the budget is met "
        "exactly, whatever they are; what was measured before is used again",
        plan.waiting == 1 ? "one candidate" : std::to_string(plan.waiting) + " candidates",
        plan.waiting == 1 ? "is" : "are",
        plan.references == 1 ? "one reference trial"
                             : std::to_string(plan.references) + " reference trials",
        plan.references == 1 ? "it is" : "they are"));
  }
  for (const auto& [reason, count] : plan.infeasible_reasons) {
    out.note(fmt::format("{} points infeasible: {}", count, reason));
  }
  if (!plan.exhaustive) {
    out.note(fmt::format(
        "the sweep has {} points and only the first {} were looked at (--max looks at more): an "
        "estimate, were all alike, is {} trials",
        plan.points, plan.rows.size(), estimated_trials(plan)));
  }
  out.note(fmt::format("each trial takes {}; tried again since its last progress: {}",
                       sweep::resources_text(plan.spec.resources),
                       sweep::retry_text(plan.spec.retry)));
  for (const std::string& text : analysis::prospect_text(prospect_of(plan))) out.note(text);
}

Json resources_json(const sweep::ResourceSpec& resources) {
  return {{"gpus", resources.gpus},
          {"cpus", resources.cpus},
          {"nodes", resources.nodes},
          {"nodes_min", resources.nodes_min},
          {"ranks", resources.ranks()},
          {"gpu_memory_bytes", resources.gpu_memory_bytes},
          {"memory_bytes", resources.memory_bytes},
          {"labels", resources.labels},
          {"parallel", resources.parallel},
          {"priority", resources.priority},
          {"preemptible", resources.preemptible}};
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  struct Options {
    std::string file;
    std::size_t rows_max = 10'000;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "plan", "What a sweep file will run: exact counts, nothing is started.",
                  "  tailor plan sweep.toml\n  tailor plan sweep.toml --json");
  command->add_option("SWEEP.toml", options->file, "the sweep file")->required();
  command->add_option("--max", options->rows_max, "candidates to look at, at most");
  command->callback([&context, options] {
    const sweep::Spec spec = load_sweep_file(options->file).spec;
    const search::Plan plan = require(search::make_plan(spec, options->rows_max));
    const Printer out = context.printer();
    if (out.json()) {
      Json json;
      json["name"] = spec.name;
      json["points"] = plan.points;
      json["feasible"] = plan.feasible;
      json["infeasible"] = plan.infeasible;
      json["duplicates"] = plan.duplicates;
      json["seeds"] = spec.seeds;
      json["infeasible_reasons"] = plan.infeasible_reasons;
      json["looked_at"] = plan.rows.size();
      json["trials"] = plan.trials;
      json["waiting"] = plan.waiting;
      json["reference_trials"] = plan.references;
      json["inserted_trials"] = plan.inserted;
      json["trials_estimate"] = estimated_trials(plan);
      json["exhaustive"] = plan.exhaustive;
      const analysis::Resolution resolution = analysis::resolution_of(spec.seeds.size());
      json["resources"] = resources_json(spec.resources);
      for (const auto& rule : sweep::retry_rules()) {
        json["retry"][std::string(protocol::end_class_name(rule.end))] = spec.retry.at(rule.end);
      }
      json["smallest_p"] = resolution.smallest_p;
      json["resolvable_effect_sd"] = json_number(resolution.half_width_sd);
      json["detectable_effect_sd"] = json_number(resolution.effect_sd);
      json["power"] = analysis::kPower;
      json["compare"] = prospect_json(prospect_of(plan));
      json["candidates"] = Json::array();
      for (const auto& row : plan.rows) json["candidates"].push_back(row_json(row));
      out.document(json);
    } else {
      print(out, plan);
    }
    if (plan.feasible == 0) throw Failure(Exit::kUsage, "no candidate of this sweep is feasible");
  });
}

}  // namespace tailor::client
