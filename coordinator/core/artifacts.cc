// Checkpoints in the artifact store: what a worker without the folder can fetch.
#include "coordinator/core/transition.h"

namespace tailor::core {

const std::vector<protocol::StoredCheckpoint>& stored_of(const State& state, TrialId trial) {
  static const std::vector<protocol::StoredCheckpoint> kNone;
  const auto found = state.stored.find(trial);
  return found == state.stored.end() ? kNone : found->second;
}

void on_artifacts(Transition& t, const ArtifactsChanged& event) {
  // Also of a trial that has ended: it may be tried again.
  if (event.stored.empty()) {
    t.state.stored.erase(event.trial);
  } else {
    t.state.stored[event.trial] = event.stored;
  }
  const auto found = t.state.trials.find(event.trial);
  if (found != t.state.trials.end()) {
    // It may have waited for the worker that has the folder.
    if (can_be_fetched(t.state, found->second)) {
      t.state.deadlines.clear(DeadlineKind::kHolder, event.trial.value);
    }
    t.placement_changed = true;
  }
  t.reply(event.request, Status::ok());
}

}  // namespace tailor::core
