// Checkpoints in the artifact store: what a worker without the folder can fetch.
#include "coordinator/core/transition.h"

namespace tailor::core {

void on_artifacts(Transition& t, const ArtifactsChanged& event) {
  const auto found = t.state.trials.find(event.trial);
  if (found != t.state.trials.end()) {  // else it has ended, and needs none
    found->second.stored = event.stored;
    t.placement_changed = true;  // it may have waited for the worker that has the folder
  }
  t.reply(event.request, Status::ok());
}

}  // namespace tailor::core
