// tailor pause, resume, cancel, retry, priority: changes to running sweeps and trials.
#include <fmt/format.h>

#include "base/ids.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

void control_sweep(Context& context, const v1::ControlSweepRequest& request) {
  const auto answer = context.call<v1::ControlSweepRequest, v1::ControlSweepResponse>(
      &v1::CoordinatorService::Stub::ControlSweep, request);
  const Printer out = context.printer();
  if (out.json()) return out.document(to_json(answer.sweep()));
  out.line(fmt::format("{} {} is {} (priority {})", sweep_text(answer.sweep().id()),
                       answer.sweep().name(), state_name(answer.sweep().state()),
                       answer.sweep().priority()));
}

void control_trials(Context& context, const v1::ControlTrialsRequest& request, const char* verb) {
  const auto answer = context.call<v1::ControlTrialsRequest, v1::ControlTrialsResponse>(
      &v1::CoordinatorService::Stub::ControlTrials, request);
  const Printer out = context.printer();
  if (out.json()) {
    Json json = to_json(answer);
    json["dry_run"] = request.dry_run();
    return out.document(json);
  }
  std::string list;
  for (const std::uint64_t id : answer.trials()) list += " " + trial_text(id);
  out.line(fmt::format("{}{} {} trials:{}", request.dry_run() ? "would have " : "", verb,
                       answer.trials_size(), list));
}

bool is_trial(const std::string& text) {
  return text.size() > 1 && text.front() == 't' && TrialId::parse(text).has_value();
}

}  // namespace

void add_control(CLI::App& app, Context& context) {
  for (const char* name : {"pause", "resume"}) {
    auto sweep = std::make_shared<std::string>();
    const bool pause = std::string(name) == "pause";
    CLI::App* command =
        add_command(app, name,
                    pause ? "Stops a sweep's trials at a checkpoint and starts no new ones."
                          : "Goes on with a paused sweep.",
                    fmt::format("  tailor {} last", name));
    command->add_option("SWEEP", *sweep, "id, name or \"last\"")->required();
    command->callback([&context, sweep, pause] {
      v1::ControlSweepRequest request;
      *request.mutable_sweep() = sweep_ref(*sweep);
      pause ? request.set_pause(true) : request.set_resume(true);
      control_sweep(context, request);
    });
  }
  {
    struct Options {
      std::vector<std::string> what;
      bool dry_run = false;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command =
        add_command(app, "cancel", "Ends a sweep, or single trials.",
                    "  tailor cancel last\n  tailor cancel t41 t42\n  tailor cancel t41 --dry-run");
    command->add_option("WHAT", options->what, "one sweep, or trials")->required();
    command->add_flag("--dry-run", options->dry_run, "only say what would be cancelled");
    command->callback([&context, options] {
      if (is_trial(options->what.front())) {
        v1::ControlTrialsRequest request;
        for (const auto& t : options->what) request.add_trials(trial_id(t));
        request.set_action(v1::ControlTrialsRequest::ACTION_CANCEL);
        request.set_dry_run(options->dry_run);
        return control_trials(context, request, "cancelled");
      }
      if (options->what.size() > 1)
        throw Failure(Exit::kUsage, "cancel takes one sweep, or trials (t41 t42)");
      if (options->dry_run) {
        v1::GetSweepRequest request;
        *request.mutable_sweep() = sweep_ref(options->what.front());
        const auto answer = context.call<v1::GetSweepRequest, v1::GetSweepResponse>(
            &v1::CoordinatorService::Stub::GetSweep, request);
        return context.printer().line(fmt::format(
            "would cancel {} {}: {} running, {} queued trials", sweep_text(answer.sweep().id()),
            answer.sweep().name(), answer.sweep().running(), answer.sweep().queued()));
      }
      v1::ControlSweepRequest request;
      *request.mutable_sweep() = sweep_ref(options->what.front());
      request.set_cancel(true);
      control_sweep(context, request);
    });
  }
  {
    struct Options {
      std::vector<std::string> what;
      bool dry_run = false;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command =
        add_command(app, "retry", "Runs failed trials again: all of a sweep, or single ones.",
                    "  tailor retry last --dry-run\n  tailor retry last\n  tailor retry t41");
    command->add_option("WHAT", options->what, "one sweep (its failed trials), or trials")
        ->required();
    command->add_flag("--dry-run", options->dry_run, "only say which");
    command->callback([&context, options] {
      v1::ControlTrialsRequest request;
      request.set_action(v1::ControlTrialsRequest::ACTION_RETRY);
      request.set_dry_run(options->dry_run);
      if (is_trial(options->what.front())) {
        for (const auto& t : options->what) request.add_trials(trial_id(t));
      } else {
        if (options->what.size() > 1)
          throw Failure(Exit::kUsage, "retry takes one sweep, or trials (t41 t42)");
        *request.mutable_failed_of() = sweep_ref(options->what.front());
      }
      control_trials(context, request, "queued again");
    });
  }
  {
    struct Options {
      std::string sweep;
      std::int32_t priority = 0;
    };
    auto options = std::make_shared<Options>();
    CLI::App* command = add_command(app, "priority", "Sets a sweep's priority (higher first).",
                                    "  tailor priority last 10");
    command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
    command->add_option("PRIORITY", options->priority, "an integer")->required();
    command->callback([&context, options] {
      v1::ControlSweepRequest request;
      *request.mutable_sweep() = sweep_ref(options->sweep);
      request.set_priority(options->priority);
      control_sweep(context, request);
    });
  }
}

}  // namespace tailor::client
