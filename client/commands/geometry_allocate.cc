// tailor geometry allocate: widths from measured work under a budget. Prints what
// geometry/width_problem.h reads and solves.
#include <fmt/format.h>

#include <optional>

#include "base/file.h"
#include "client/commands/geometry_input.h"
#include "client/table.h"
#include "geometry/width_problem.h"
#include "geometry/work_profile_json.h"

namespace tailor::client::geometry_tools {
namespace {

constexpr std::size_t kProblemBytesMax = 64 << 20;

struct AllocateOptions {
  std::string file;
  std::string profile;  // "" = the work is in the file
  std::string geometry = "raw", statistic = "gromov";
  geometry::WidthProblemOverrides overrides;
};

std::string layers_named(const std::vector<std::size_t>& some) {
  return fmt::format("{} {}", some.size() == 1 ? "layer" : "layers", fmt::join(some, ", "));
}

// What nobody may overlook: integer widths that are missing or may not be the best, exponents that
// were raised, layers that get no width at all.
void note_caveats(const Printer& out, const geometry::WidthProblem& problem,
                  const geometry::WidthSolution& solution) {
  if (!solution.integers && problem.quantum != 0) {
    out.note(
        fmt::format("tailor: no integer widths: {} (\"quantum\" sets the multiple, 64 unless "
                    "given)",
                    solution.no_integers));
  }
  if (!problem.errors_given) {
    // Nobody asked for errors.
  } else if (!solution.no_errors.empty()) {
    out.note("tailor: no standard errors of work and widths: " + solution.no_errors);
  } else if (solution.integers && !solution.no_integer_errors.empty()) {
    out.note("tailor: no standard errors of integer widths: " + solution.no_integer_errors);
  }
  if (!solution.raised.empty()) {
    out.note(fmt::format("tailor: exponents below {} count as that (\"exponent_min\"): {}",
                         problem.allocation.exponent_min, layers_named(solution.raised)));
  }
  if (!solution.without_width.empty()) {
    out.note(fmt::format("tailor: no work and no floor, so width 0: {}; a \"floor\" keeps a layer",
                         layers_named(solution.without_width)));
  }
  if (solution.integers && !solution.integers->optimal) {
    out.note(
        "tailor: the integer widths are good, but not proved to be the best: with these costs "
        "there are too many totals to look through");
  }
}

void print_solution(const Printer& out, const geometry::WidthProblem& problem,
                    const geometry::WidthSolution& solution) {
  const geometry::Allocation& solved = solution.allocation;
  std::vector<Column> columns = {{"LAYER", Align::kRight}, {"WORK", Align::kRight}};
  const auto error_column = [&](const std::vector<double>& errors) {
    if (!errors.empty()) columns.push_back({"(SE)", Align::kRight});
  };
  const auto put_error = [](std::vector<std::string>& row, const std::vector<double>& errors,
                            std::size_t l) {
    if (!errors.empty()) row.push_back(fmt::format("{:.3g}", errors[l]));
  };
  error_column(solution.work_errors);
  columns.push_back({"EXPONENT", Align::kRight});
  columns.push_back({"WIDTH", Align::kRight});
  error_column(solution.width_errors);
  if (solution.integers) columns.push_back({"INTEGER", Align::kRight});
  error_column(solution.integer_errors);
  columns.push_back({"STATE"});
  columns.push_back({"KKT", Align::kRight});
  std::vector<std::vector<std::string>> rows;
  for (std::size_t l = 0; l < solved.widths.size(); ++l) {
    std::vector<std::string> row = {std::to_string(l),
                                    fmt::format("{:.6g}", problem.allocation.work[l])};
    put_error(row, solution.work_errors, l);
    row.push_back(fmt::format("{:.4g}", solution.exponents[l]));
    row.push_back(fmt::format("{:.10g}", solved.widths[l]));
    put_error(row, solution.width_errors, l);
    if (solution.integers) row.push_back(fmt::format("{}", solution.integers->widths[l]));
    put_error(row, solution.integer_errors, l);
    row.emplace_back(geometry::layer_state_name(solved.states[l]));
    row.push_back(fmt::format("{:.6g}", solved.kkt[l]));
    rows.push_back(std::move(row));
  }
  out.table(columns, rows);
  out.line(fmt::format("multiplier {:.12g}, objective {:.12g}, budget {:.12g} met to {:.1e}",
                       solved.multiplier, solved.objective, problem.allocation.budget,
                       solved.residual));
  if (solution.integers) {
    const geometry::IntegerAllocation& integers = *solution.integers;
    out.line(fmt::format(
        "in multiples of {}: objective {:.12g}, {}, budget {}", problem.quantum, integers.objective,
        integers.optimal ? "the best there is" : "not proved the best",
        integers.error == 0 ? "met exactly" : fmt::format("met to {:.1e}", integers.error)));
  }
  if (solution.front_load && solved.widths.size() >= 3) {
    out.line(fmt::format(
        "work in the first third of the layers {:.4f}{}", *solution.front_load,
        solution.front_load_error ? fmt::format(" (SE {:.2g})", *solution.front_load_error) : ""));
  }
  if (!solution.width_errors.empty()) {
    out.note(fmt::format(
        "standard errors by the jackknife over {} subsamples, through shaping, solver and rounding",
        problem.without.size()));
  }
  if (solved.no_signal) out.note("no layer has any work: the budget was spread evenly");
}

void run_allocate(const Context& context, const AllocateOptions& options) {
  const Printer out = context.printer();
  const std::string text = require_input(read_file(options.file, kProblemBytesMax));
  geometry::WidthProblemOverrides overrides = options.overrides;
  if (!options.profile.empty()) {
    const auto geometry = require_input(geometry::parse_geometry(options.geometry));
    const auto profile = require_input(geometry::work_profile_from_json(require_input(
                                           read_file(options.profile, kProblemBytesMax))),
                                       options.profile);
    overrides.work =
        require_input(geometry::work_series(profile, geometry, options.statistic), options.profile);
  }
  const auto problem = require_input(geometry::parse_width_problem(text, overrides), options.file);
  const auto solution = require_input(geometry::solve_width_problem(problem), options.file);
  note_caveats(out, problem, solution);
  if (out.json()) return out.document(geometry::width_solution_json(problem, solution));
  print_solution(out, problem, solution);
}

}  // namespace

void add_allocate(CLI::App& group, Context& context) {
  auto options = std::make_shared<AllocateOptions>();
  CLI::App* command = add_command(
      group, "allocate",
      "Cuts hidden widths from measured work: minimise sum work_l w_l^-exponent_l under sum cost_l "
      "w_l = budget, between floors and caps. Exact, with integer widths and a proof of "
      "optimality. "
      "docs/cli.md describes the file.",
      "  tailor geometry allocate problem.json\n"
      "  tailor geometry allocate problem.json --quantum 8 --json\n"
      "  tailor geometry allocate problem.json --profile work.json --geometry spherical "
      "--statistic "
      "gromov\n"
      "  echo '{\"work\": [2.5, 1.2, 0.7], \"exponent\": 0.2, \"floor\": 512, \"budget\": 9216}' > "
      "problem.json");
  command->add_option("PROBLEM.json", options->file, "the problem")->required();
  command->add_option("--profile", options->profile,
                      "take the work, and its errors, from this profile: what `work --output` "
                      "writes, or artifacts/work_profile.json of a trial");
  command->add_option("--geometry", options->geometry, "of the profile (default raw)");
  command->add_option("--statistic", options->statistic, "of the profile (default gromov)");
  command
      ->add_option("--quantum", options->overrides.quantum,
                   "integer widths in multiples of this; 0: none (default: the file's, else 64; "
                   "ours)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  command->add_option("--width-unit", options->overrides.width_unit,
                      "absolute (neurons) or relative (to the uniform width): different problems "
                      "when exponents differ (default: the file's, else absolute; ours)");
  command->callback([&context, options] { run_allocate(context, *options); });
}

}  // namespace tailor::client::geometry_tools
