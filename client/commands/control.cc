// tailor pause, resume, cancel, retry, priority: changes to running sweeps and trials. Each says
// what it hits (kind, id, name, what runs) before it does anything, and does no more with
// --dry-run.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

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
  return context.call<v1::ControlTrialsRequest, v1::ControlTrialsResponse>(
      &v1::CoordinatorService::Stub::ControlTrials, request);
}

std::string targets_text(const v1::ControlTrialsResponse& answer) {
  std::string text;
  for (const auto& t : answer.targets()) {
    text += fmt::format("{}{} trial{} of sweep {} \"{}\" ({} running)", text.empty() ? "" : ", ",
                        t.trials(), t.trials() == 1 ? "" : "s", sweep_text(t.sweep()),
                        t.sweep_name(), t.running());
  }
  if (answer.trials_size() == 1)
    return fmt::format("trial {}: {}", trial_text(answer.trials(0)), text);
  return text;
}

struct Words {
  const char* action;  ///< "cancel"
  const char* doing;   ///< "cancelling"
  const char* done;    ///< "cancelled"
  const char* unfit;   ///< why a trial is left out: "has ended"
};

void control_trials(Context& context, const v1::ControlTrialsRequest& request, const Words& words,
                    bool dry_run) {
  const Printer out = context.printer();
  v1::ControlTrialsResponse answer = ask_trials(context, request, true);
  Json left_out = Json::array();
  for (const std::uint64_t id : request.trials()) {
    if (std::find(answer.trials().begin(), answer.trials().end(), id) != answer.trials().end())
      continue;
    left_out.push_back(id);
    out.note(fmt::format("trial {} is left as it is: it {}", trial_text(id), words.unfit));
  }
  if (!dry_run && answer.trials_size() > 0) {
    out.note(fmt::format("{} {}", words.doing, targets_text(answer)));
    answer = ask_trials(context, request, false);
  }
  if (out.json()) {
    Json json = to_json(answer);
    json["kind"] = "trials";
    json["action"] = words.action;
    json["left_out"] = std::move(left_out);
    json["dry_run"] = dry_run;
    return out.document(json);
  }
  if (answer.trials_size() == 0) return out.line(fmt::format("nothing to {}", words.action));
  std::string list;
  for (const std::uint64_t id : answer.trials()) list += " " + trial_text(id);
  out.line(dry_run ? fmt::format("would {} {}:{}", words.action, targets_text(answer), list)
                   : fmt::format("{} {} trials:{}", words.done, answer.trials_size(), list));
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
  bool dry_run = false;
};

std::shared_ptr<WhatOptions> add_what(CLI::App* command, const char* what) {
  auto options = std::make_shared<WhatOptions>();
  command->add_option("WHAT", options->what, what)->required();
  command->add_flag("--trial", options->trials,
                    "what reads like a trial's id is one, also where a sweep is called so");
  command->add_flag("--dry-run", options->dry_run, "only say what would be hit");
  return options;
}

/// True when `options` name trials, which then are in `request`; false when they name one sweep.
bool take_trials(Context& context, const WhatOptions& options, const char* action,
                 v1::ControlTrialsRequest* request) {
  if (!options.trials && !is_trial(options.what.front())) {
    if (options.what.size() == 1) return false;
    throw Failure(Exit::kUsage, fmt::format("{} takes one sweep, or trials (t41 t42)", action));
  }
  for (const auto& text : options.what) {
    request->add_trials(trial_id(text));
    if (!options.trials) refuse_ambiguous(context, text);
  }
  return true;
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
    CLI::App* command =
        add_command(app, "cancel", "Ends a sweep, or single trials.",
                    "  tailor cancel last\n  tailor cancel t41 t42\n  tailor cancel t41 --dry-run");
    const auto options = add_what(command, "one sweep, or trials");
    command->callback([&context, options] {
      v1::ControlTrialsRequest request;
      request.set_action(v1::ControlTrialsRequest::ACTION_CANCEL);
      if (take_trials(context, *options, "cancel", &request)) {
        return control_trials(context, request, {"cancel", "cancelling", "cancelled", "has ended"},
                              options->dry_run);
      }
      v1::ControlSweepRequest sweep;
      sweep.set_cancel(true);
      control_sweep(context, options->what.front(), sweep, "cancel", "cancelling",
                    options->dry_run);
    });
  }
  {
    CLI::App* command =
        add_command(app, "retry", "Runs failed trials again: all of a sweep, or single ones.",
                    "  tailor retry last --dry-run\n  tailor retry last\n  tailor retry t41");
    const auto options = add_what(command, "one sweep (its failed trials), or trials");
    command->callback([&context, options] {
      v1::ControlTrialsRequest request;
      request.set_action(v1::ControlTrialsRequest::ACTION_RETRY);
      if (!take_trials(context, *options, "retry", &request)) {
        request.mutable_failed_of()->set_id(find_sweep(context, options->what.front()).id());
      }
      control_trials(context, request,
                     {"retry", "queueing again", "queued again", "has not failed"},
                     options->dry_run);
    });
  }
  {
    struct Options {
      std::string sweep;
      std::int32_t priority = 0;
      bool dry_run = false;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command = add_command(app, "priority", "Sets a sweep's priority (higher first).",
                                    "  tailor priority last 10");
    command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
    command->add_option("PRIORITY", options->priority, "an integer")->required();
    command->add_flag("--dry-run", options->dry_run, "only say what would be hit");
    command->callback([&context, options] {
      v1::ControlSweepRequest request;
      request.set_priority(options->priority);
      control_sweep(context, options->sweep, request, "set the priority of",
                    "setting the priority of", options->dry_run);
    });
  }
}

}  // namespace tailor::client
