// tailor pause, resume, cancel, retry, priority: changes to running sweeps and trials. Each says
// what it hits (kind, id, name, what runs) before it does anything, and does no more with
// --dry-run.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <set>
#include <utility>

#include "base/ids.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

std::string target_text(const v1::Sweep& s) {
  return fmt::format("sweep {} \"{}\" ({}, {} trials running, {} queued)", sweep_text(s.id()),
                     s.name(), state_name(s.state()), s.running(), s.queued());
}

/// Does to the sweep that `text` names what `request` says. `doing`: "cancelling".
void control_sweep(Context& context, const std::string& text, v1::ControlSweepRequest request,
                   const char* action, const char* doing, bool dry_run) {
  const v1::Sweep before = find_sweep(context, text);
  // By id from here on: "last" may be another sweep by now.
  request.mutable_sweep()->set_id(before.id());
  const Printer out = context.printer();
  v1::Sweep after = before;
  if (!dry_run) {
    out.note(fmt::format("{} {}", doing, target_text(before)));
    after = context
                .call<v1::ControlSweepRequest, v1::ControlSweepResponse>(
                    &v1::CoordinatorService::Stub::ControlSweep, request)
                .sweep();
  }
  if (out.json()) {
    Json json = to_json(after);
    json["kind"] = "sweep";
    json["action"] = action;
    json["dry_run"] = dry_run;
    json["before"] = {{"state", state_name(before.state())},
                      {"priority", before.priority()},
                      {"running", before.running()},
                      {"queued", before.queued()}};
    return out.document(json);
  }
  if (dry_run) return out.line(fmt::format("would {} {}", action, target_text(before)));
  out.line(fmt::format("{} {} is {} (priority {})", sweep_text(after.id()), after.name(),
                       state_name(after.state()), after.priority()));
}

v1::ControlTrialsResponse ask_trials(Context& context, v1::ControlTrialsRequest request,
                                     bool dry_run) {
  request.set_dry_run(dry_run);
  auto answer = context.call<v1::ControlTrialsRequest, v1::ControlTrialsResponse>(
      &v1::CoordinatorService::Stub::ControlTrials, request);
  // Coordinators of earlier versions name them all and give no number.
  if (answer.total() == 0) answer.set_total(static_cast<std::uint64_t>(answer.trials_size()));
  return answer;
}

std::string targets_text(const v1::ControlTrialsResponse& answer) {
  constexpr int kShown = 5;
  std::string text;
  for (int i = 0; i < std::min(answer.targets_size(), kShown); ++i) {
    const auto& t = answer.targets(i);
    text += fmt::format("{}{} trial{} of sweep {} \"{}\" ({} running)", text.empty() ? "" : ", ",
                        t.trials(), t.trials() == 1 ? "" : "s", sweep_text(t.sweep()),
                        t.sweep_name(), t.running());
  }
  if (answer.targets_size() > kShown) {
    text += fmt::format(", and of {} other sweeps", answer.targets_size() - kShown);
  }
  if (answer.total() == 1 && answer.trials_size() == 1)
    return fmt::format("trial {}: {}", trial_text(answer.trials(0)), text);
  return text;
}

/// "100 oom, 20 nan, 3 without an end": how the last attempts ended; "" when none did.
std::string classes_text(const v1::ControlTrialsResponse& answer) {
  std::vector<std::pair<std::uint64_t, std::string>> counts;
  for (const auto& [name, count] : answer.by_class()) {
    counts.emplace_back(count, name.empty() ? "without an end" : name);
  }
  if (counts.size() == 1 && counts.front().second == "without an end") return "";
  std::sort(counts.rbegin(), counts.rend());
  std::string text;
  for (const auto& [count, name] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  }
  return text;
}

/// " t1 t2 t3 and 117 more".
std::string trials_list(const v1::ControlTrialsResponse& answer) {
  constexpr int kShown = 20;
  std::string list;
  const int shown = std::min(answer.trials_size(), kShown);
  for (int i = 0; i < shown; ++i) list += " " + trial_text(answer.trials(i));
  const std::uint64_t left = answer.total() - static_cast<std::uint64_t>(shown);
  return left > 0 ? list + fmt::format(" and {} more", left) : list;
}

struct Words {
  const char* action;  ///< "cancel"
  const char* doing;   ///< "cancelling"
  const char* done;    ///< "cancelled"
  const char* unfit;   ///< why a trial is left out: "has ended"
};

/// Which trials of a sweep, beside the sweep itself.
struct FilterOptions {
  std::vector<std::string> states, classes, candidates;
  std::vector<std::uint64_t> seeds;
  bool given() const {
    return !states.empty() || !classes.empty() || !candidates.empty() || !seeds.empty();
  }
};

/// A filter may hit what its author did not think of: in a script it is confirmed beforehand, on a
/// terminal when its hits are known.
void confirm(const Printer& out, const Words& words, const v1::ControlTrialsResponse& hits,
             bool yes) {
  if (yes) return;
  const std::string what = targets_text(hits);
  if (::isatty(STDIN_FILENO) != 1) {
    throw Failure(Exit::kUsage, fmt::format("would {} {}; in a script add --yes (or --dry-run to "
                                            "see it only). Nothing was done",
                                            words.action, what));
  }
  out.note(fmt::format("{} {}? [y/N]", words.action, what));
  const int answer = std::getchar();
  if (answer != 'y' && answer != 'Y') throw Failure(Exit::kUsage, "nothing was done");
}

struct ControlOptions {
  bool dry_run = false;
  bool confirm = false;  ///< ask before anything is done, unless `yes`
  bool yes = false;
};

void control_trials(Context& context, const v1::ControlTrialsRequest& request, const Words& words,
                    const ControlOptions& options) {
  const Printer out = context.printer();
  v1::ControlTrialsResponse answer = ask_trials(context, request, true);
  Json left_out = Json::array();
  // Of more trials than an answer names it is not known which are left out, only how many.
  const std::set<std::uint64_t> hit(answer.trials().begin(), answer.trials().end());
  if (answer.total() == hit.size()) {
    for (const std::uint64_t id : request.trials()) {
      if (hit.count(id) > 0) continue;
      left_out.push_back(id);
      out.note(fmt::format("trial {} is left as it is: it {}", trial_text(id), words.unfit));
    }
  } else if (request.trials_size() > 0 &&
             answer.total() < static_cast<std::uint64_t>(request.trials_size())) {
    out.note(fmt::format("{} of {} trials are left as they are: they {}",
                         static_cast<std::uint64_t>(request.trials_size()) - answer.total(),
                         request.trials_size(), words.unfit));
  }
  const std::string classes = classes_text(answer);
  if (!options.dry_run && answer.total() > 0) {
    if (options.confirm) confirm(out, words, answer, options.yes);
    out.note(fmt::format("{} {}", words.doing, targets_text(answer)));
    answer = ask_trials(context, request, false);
  }
  if (!answer.stopped_by().empty()) {
    out.note(fmt::format("not all were {}: {}", words.done, answer.stopped_by()));
  }
  if (out.json()) {
    Json json = to_json(answer);
    json["kind"] = "trials";
    json["action"] = words.action;
    json["left_out"] = std::move(left_out);
    json["dry_run"] = options.dry_run;
    out.document(json);
  } else if (answer.total() == 0) {
    out.line(fmt::format("nothing to {}", words.action));
  } else {
    out.line(
        options.dry_run
            ? fmt::format("would {} {}:{}", words.action, targets_text(answer), trials_list(answer))
            : fmt::format("{} {} trials:{}", words.done, answer.total(), trials_list(answer)));
    if (!classes.empty()) out.line(fmt::format("  by how they ended last: {}", classes));
  }
  if (!answer.stopped_by().empty()) throw Failure(Exit::kInternal, "");
}

/// A sweep of older days may be called like a trial: then nothing is done before it is said which
/// is meant.
void refuse_ambiguous(Context& context, const std::string& text) {
  v1::Sweep named;
  try {
    named = find_sweep(context, text);
  } catch (const Failure& failure) {
    if (failure.exit_code() == Exit::kNotFound) return;  // the usual case
    throw;
  }
  throw Failure(
      Exit::kUsage,
      fmt::format(
          "{} is a trial's id and also the name of sweep {} ({}): say {} for the sweep, or add "
          "--trial for the trial; nothing was done",
          text, sweep_text(named.id()), state_name(named.state()), sweep_text(named.id())));
}

struct WhatOptions {
  std::vector<std::string> what;
  bool trials = false;
  FilterOptions filter;
  ControlOptions control;
};

std::shared_ptr<WhatOptions> add_what(CLI::App* command, const char* what, const char* states) {
  auto options = std::make_shared<WhatOptions>();
  command->add_option("WHAT", options->what, what)->required();
  command->add_flag("--trial", options->trials,
                    "what reads like a trial's id is one, also where a sweep is called so");
  // Each may be given again; one value at a time, so that WHAT may follow.
  const auto again = [](CLI::Option* option) { option->expected(1)->take_all(); };
  again(command->add_option("--state", options->filter.states,
                            fmt::format("only trials of the sweep in this state (again: or in this "
                                        "one; {} unless given)",
                                        states)));
  again(command->add_option("--class", options->filter.classes,
                            "only trials whose last attempt ended so: oom, nan, user, ..."));
  again(command->add_option("--candidate", options->filter.candidates,
                            "only trials of this candidate"));
  again(command->add_option("--seed", options->filter.seeds, "only trials with this seed"));
  command->add_flag("--dry-run", options->control.dry_run, "only say what would be hit");
  command->add_flag("--yes", options->control.yes,
                    "do not ask about what a filter hits; needed in scripts");
  return options;
}

/// The filter for the sweep that `options` name. `states` count unless some are given.
v1::TrialFilter filter_of(Context& context, const WhatOptions& options,
                          std::initializer_list<v1::TrialState> states) {
  v1::TrialFilter filter;
  filter.mutable_sweep()->set_id(find_sweep(context, options.what.front()).id());
  for (const auto& state : options.filter.states) filter.add_states(parse_trial_state(state));
  if (filter.states_size() == 0) {
    for (const auto state : states) filter.add_states(state);
  }
  filter.mutable_end_classes()->Add(options.filter.classes.begin(), options.filter.classes.end());
  filter.mutable_candidates()->Add(options.filter.candidates.begin(),
                                   options.filter.candidates.end());
  filter.mutable_seeds()->Add(options.filter.seeds.begin(), options.filter.seeds.end());
  return filter;
}

/// True when `options` name trials, which then are in `request`; false when they name one sweep.
bool take_trials(Context& context, const WhatOptions& options, const char* action,
                 v1::ControlTrialsRequest* request) {
  if (!options.trials && !is_trial(options.what.front())) {
    if (options.what.size() == 1) return false;
    throw Failure(Exit::kUsage, fmt::format("{} takes one sweep, or trials (t41 t42)", action));
  }
  if (options.filter.given()) {
    throw Failure(Exit::kUsage,
                  fmt::format("{} takes trials by name, or a sweep and a filter", action));
  }
  for (const auto& text : options.what) {
    request->add_trials(trial_id(text));
    if (!options.trials) refuse_ambiguous(context, text);
  }
  return true;
}

/// The last word of WHAT, taken away.
std::int32_t take_priority(std::vector<std::string>& what) {
  std::int32_t priority = 0;
  const std::string text = what.back();
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), priority);
  if (what.size() < 2 || failed != std::errc() || end != text.data() + text.size()) {
    throw Failure(
        Exit::kUsage,
        fmt::format("the last word must be the priority, an integer; it is \"{}\"", text));
  }
  what.pop_back();
  return priority;
}

void set_priority(Context& context, WhatOptions options) {
  const Words words = {"set the priority of", "setting the priority of", "set the priority of",
                       "has ended"};
  const std::int32_t priority = take_priority(options.what);
  v1::ControlTrialsRequest request;
  request.set_action(v1::ControlTrialsRequest::ACTION_SET_PRIORITY);
  request.set_priority(priority);
  if (take_trials(context, options, "priority", &request)) {
    return control_trials(context, request, words, options.control);
  }
  if (options.filter.given()) {
    *request.mutable_filter() =
        filter_of(context, options, {v1::TRIAL_STATE_QUEUED, v1::TRIAL_STATE_RUNNING});
    options.control.confirm = true;
    return control_trials(context, request, words, options.control);
  }
  v1::ControlSweepRequest sweep;
  sweep.set_priority(priority);
  control_sweep(context, options.what.front(), sweep, words.action, words.doing,
                options.control.dry_run);
}

}  // namespace

void add_control(CLI::App& app, Context& context) {
  for (const char* name : {"pause", "resume"}) {
    struct Options {
      std::string sweep;
      bool dry_run = false;
    };
    auto options = std::make_shared<Options>();
    const bool pause = std::string(name) == "pause";
    CLI::App* command =
        add_command(app, name,
                    pause ? "Stops a sweep's trials at a checkpoint and starts no new ones."
                          : "Goes on with a paused sweep.",
                    fmt::format("  tailor {} last\n  tailor {} s3 --dry-run", name, name));
    command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
    command->add_flag("--dry-run", options->dry_run, "only say what would be hit");
    command->callback([&context, options, pause, name] {
      v1::ControlSweepRequest request;
      pause ? request.set_pause(true) : request.set_resume(true);
      control_sweep(context, options->sweep, request, name, pause ? "pausing" : "resuming",
                    options->dry_run);
    });
  }
  {
    CLI::App* command = add_command(
        app, "cancel", "Ends a sweep, single trials, or those of a sweep that fit a filter.",
        "  tailor cancel last\n  tailor cancel t41 t42\n  tailor cancel last --state queued "
        "--candidate wide --dry-run");
    const auto options = add_what(command, "one sweep, or trials", "queued and running");
    command->callback([&context, options] {
      const Words words = {"cancel", "cancelling", "cancelled", "has ended"};
      v1::ControlTrialsRequest request;
      request.set_action(v1::ControlTrialsRequest::ACTION_CANCEL);
      if (take_trials(context, *options, "cancel", &request)) {
        return control_trials(context, request, words, options->control);
      }
      if (options->filter.given()) {
        *request.mutable_filter() =
            filter_of(context, *options, {v1::TRIAL_STATE_QUEUED, v1::TRIAL_STATE_RUNNING});
        options->control.confirm = true;
        return control_trials(context, request, words, options->control);
      }
      v1::ControlSweepRequest sweep;
      sweep.set_cancel(true);
      control_sweep(context, options->what.front(), sweep, "cancel", "cancelling",
                    options->control.dry_run);
    });
  }
  {
    CLI::App* command = add_command(
        app, "retry",
        "Runs failed trials again: all of a sweep, those that fit a filter, or single ones.",
        "  tailor retry last --dry-run\n  tailor retry last --class oom --yes\n  tailor retry t41");
    const auto options = add_what(command, "one sweep (its failed trials), or trials", "failed");
    command->callback([&context, options] {
      v1::ControlTrialsRequest request;
      request.set_action(v1::ControlTrialsRequest::ACTION_RETRY);
      if (!take_trials(context, *options, "retry", &request)) {
        options->control.confirm = options->filter.given();
        if (options->filter.given()) {
          *request.mutable_filter() = filter_of(context, *options, {v1::TRIAL_STATE_FAILED});
        } else {  // as coordinators of earlier versions know it
          request.mutable_failed_of()->set_id(find_sweep(context, options->what.front()).id());
        }
      }
      control_trials(context, request,
                     {"retry", "queueing again", "queued again", "has not failed"},
                     options->control);
    });
  }
  {
    CLI::App* command = add_command(
        app, "priority",
        "Sets the priority of a sweep (higher first), or of trials: theirs is added to their "
        "sweep's.",
        "  tailor priority last 10\n  tailor priority t41 t42 5\n  tailor priority last 3 "
        "--candidate wide --yes");
    const auto options = add_what(command, "one sweep, or trials; then the priority, an integer",
                                  "queued and running");
    command->callback([&context, options] { set_priority(context, *options); });
  }
}

}  // namespace tailor::client
