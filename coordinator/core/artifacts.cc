// Checkpoints in the artifact store: what a worker without the folder can fetch.
#include "coordinator/core/transition.h"

namespace tailor::core {

void on_artifacts(Transition& t, const ArtifactsChanged& event) {
  const auto found = t.state.trials.find(event.trial);
  if (found != t.state.trials.end()) {  // else it has ended, and needs none
    Trial& trial = found->second;
    trial.stored = event.stored;
    // It may have waited for the worker that has the folder.
    if (can_be_fetched(trial)) t.state.deadlines.clear(DeadlineKind::kHolder, trial.row.id.value);
    t.placement_changed = true;
  }
  t.reply(event.request, Status::ok());
}

}  // namespace tailor::core
