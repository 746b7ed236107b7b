// tailor ls: sweeps, or the trials of one.
#include <fmt/format.h>

#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

v1::TrialState parse_state(const std::string& text) {
  std::string name = "TRIAL_STATE_";
  for (const char c : text) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  v1::TrialState state = v1::TRIAL_STATE_UNSPECIFIED;
  if (!text.empty() &&
      (!v1::TrialState_Parse(name, &state) || state == v1::TRIAL_STATE_UNSPECIFIED)) {
    throw Failure(
        Exit::kUsage,
        fmt::format(
            "unknown state \"{}\"; allowed: queued, running, completed, stopped, failed, cancelled",
            text));
  }
  return state;
}

void list_sweeps(Context& context) {
  const auto answer = context.call<v1::ListSweepsRequest, v1::ListSweepsResponse>(
      &v1::CoordinatorService::Stub::ListSweeps, {});
  const Printer out = context.printer();
  if (out.json()) return out.document(to_json(answer));
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
  if (rows.empty()) out.note("no sweeps yet: `tailor submit SWEEP.toml` starts one");
}

}  // namespace

void add_ls(CLI::App& app, Context& context) {
  struct Options {
    std::string sweep, state, order = "id";
    bool descending = false;
    std::uint64_t limit = 100, offset = 0;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "ls", "Lists sweeps, or the trials of one sweep.",
      "  tailor ls\n  tailor ls last --state failed\n  tailor ls s3 --order objective --limit 10");
  command->add_option("SWEEP", options->sweep, "id, name or \"last\": list its trials");
  command->add_option("--state", options->state, "only trials in this state");
  command->add_option("--order", options->order, "id, objective, state or candidate")
      ->check(CLI::IsMember({"id", "objective", "state", "candidate"}));
  command->add_flag("--descending", options->descending, "largest first");
  command->add_option("--limit", options->limit, "rows at most")->check(CLI::Range(1, 10000));
  command->add_option("--offset", options->offset, "rows to skip");
  command->callback([&context, options] {
    if (options->sweep.empty() && options->state.empty()) return list_sweeps(context);
    v1::ListTrialsRequest request;
    if (!options->sweep.empty()) *request.mutable_sweep() = sweep_ref(options->sweep);
    request.set_state(parse_state(options->state));
    request.set_order(options->order);
    request.set_descending(options->descending);
    request.set_limit(options->limit);
    request.set_offset(options->offset);
    const auto answer = context.call<v1::ListTrialsRequest, v1::ListTrialsResponse>(
        &v1::CoordinatorService::Stub::ListTrials, request);
    const Printer out = context.printer();
    if (out.json()) return out.document(to_json(answer));
    std::vector<std::vector<std::string>> rows;
    for (const auto& t : answer.trials()) {
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
    if (answer.total() > options->offset + rows.size()) {
      out.note(fmt::format("{} of {} trials; --limit and --offset show more", rows.size(),
                           answer.total()));
    }
  });
}

}  // namespace tailor::client
