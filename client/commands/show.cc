// tailor show: one sweep or one trial: what it is, and a page of what belongs to it.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/ids.h"
#include "base/text.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

constexpr std::uint64_t kShown = 100;  // candidates, attempts, checkpoints
constexpr std::uint64_t kShownJson = 1'000;
constexpr std::uint64_t kTrialPage = 100;  // so few that no answer is cut for its bytes

std::uint64_t standard(const Printer& out) { return out.json() ? kShownJson : kShown; }

void note_more(const Printer& out, const char* what, const std::string& more) {
  if (!more.empty()) out.note(fmt::format("{}: {}", what, more));
}

v1::GetTrialResponse trial_with(Context& context, std::uint64_t id, const Page& page) {
  v1::GetTrialRequest request;
  request.set_trial(id);
  const std::uint64_t wanted = page.wanted(standard(context.printer()));
  // Attempts and checkpoints are paged from the newest back.
  std::vector<v1::GetTrialResponse> pages;
  for (std::uint64_t have = 0; have < wanted;) {
    request.set_offset(page.offset + have);
    request.set_limit(std::min<std::uint64_t>(wanted - have, kTrialPage));
    pages.push_back(context.call<v1::GetTrialRequest, v1::GetTrialResponse>(
        &v1::CoordinatorService::Stub::GetTrial, request));
    const v1::GetTrialResponse& last = pages.back();
    const std::uint64_t most =
        std::max({last.attempts_total(), last.checkpoints_total(), last.metrics_total()});
    have += request.limit();
    if (page.offset + have >= most) break;
  }
  v1::GetTrialResponse whole = pages.front();
  whole.clear_attempts();
  whole.clear_checkpoints();
  whole.clear_metrics();
  for (auto it = pages.rbegin(); it != pages.rend(); ++it) {
    whole.mutable_attempts()->MergeFrom(it->attempts());
    whole.mutable_checkpoints()->MergeFrom(it->checkpoints());
  }
  for (const auto& one : pages) whole.mutable_metrics()->MergeFrom(one.metrics());
  return whole;
}

void show_trial(Context& context, std::uint64_t id, const Page& page) {
  const auto answer = trial_with(context, id, page);
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
  note_more(out, "attempts",
            more_text(answer.attempts_total(), page.offset,
                      static_cast<std::uint64_t>(answer.attempts_size())));
  if (answer.logs_pruned_ms() > 0) {
    out.note(fmt::format("its logs were pruned at {}", local_time(answer.logs_pruned_ms())));
  }
  if (answer.points_pruned_ms() > 0) {
    out.note(fmt::format("its curves were pruned at {}", local_time(answer.points_pruned_ms())));
  }
  if (answer.checkpoints_size() > 0) {
    const auto& last = answer.checkpoints(answer.checkpoints_size() - 1);
    out.line(
        fmt::format("checkpoints: {}, the last at step {} in {}",
                    std::max<std::uint64_t>(answer.checkpoints_total(),
                                            static_cast<std::uint64_t>(answer.checkpoints_size())),
                    last.step(), last.path()));
  }
}

v1::GetSweepResponse sweep_with(Context& context, const std::string& text, const Page& page) {
  v1::GetSweepRequest request;
  *request.mutable_sweep() = sweep_ref(text);
  const std::uint64_t wanted = page.wanted(standard(context.printer()));
  v1::GetSweepResponse whole;
  for (std::uint64_t have = 0; have < wanted;) {
    request.set_offset(page.offset + have);
    request.set_limit(std::min<std::uint64_t>(wanted - have, kShownJson));
    auto answer = context.call<v1::GetSweepRequest, v1::GetSweepResponse>(
        &v1::CoordinatorService::Stub::GetSweep, request);
    const auto given = static_cast<std::uint64_t>(answer.candidates_size());
    if (have == 0) {
      whole = std::move(answer);
      request.mutable_sweep()->set_id(whole.sweep().id());  // "last" may be another by now
    } else {
      whole.mutable_candidates()->MergeFrom(answer.candidates());
      whole.set_more(answer.more());
    }
    have += given;
    if (!whole.more() || given == 0) break;
  }
  return whole;
}

void show_sweep(Context& context, const std::string& text, const Page& page) {
  const auto answer = sweep_with(context, text, page);
  const Printer out = context.printer();
  if (out.json()) return out.list_document(to_json(answer), "candidates");
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
    out.line(fmt::format("  {} points fell away: {}", count, reason));
  }
  out.line(fmt::format("  {} candidates",
                       with_thousands(static_cast<std::int64_t>(answer.candidates_total()))));
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
  note_more(out, "candidates",
            more_text(answer.candidates_total(), page.offset,
                      static_cast<std::uint64_t>(answer.candidates_size())));
}

}  // namespace

void add_show(CLI::App& app, Context& context) {
  auto what = std::make_shared<std::string>();
  CLI::App* command =
      add_command(app, "show", "Shows one sweep (id, name, \"last\") or one trial (t41).",
                  "  tailor show last\n  tailor show t41\n  tailor show my-sweep --all --json");
  command->add_option("WHAT", *what, "sweep or trial")->required();
  const auto page = add_page(command, "candidates (of a trial: attempts)", kShown);
  command->callback([&context, what, page] {
    if (is_trial(*what)) return show_trial(context, trial_id(*what), *page);
    show_sweep(context, *what, *page);
  });
}

}  // namespace tailor::client
