// tailor submit: hands a sweep file to the coordinator. The same file twice is the same sweep.
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "client/format.h"
#include "client/sweep_file.h"
#include "client/table.h"
#include "coordinator/search/plan.h"
#include "sweep/candidate.h"

namespace tailor::client {
namespace {

constexpr std::size_t kPlanRowsMax = 10'000;  // points to look at before a sweep is sent

/// Of who runs this; their number where the system knows no name.
std::string user_name() {
  const uid_t id = geteuid();
  const passwd* entry = getpwuid(id);
  return entry == nullptr ? std::to_string(id) : entry->pw_name;
}

}  // namespace

void add_submit(CLI::App& app, Context& context) {
  struct Options {
    std::string file;
    bool watch = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "submit", "Starts a sweep. Submitting the same file again gives the same sweep.",
      "  tailor submit sweep.toml\n  tailor submit sweep.toml --watch\n  tailor submit sweep.toml "
      "--json");
  command->add_option("SWEEP.toml", options->file, "the sweep file")->required();
  command->add_flag("--watch", options->watch, "follow it until it ends");
  command->callback([&context, options] {
    // Checked here first: errors need no coordinator, and nothing is submitted.
    const SweepFile file = load_sweep_file(options->file);
    const sweep::Spec& spec = file.spec;
    require(status_of(sweep::resolve_named(spec)));
    const search::Plan plan = require(search::make_plan(spec, kPlanRowsMax));

    v1::SubmitSweepRequest request;
    request.set_toml(file.text);
    request.set_file_name(options->file);
    request.set_base_dir(file.base_dir);
    request.set_user(user_name());
    const auto answer = context.call<v1::SubmitSweepRequest, v1::SubmitSweepResponse>(
        &v1::CoordinatorService::Stub::SubmitSweep, request);
    const Printer out = context.printer();
    // The coordinator draws points while it runs and knows only a bound; a space that is small
    // enough was counted here.
    const bool exact = answer.trials_exact() || plan.exhaustive;
    const std::uint64_t trials =
        answer.trials_exact() || !plan.exhaustive ? answer.trials() : plan.trials;
    if (out.json() && !options->watch) {
      Json json = to_json(answer);
      json["trials"] = trials;
      json["trials_exact"] = exact;
      json["name"] = spec.name;
      out.document(json);
    } else if (!out.json()) {
      out.line(fmt::format("{} {} {}: {}{} trials", sweep_text(answer.sweep()), spec.name,
                           answer.created() ? "submitted" : "is already there (same file)",
                           exact ? "" : "at most ", trials));
      if (!exact) {
        out.note(
            fmt::format("of {} points of the space the first {} were looked at: {} of them are "
                        "feasible and new",
                        plan.points, plan.rows.size(), plan.feasible - plan.duplicates));
      } else if (plan.infeasible > 0) {
        out.note(fmt::format(
            "{} of {} points of the space are infeasible and fall away; `tailor plan` says why",
            plan.infeasible, plan.points));
      }
    }
    if (!options->watch) {
      if (exact && trials == 0) {
        throw Failure(
            Exit::kSomeFailed,
            "no point of the space is feasible: nothing will be trained; `tailor plan` says why");
      }
      return;
    }
    v1::SweepRef ref;
    ref.set_id(answer.sweep());
    const Exit exit = watch_sweep(context, ref, 1.0);
    if (exit != Exit::kOk) throw Failure(exit, "");
  });
}

}  // namespace tailor::client
