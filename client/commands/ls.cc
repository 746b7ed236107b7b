// tailor ls: sweeps, or the trials of one.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

constexpr std::uint64_t kShown = 100;
constexpr std::uint64_t kSweepsPage = 1'000;
constexpr std::uint64_t kTrialsPage = 1'000;

v1::ListSweepsResponse sweeps_with(Context& context, const Page& page) {
  v1::ListSweepsRequest request;
  const std::uint64_t wanted = page.wanted(kShown);
  v1::ListSweepsResponse whole;
  for (std::uint64_t have = 0; have < wanted;) {
    request.set_offset(page.offset + have);
    request.set_limit(std::min<std::uint64_t>(wanted - have, kSweepsPage));
    auto answer = context.call<v1::ListSweepsRequest, v1::ListSweepsResponse>(
        &v1::CoordinatorService::Stub::ListSweeps, request);
    const auto given = static_cast<std::uint64_t>(answer.sweeps_size());
    answer.mutable_sweeps()->MergeFrom(whole.sweeps());  // older ones come first
    whole = std::move(answer);
    have += given;
    if (!whole.more() || given == 0) break;
  }
  return whole;
}

void list_sweeps(Context& context, const Page& page) {
  const auto answer = sweeps_with(context, page);
  const Printer out = context.printer();
  if (out.json()) return out.list_document(to_json(answer), "sweeps");
  std::vector<std::vector<std::string>> rows;
  bool drawing = false;
  for (const auto& s : answer.sweeps()) {
    rows.push_back({sweep_text(s.id()), s.name(), out.state(state_name(s.state())),
                    fmt::format("{}/{}", s.completed() + s.stopped(), trials_of(s)),
                    std::to_string(s.running()), std::to_string(s.queued()),
                    std::to_string(s.failed()), local_time(s.created_ms()),
                    duration(s.created_ms(), s.ended_ms()), search_text(s)});
    if (s.search_points() > s.search_tried() && s.state() == v1::SWEEP_STATE_RUNNING)
      drawing = true;
  }
  out.table({{"ID"},
             {"NAME"},
             {"STATE"},
             {"DONE", Align::kRight},
             {"RUNNING", Align::kRight},
             {"QUEUED", Align::kRight},
             {"FAILED", Align::kRight},
             {"CREATED"},
             {"TIME", Align::kRight},
             {"POINTS", Align::kRight}},
            rows);
  if (drawing) {
    out.note(
        "DONE is of the trials made so far; POINTS are tried of all points of the space, drawn as "
        "slots get free");
  }
  if (answer.more()) {
    out.note(fmt::format("the newest {} of {} sweeps; --all, --limit and --offset show older ones",
                         rows.size(), answer.total()));
  }
  for (const auto& s : answer.sweeps()) {
    if (s.unreadable().empty()) continue;
    out.note(
        fmt::format("{} cannot be read by this version of the coordinator and is not scheduled: {}",
                    sweep_text(s.id()), s.unreadable()));
  }
  if (answer.total() == 0) out.note("no sweeps yet: `tailor submit SWEEP.toml` starts one");
}

struct LsOptions {
  std::string sweep, state, order = "id";
  bool descending = false;
};

/// Calls `take` with each page until so many trials were given as are wanted, or all. Returns how
/// many match.
std::uint64_t trials_with(Context& context, const LsOptions& options, const Page& page,
                          const std::function<void(const v1::ListTrialsResponse&)>& take) {
  v1::ListTrialsRequest request;
  if (!options.sweep.empty()) *request.mutable_sweep() = sweep_ref(options.sweep);
  if (!options.state.empty()) request.set_state(parse_trial_state(options.state));
  request.set_order(options.order);
  request.set_descending(options.descending);
  request.set_offset(page.offset);
  const std::uint64_t wanted = page.wanted(kShown);
  std::uint64_t total = 0;
  for (std::uint64_t have = 0; have < wanted;) {
    request.set_limit(std::min<std::uint64_t>(wanted - have, kTrialsPage));
    const auto answer = context.call<v1::ListTrialsRequest, v1::ListTrialsResponse>(
        &v1::CoordinatorService::Stub::ListTrials, request);
    take(answer);
    total = std::max(total, answer.total());
    const auto given = static_cast<std::uint64_t>(answer.trials_size());
    have += given;
    if (!answer.more() || given == 0) break;
    if (options.order == "id") {  // trials that begin or end meanwhile shift nothing
      request.set_offset(0);
      request.set_after(answer.trials(answer.trials_size() - 1).id());
    } else {
      request.set_offset(page.offset + have);
    }
  }
  return total;
}

void list_trials(Context& context, const LsOptions& options, const Page& page) {
  const Printer out = context.printer();
  if (out.json_lines()) {
    trials_with(context, options, page, [&](const v1::ListTrialsResponse& answer) {
      for (const auto& trial : answer.trials()) out.document(to_json(trial));
    });
    return;
  }
  v1::ListTrialsResponse whole;
  const std::uint64_t total =
      trials_with(context, options, page, [&](const v1::ListTrialsResponse& answer) {
        whole.mutable_trials()->MergeFrom(answer.trials());
        whole.set_more(answer.more());
      });
  whole.set_total(total);
  if (out.json()) return out.document(to_json(whole));
  std::vector<std::vector<std::string>> rows;
  for (const auto& t : whole.trials()) {
    rows.push_back({trial_text(t.id()), t.candidate_name(), std::to_string(t.seed()),
                    out.state(state_name(t.state())), std::to_string(t.attempts()),
                    t.has_objective() ? fixed(t.objective(), 4) : "-",
                    duration(t.started_ms(), t.ended_ms()), t.message()});
  }
  out.table({{"TRIAL"},
             {"CANDIDATE"},
             {"SEED", Align::kRight},
             {"STATE"},
             {"ATTEMPTS", Align::kRight},
             {"LOSS", Align::kRight},
             {"TIME", Align::kRight},
             {"MESSAGE"}},
            rows);
  if (total > page.offset + rows.size()) {
    out.note(
        fmt::format("{} of {} trials; --all, --limit and --offset show more", rows.size(), total));
  }
}

}  // namespace

void add_ls(CLI::App& app, Context& context) {
  auto options = std::make_shared<LsOptions>();
  CLI::App* command = add_command(
      app, "ls", "Lists sweeps (the newest), or the trials of one sweep.",
      "  tailor ls\n  tailor ls last --state failed\n  tailor ls s3 --order objective --limit 10");
  command->add_option("SWEEP", options->sweep, "id, name or \"last\": list its trials");
  command->add_option("--state", options->state, "only trials in this state");
  command->add_option("--order", options->order, "id, objective, state or candidate")
      ->check(CLI::IsMember({"id", "objective", "state", "candidate"}));
  command->add_flag("--descending", options->descending, "largest first");
  const auto page = add_page(command, "rows", kShown);
  command->callback([&context, options, page] {
    if (options->sweep.empty() && options->state.empty()) return list_sweeps(context, *page);
    list_trials(context, *options, *page);
  });
}

}  // namespace tailor::client
