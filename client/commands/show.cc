// tailor show: one sweep or one trial, whole.
#include <fmt/format.h>

#include <map>

#include "base/ids.h"
#include "base/text.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

void show_trial(Context& context, std::uint64_t id) {
  v1::GetTrialRequest request;
  request.set_trial(id);
  const auto answer = context.call<v1::GetTrialRequest, v1::GetTrialResponse>(
      &v1::CoordinatorService::Stub::GetTrial, request);
  const Printer out = context.printer();
  if (out.json()) return out.document(to_json(answer));
  const auto& t = answer.trial();
  out.line(fmt::format("{}  {}  seed {}  {}  body {}", out.bold(trial_text(t.id())),
                       t.candidate_name(), t.seed(), out.state(state_name(t.state())),
                       with_thousands(t.parameters_body())));
  if (!t.message().empty()) out.line("  " + t.message());
  for (const auto& [name, value] : t.values()) out.line(fmt::format("  {} = {:.6g}", name, value));
  std::vector<std::vector<std::string>> rows;
  for (const auto& a : answer.attempts()) {
    rows.push_back(
        {fmt::format("{}.{}", trial_text(a.trial()), a.number()), a.worker_name(), a.state(),
         a.end_class(), a.resumed_step() > 0 ? fmt::format("step {}", a.resumed_step()) : "-",
         local_time(a.assigned_ms()), duration(a.assigned_ms(), a.ended_ms()), a.message()});
  }
  out.table({{"ATTEMPT"},
             {"WORKER"},
             {"STATE"},
             {"END"},
             {"RESUMED FROM"},
             {"ASSIGNED"},
             {"TIME", Align::kRight},
             {"MESSAGE"}},
            rows);
  if (answer.checkpoints_size() > 0) {
    const auto& last = answer.checkpoints(answer.checkpoints_size() - 1);
    out.line(fmt::format("checkpoints: {}, the last at step {} in {}", answer.checkpoints_size(),
                         last.step(), last.path()));
  }
}

void show_sweep(Context& context, const std::string& text) {
  v1::GetSweepRequest request;
  *request.mutable_sweep() = sweep_ref(text);
  const auto answer = context.call<v1::GetSweepRequest, v1::GetSweepResponse>(
      &v1::CoordinatorService::Stub::GetSweep, request);
  const Printer out = context.printer();
  if (out.json()) return out.document(to_json(answer));
  const auto& s = answer.sweep();
  out.line(fmt::format("{}  {}  {}", out.bold(sweep_text(s.id())), s.name(),
                       out.state(state_name(s.state()))));
  if (!s.description().empty()) out.line("  " + s.description());
  if (!s.message().empty()) out.line("  " + s.message());
  out.line(
      fmt::format("  trials: {} queued, {} running, {} completed, {} failed, {} cancelled; {} "
                  "seeds; {} points infeasible",
                  s.queued(), s.running(), s.completed(), s.failed(), s.cancelled(), s.seeds(),
                  s.infeasible()));
  if (s.search_points() > 0) {
    out.line(fmt::format("  search: {} of {} points tried{}", s.search_tried(), s.search_points(),
                         s.trials_at_most() > trials_of(s)
                             ? fmt::format("; at most {} trials in all", s.trials_at_most())
                             : ""));
  }
  for (const auto& [reason, count] : std::map<std::string, std::uint64_t>(
           s.infeasible_reasons().begin(), s.infeasible_reasons().end())) {
    out.line(fmt::format("  {} points infeasible: {}", count, reason));
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& c : answer.candidates()) {
    rows.push_back({std::to_string(c.index()),
                    c.name() + (c.name() == s.baseline() ? " (baseline)" : ""),
                    with_thousands(c.parameters_body()), with_thousands(c.parameters_total()),
                    c.point_json()});
  }
  out.table({{"#", Align::kRight},
             {"CANDIDATE"},
             {"BODY", Align::kRight},
             {"TOTAL", Align::kRight},
             {"POINT"}},
            rows);
}

}  // namespace

void add_show(CLI::App& app, Context& context) {
  auto what = std::make_shared<std::string>();
  CLI::App* command =
      add_command(app, "show", "Shows one sweep (id, name, \"last\") or one trial (t41).",
                  "  tailor show last\n  tailor show t41\n  tailor show my-sweep --json");
  command->add_option("WHAT", *what, "sweep or trial")->required();
  command->callback([&context, what] {
    if (is_trial(*what)) return show_trial(context, trial_id(*what));
    show_sweep(context, *what);
  });
}

}  // namespace tailor::client
