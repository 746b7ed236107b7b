#include "coordinator/rpc/artifact_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/logging.h"
#include "coordinator/rpc/call.h"

namespace tailor::rpc {
namespace {

constexpr std::size_t kThreads = 2;
constexpr std::size_t kCallsWaitingMax = 256;
constexpr std::size_t kChunkBytesMax = 1 << 20;
constexpr std::int64_t kStalePartS = 24 * 3600;

storage::ArtifactKey to_key(const v1::ArtifactKey& proto) {
  return {
      {TrialId{proto.trial()}, proto.attempt()}, proto.token() >> 40, proto.step(), proto.sha256()};
}

void describe(const std::vector<storage::ArtifactFile>& files,
              v1::DescribeArtifactResponse* response) {
  for (const storage::ArtifactFile& file : files) {
    v1::ArtifactFile* one = response->add_files();
    one->set_name(file.name);
    one->set_bytes(file.bytes);
    one->set_sha256(file.sha256);
  }
}

storage::ArtifactUse use_of(const storage::Store& store, TrialId trial) {
  const auto row = store.trial(trial);
  if (!row) {
    return row.error().code() == Code::kNotFound ? storage::ArtifactUse::kUnknown
                                                 : storage::ArtifactUse::kOpen;
  }
  switch (row->state) {
    case storage::TrialState::kCompleted:
    case storage::TrialState::kStopped:
      return storage::ArtifactUse::kCompleted;
    case storage::TrialState::kFailed:
    case storage::TrialState::kCancelled:
      return storage::ArtifactUse::kEnded;
    default:
      return storage::ArtifactUse::kOpen;
  }
}

}  // namespace

ArtifactServiceImpl::ArtifactServiceImpl(const engine::Views& views, const Options& options)
    : views_(views), options_(options), pool_(kThreads, kCallsWaitingMax) {}

ArtifactServiceImpl::~ArtifactServiceImpl() { stop(); }

void ArtifactServiceImpl::stop() { pool_.stop(); }

void ArtifactServiceImpl::begin() {
  if (options_.artifacts == nullptr) return;
  const std::int64_t now_s = SystemClock().wall_ms() / 1'000;
  options_.artifacts->remove_stale_parts(now_s - kStalePartS);
  collect_garbage(false);
  std::set<TrialId> trials;
  for (const storage::Artifact& artifact : options_.artifacts->list()) {
    trials.insert(artifact.key.attempt.trial);
  }
  for (const TrialId trial : trials) tell(trial);
}

Result<storage::ArtifactStore*> ArtifactServiceImpl::store() const {
  if (options_.artifacts != nullptr) return options_.artifacts;
  return error(Code::kFailedPrecondition,
               "this coordinator keeps no checkpoints (artifacts_quota = 0)");
}

Status ArtifactServiceImpl::may_bring(const v1::ArtifactKey& key) const {
  const TrialId trial{key.trial()};
  TAILOR_ASSIGN_OR_RETURN(const auto attempts, views_.store().attempts(trial));
  const auto attempt =
      std::find_if(attempts.begin(), attempts.end(), [&](const storage::AttemptRow& row) {
        return row.id.number == key.attempt() && row.token == key.token();
      });
  if (attempt == attempts.end()) {
    return {Code::kPermissionDenied,
            fmt::format("{}.{} has another token, or is no attempt of this coordinator",
                        trial.to_string(), key.attempt())};
  }
  TAILOR_ASSIGN_OR_RETURN(const auto checkpoints, views_.store().checkpoints(trial));
  const bool reported =
      std::any_of(checkpoints.begin(), checkpoints.end(), [&](const storage::CheckpointRow& row) {
        return row.attempt == attempt->id && row.step == key.step() && row.sha256 == key.sha256();
      });
  if (reported) return Status::ok();
  return {Code::kNotFound, fmt::format("{}.{} has reported no such checkpoint of step {}",
                                       trial.to_string(), key.attempt(), key.step())};
}

bool ArtifactServiceImpl::collect_garbage(bool for_space) {
  const auto garbage = storage::garbage_of(
      options_.artifacts->list(), [&](TrialId trial) { return use_of(views_.store(), trial); });
  std::vector<storage::ArtifactKey> going = garbage.now;
  const bool some = for_space && (!garbage.for_space.empty() || !garbage.now.empty());
  if (for_space && garbage.now.empty() && some) going.push_back(garbage.for_space.front());
  std::set<TrialId> changed;
  for (const storage::ArtifactKey& key : going) {
    if (const Status removed = options_.artifacts->remove(key); !removed) {
      log_warn("artifacts", "a checkpoint cannot be removed", {{"reason", removed.message()}});
      return false;
    }
    changed.insert(key.attempt.trial);
  }
  for (const TrialId trial : changed) tell(trial);
  return some;
}

Result<storage::ArtifactStore::Progress> ArtifactServiceImpl::announce(
    const v1::BeginUploadRequest& request) {
  TAILOR_ASSIGN_OR_RETURN(storage::ArtifactStore* const artifacts, store());
  TAILOR_RETURN_IF_ERROR(may_bring(request.key()));
  std::vector<storage::ArtifactFile> files;
  for (const v1::ArtifactFile& file : request.files()) {
    files.push_back({file.name(), file.bytes(), file.sha256()});
  }
  for (;;) {
    auto progress = artifacts->begin(to_key(request.key()), files);
    const bool full = !progress && progress.error().code() == Code::kResourceExhausted;
    if (!full || !collect_garbage(true)) return progress;
  }
}

void ArtifactServiceImpl::tell(TrialId trial) {
  core::ArtifactsChanged event;
  event.trial = trial;
  for (const storage::Artifact& artifact : options_.artifacts->list()) {
    if (artifact.key.attempt.trial != trial) continue;
    event.stored.push_back({artifact.key.attempt.number, artifact.key.step, artifact.key.sha256,
                            static_cast<std::int64_t>(artifact.bytes)});
  }
  std::sort(event.stored.begin(), event.stored.end(),
            [](const auto& a, const auto& b) { return a.step > b.step; });
  views_.engine().request(std::move(event), [](const Status& told, const core::ReplyBody&) {
    // The next change, or the next start, tells it again.
    if (!told) {
      log_warn("artifacts", "a stored checkpoint is not offered yet", {{"reason", told.message()}});
    }
  });
}

grpc::ServerUnaryReactor* ArtifactServiceImpl::BeginUpload(Context*,
                                                           const v1::BeginUploadRequest* request,
                                                           v1::BeginUploadResponse* response) {
  return answer(pool_, "BeginUpload", response, options_.on_call,
                [this, request = *request]() -> Result<v1::BeginUploadResponse> {
                  TAILOR_ASSIGN_OR_RETURN(const auto progress, announce(request));
                  v1::BeginUploadResponse out;
                  out.set_whole(progress.whole);
                  for (const auto& [name, bytes] : progress.bytes)
                    (*out.mutable_bytes())[name] = bytes;
                  return out;
                });
}

grpc::ServerUnaryReactor* ArtifactServiceImpl::WriteChunk(Context*,
                                                          const v1::WriteChunkRequest* request,
                                                          v1::WriteChunkResponse* response) {
  // `request` lives until the call is finished.
  return answer(pool_, "WriteChunk", response, options_.on_call,
                [this, request]() -> Result<v1::WriteChunkResponse> {
                  TAILOR_ASSIGN_OR_RETURN(storage::ArtifactStore* const artifacts, store());
                  if (request->data().size() > kChunkBytesMax) {
                    return error(Code::kInvalidArgument, "a chunk of more than 1 MiB");
                  }
                  TAILOR_RETURN_IF_ERROR(artifacts->write(to_key(request->key()), request->file(),
                                                          request->offset(), request->data()));
                  return v1::WriteChunkResponse();
                });
}

grpc::ServerUnaryReactor* ArtifactServiceImpl::FinishUpload(Context*,
                                                            const v1::FinishUploadRequest* request,
                                                            v1::FinishUploadResponse* response) {
  return answer(pool_, "FinishUpload", response, options_.on_call,
                [this, key = request->key()]() -> Result<v1::FinishUploadResponse> {
                  TAILOR_ASSIGN_OR_RETURN(storage::ArtifactStore* const artifacts, store());
                  TAILOR_RETURN_IF_ERROR(may_bring(key));
                  TAILOR_RETURN_IF_ERROR(artifacts->finish(to_key(key)));
                  tell(TrialId{key.trial()});
                  collect_garbage(false);  // older ones of the trial, now that this is verified
                  return v1::FinishUploadResponse();
                });
}

grpc::ServerUnaryReactor* ArtifactServiceImpl::DescribeArtifact(
    Context*, const v1::DescribeArtifactRequest* request, v1::DescribeArtifactResponse* response) {
  return answer(
      pool_, "DescribeArtifact", response, options_.on_call,
      [this, request = *request]() -> Result<v1::DescribeArtifactResponse> {
        TAILOR_ASSIGN_OR_RETURN(storage::ArtifactStore* const artifacts, store());
        const TrialId trial{request.trial()};
        TAILOR_ASSIGN_OR_RETURN(
            const bool live, views_.engine().ask([&](const core::State& state, core::Now) {
              const auto found = state.trials.find(trial);
              if (found == state.trials.end() || !found->second.live) return false;
              const storage::AttemptRow& row = found->second.live->row;
              return row.id.number == request.attempt() && row.token == request.token();
            }));
        if (!live) {
          return error(Code::kPermissionDenied, fmt::format("{}.{} is not running under this token",
                                                            trial.to_string(), request.attempt()));
        }
        const auto found = artifacts->find(trial, request.sha256());
        if (!found) return error(Code::kNotFound, "this checkpoint is not stored any more");
        TAILOR_ASSIGN_OR_RETURN(const auto files, artifacts->files(found->key));
        v1::DescribeArtifactResponse out;
        out.mutable_key()->set_trial(found->key.attempt.trial.value);
        out.mutable_key()->set_attempt(found->key.attempt.number);
        out.mutable_key()->set_token(found->key.generation << 40);
        out.mutable_key()->set_step(found->key.step);
        out.mutable_key()->set_sha256(found->key.sha256);
        describe(files, &out);
        return out;
      });
}

grpc::ServerUnaryReactor* ArtifactServiceImpl::ReadChunk(Context*,
                                                         const v1::ReadChunkRequest* request,
                                                         v1::ReadChunkResponse* response) {
  return answer(
      pool_, "ReadChunk", response, options_.on_call,
      [this, request = *request]() -> Result<v1::ReadChunkResponse> {
        TAILOR_ASSIGN_OR_RETURN(storage::ArtifactStore* const artifacts, store());
        const std::size_t bytes_max = std::min<std::size_t>(request.bytes_max(), kChunkBytesMax);
        v1::ReadChunkResponse out;
        TAILOR_ASSIGN_OR_RETURN(
            *out.mutable_data(),
            artifacts->read(to_key(request.key()), request.file(), request.offset(), bytes_max));
        return out;
      });
}

}  // namespace tailor::rpc
