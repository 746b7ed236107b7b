// See artifact_teller.h.
#include "coordinator/rpc/artifact_teller.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/logging.h"

namespace tailor::rpc {
namespace {

constexpr std::size_t kUnansweredMax = 1024;  // of the engine's requests
constexpr auto kTryAgain = std::chrono::seconds(1);

}  // namespace

Result<storage::ArtifactNeeds> artifact_needs(const storage::Store& store, TrialId trial) {
  storage::ArtifactNeeds needs;
  const auto row = store.trial(trial);
  if (!row) {
    if (row.error().code() == Code::kNotFound) return needs;
    return error(row.error());
  }
  switch (row->state) {
    case storage::TrialState::kCompleted:
    case storage::TrialState::kStopped:
      needs.use = storage::ArtifactUse::kCompleted;
      break;
    case storage::TrialState::kFailed:
    case storage::TrialState::kCancelled:
      needs.use = storage::ArtifactUse::kEnded;
      break;
    default:
      needs.use = storage::ArtifactUse::kOpen;
  }
  TAILOR_ASSIGN_OR_RETURN(const auto checkpoints, store.checkpoints(trial));
  for (const storage::CheckpointRow& one : checkpoints) {
    needs.named.emplace(one.attempt.number, one.step, one.sha256);
  }
  return needs;
}

struct ArtifactTeller::Shared {
  std::mutex telling;  // held from the look at the store to the post: the last word is the newest
  std::mutex mutex;    // guards what follows
  std::condition_variable changed;
  std::set<TrialId> waiting;
  std::set<TrialId> refused;
  std::size_t unanswered = 0;
  bool said = false;  // that something was refused
  bool stopping = false;
  std::thread thread;

  void answered(TrialId trial, const Status& told) {
    const std::scoped_lock lock(mutex);
    --unanswered;
    refuse(trial, told);
    changed.notify_all();  // there is room for another one
  }
  /// REQUIRES: the mutex is held.
  void refuse(TrialId trial, const Status& told) {
    if (told.is_ok() || told.code() == Code::kUnavailable) return;
    refused.insert(trial);
    changed.notify_all();
    if (std::exchange(said, true)) return;
    log_warn("artifacts", "a stored checkpoint is not offered yet", {{"reason", told.message()}});
  }
};

ArtifactTeller::ArtifactTeller(const engine::Views& views, const storage::ArtifactStore& artifacts)
    : views_(views), artifacts_(artifacts), shared_(std::make_shared<Shared>()) {
  shared_->thread = std::thread([this] { run(); });
}

ArtifactTeller::~ArtifactTeller() { stop(); }

void ArtifactTeller::stop() {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->changed.notify_all();
  if (shared_->thread.joinable()) shared_->thread.join();
}

void ArtifactTeller::tell_later(const std::vector<TrialId>& trials) {
  const std::scoped_lock lock(shared_->mutex);
  shared_->waiting.insert(trials.begin(), trials.end());
  shared_->changed.notify_all();
}

void ArtifactTeller::tell(TrialId trial) {
  const std::scoped_lock telling(shared_->telling);
  const auto needs = artifact_needs(views_.store(), trial);
  if (!needs) {
    const std::scoped_lock lock(shared_->mutex);
    return shared_->refuse(trial, needs.error());
  }
  std::vector<storage::Artifact> stored = artifacts_.list(trial);
  std::erase_if(stored,
                [&](const storage::Artifact& one) { return !one.whole || !needs->names(one.key); });
  std::sort(stored.begin(), stored.end(),
            [](const auto& a, const auto& b) { return storage::is_newer(a.key, b.key); });
  core::ArtifactsChanged event;
  event.trial = trial;
  for (const storage::Artifact& one : stored) {
    event.stored.push_back({one.key.attempt.number, one.key.step, one.key.sha256,
                            static_cast<std::int64_t>(one.bytes)});
  }
  {
    const std::scoped_lock lock(shared_->mutex);
    ++shared_->unanswered;
  }
  views_.engine().request(std::move(event),
                          [shared = shared_, trial](const Status& told, const core::ReplyBody&) {
                            shared->answered(trial, told);
                          });
}

void ArtifactTeller::run() {
  Shared& s = *shared_;
  std::unique_lock lock(s.mutex);
  const auto over = [&] { return s.stopping; };
  for (;;) {
    s.changed.wait(lock, [&] { return s.stopping || !s.waiting.empty() || !s.refused.empty(); });
    if (s.stopping) return;
    if (!s.refused.empty()) {
      if (s.changed.wait_for(lock, kTryAgain, over)) return;
      s.waiting.merge(s.refused);
      s.refused.clear();
    }
    while (!s.waiting.empty() && s.refused.empty()) {
      s.changed.wait(lock, [&] { return s.stopping || s.unanswered < kUnansweredMax; });
      if (s.stopping) return;
      const TrialId trial = *s.waiting.begin();
      s.waiting.erase(s.waiting.begin());
      lock.unlock();
      tell(trial);
      lock.lock();
    }
    if (s.waiting.empty() && s.refused.empty()) s.said = false;
  }
}

}  // namespace tailor::rpc
