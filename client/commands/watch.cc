// tailor watch: follows a sweep until it ends. On a terminal one status line is redrawn on stderr;
// in a pipe each event is a line on stdout (with --json: one JSON object a line).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

std::string status_line(const v1::Sweep& s, double best) {
  const auto total = trials_of(s);
  const auto done = total - s.queued() - s.running();
  const int width = 24;
  const int filled = total > 0 ? static_cast<int>(width * done / total) : 0;
  std::string bar(static_cast<std::size_t>(filled), '#');
  bar.resize(width, '.');
  return fmt::format("{} [{}] {}/{} done{}, {} running, {} queued, {} failed, best loss {}, {}",
                     s.name(), bar, done, total,
                     s.search_points() > 0 ? fmt::format(" ({} points tried)", search_text(s)) : "",
                     s.running(), s.queued(), s.failed(), std::isnan(best) ? "-" : fixed(best, 4),
                     duration(s.created_ms(), s.ended_ms()));
}

/// Prints events newer than `*after`. Returns the newest best loss seen
/// in them unchanged when none.
void print_events(Context& context, const v1::SweepRef& sweep, std::uint64_t* after, bool quiet) {
  v1::WatchEventsRequest request;
  *request.mutable_sweep() = sweep;
  const Printer out = context.printer();
  context.follow([&] {
    request.set_after(*after);  // a stream that broke goes on behind what was printed
    grpc::ClientContext call;
    call.set_deadline(context.deadline());
    auto reader = context.stub().WatchEvents(&call, request);
    v1::Event event;
    while (reader->Read(&event)) {
      *after = std::max(*after, event.id());
      if (quiet) continue;
      if (out.json()) {
        out.line(to_json(event).dump());
        continue;
      }
      out.line(fmt::format("{}  {:<18} {:<6} {}", local_time(event.wall_ms()), event.kind(),
                           event.trial() > 0 ? trial_text(event.trial()) : "", event.message()));
    }
    return reader->Finish();
  });
  flush_output();
}

double best_loss(Context& context, const v1::SweepRef& sweep) {
  v1::ListTrialsRequest request;
  *request.mutable_sweep() = sweep;
  request.set_state(v1::TRIAL_STATE_COMPLETED);
  request.set_order("objective");
  request.set_limit(1);
  const auto answer = context.follow<v1::ListTrialsRequest, v1::ListTrialsResponse>(
      &v1::CoordinatorService::Stub::ListTrials, request);
  return answer.trials_size() > 0 && answer.trials(0).has_objective() ? answer.trials(0).objective()
                                                                      : std::nan("");
}

}  // namespace

Exit watch_sweep(Context& context, const v1::SweepRef& sweep, double interval_s) {
  catch_interrupt();
  const Printer out = context.printer();
  const bool redraw = ::isatty(STDERR_FILENO) == 1 && !out.json();
  std::uint64_t after = 0;
  for (;;) {
    v1::GetSweepRequest request;
    *request.mutable_sweep() = sweep;
    request.set_without_candidates(true);
    const auto answer = context.follow<v1::GetSweepRequest, v1::GetSweepResponse>(
        &v1::CoordinatorService::Stub::GetSweep, request);
    const v1::Sweep& s = answer.sweep();
    print_events(context, sweep, &after, redraw && out.terminal());
    if (redraw) {
      std::fprintf(stderr, "\r\033[K%s", status_line(s, best_loss(context, sweep)).c_str());
      std::fflush(stderr);
    }
    if (s.state() != v1::SWEEP_STATE_RUNNING && s.state() != v1::SWEEP_STATE_PAUSED) {
      if (redraw) std::fputc('\n', stderr);
      const auto usable = s.completed() + s.stopped();
      const bool bad = s.failed() > 0 || usable == 0 || s.state() != v1::SWEEP_STATE_COMPLETED ||
                       s.search_points() > s.search_tried();  // the search gave up
      std::string text =
          fmt::format("{} {}: {} completed, {} failed, {} cancelled", sweep_text(s.id()),
                      state_name(s.state()), s.completed(), s.failed(), s.cancelled());
      if (s.stopped() > 0) text += fmt::format(", {} stopped", s.stopped());
      if (s.infeasible() > 0)
        text += fmt::format("; {} points of the space were infeasible", s.infeasible());
      if (!s.message().empty()) text += ". " + s.message();
      if (usable > 0) text += fmt::format(". `tailor compare {}` answers it.", sweep_text(s.id()));
      if (bad || !out.json()) out.note(text);
      return bad ? Exit::kSomeFailed : Exit::kOk;
    }
    pause_for(interval_s);
    if (interrupted()) {
      if (redraw) std::fputc('\n', stderr);
      out.note(
          fmt::format("stopped watching; the sweep goes on. `tailor watch {}` follows it again, "
                      "`tailor cancel {}` ends it.",
                      sweep_text(s.id()), sweep_text(s.id())));
      return Exit::kInterrupted;
    }
  }
}

void add_watch(CLI::App& app, Context& context) {
  struct Options {
    std::string sweep;
    double interval_s = 1;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "watch",
                  "Follows a sweep until it ends (exit code 4 if trials failed, it was cancelled, "
                  "or nothing was trained).",
                  "  tailor watch last\n  tailor watch s3 --json    one event a line");
  command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
  command->add_option("--interval", options->interval_s, "seconds between looks")
      ->check(CLI::Range(0.1, 3600.0));
  command->callback([&context, options] {
    const Exit exit = watch_sweep(context, sweep_ref(options->sweep), options->interval_s);
    if (exit != Exit::kOk) throw Failure(exit, "");
  });
}

}  // namespace tailor::client
