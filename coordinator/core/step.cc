#include "coordinator/core/step.h"

#include "coordinator/core/transition.h"

namespace tailor::core {
namespace {

struct Dispatch {
  Transition& t;
  void operator()(const SubmitSweep& event) const { on_submit(t, event); }
  void operator()(const ControlSweep& event) const { on_control_sweep(t, event); }
  void operator()(const ControlTrials& event) const { on_control_trials(t, event); }
  void operator()(const DrainWorker& event) const { on_drain_worker(t, event); }
  void operator()(const ArtifactsChanged& event) const { on_artifacts(t, event); }
  void operator()(const QuarantineWorker& event) const { on_quarantine_worker(t, event); }
  void operator()(const ReleaseWorker& event) const { on_release_worker(t, event); }
  void operator()(const SessionOpened& event) const { on_session_opened(t, event); }
  void operator()(const SessionMessage& event) const { on_session_message(t, event); }
  void operator()(const SessionClosed& event) const { on_session_closed(t, event); }
  void operator()(const Tick&) const { on_tick(t); }
  void operator()(const Stalled& event) const { on_stalled(t, event); }
};

}  // namespace

void step_into(State& state, const Event& event, Now now, Changes& changes) {
  Transition transition(state, now, changes);
  std::visit(Dispatch{transition}, event);
  schedule(transition);
}

Effects step(State& state, const Event& event, Now now) {
  Changes changes(state.options);
  step_into(state, event, now, changes);
  return changes.take(state);
}

}  // namespace tailor::core
