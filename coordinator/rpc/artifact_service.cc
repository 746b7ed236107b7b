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
// Nobody has written to a part for so long: it is not waited for any more. (An uploader pauses for
// a minute at most.)
constexpr std::int64_t kStalePartS = 3600;
// ... for so long: it may go when space is needed.
constexpr std::int64_t kIdlePartS = 180;
constexpr std::int64_t kLookMs = 60'000;
// Told before serving; the engine takes more than twice as many requests.
constexpr std::size_t kToldAtStartMax = 1024;

storage::PartAges part_ages() {
  const std::int64_t now_s = SystemClock().wall_ms() / 1'000;
  return {now_s - kStalePartS, now_s - kIdlePartS};
}

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

}  // namespace

ArtifactServiceImpl::ArtifactServiceImpl(const engine::Views& views, const Options& options)
    : views_(views),
      options_(options),
      pool_(kThreads, kCallsWaitingMax),
      verifying_(1, kCallsWaitingMax) {
  if (options_.artifacts != nullptr) {
    teller_ = std::make_unique<ArtifactTeller>(views_, *options_.artifacts);
  }
}

ArtifactServiceImpl::~ArtifactServiceImpl() { stop(); }

void ArtifactServiceImpl::stop() {
  stopping_ = true;
  pool_.stop();
  verifying_.stop();
  if (teller_) teller_->stop();
}

void ArtifactServiceImpl::begin() {
  if (options_.artifacts == nullptr) return;
  const std::vector<TrialId> trials = options_.artifacts->trials();
  if (trials.empty()) return;
  auto open = views_.engine().ask([trials](const core::State& state, core::Now) {
    std::vector<TrialId> in_memory;
    for (const TrialId trial : trials) {
      if (state.trials.contains(trial)) in_memory.push_back(trial);
    }
    return in_memory;
  });
  if (open) {
    if (open->size() > kToldAtStartMax) open->resize(kToldAtStartMax);
    for (const TrialId trial : *open) teller_->tell(trial);
  }
  teller_->tell_later(trials);
  pool_.post([this, trials] {
    for (const TrialId trial : trials) {
      if (stopping_) return;
      clean(trial);
    }
  });
}

Result<storage::ArtifactStore*> ArtifactServiceImpl::store() const {
  if (options_.artifacts != nullptr) return options_.artifacts;
  return error(Code::kFailedPrecondition,
               "this coordinator keeps no checkpoints (artifacts_quota = 0)");
}

Result<storage::AttemptRow> ArtifactServiceImpl::attempt_of(TrialId trial, std::uint32_t number,
                                                            FencingToken token) const {
  TAILOR_ASSIGN_OR_RETURN(const auto attempts, views_.store().attempts(trial));
  const auto attempt =
      std::find_if(attempts.begin(), attempts.end(), [&](const storage::AttemptRow& row) {
        return row.id.number == number && row.token == token;
      });
  if (attempt != attempts.end()) return *attempt;
  return error(Code::kPermissionDenied,
               fmt::format("{}.{} has another token, or is no attempt of this coordinator",
                           trial.to_string(), number));
}

Status ArtifactServiceImpl::may_read(TrialId trial, std::uint32_t number,
                                     FencingToken token) const {
  TAILOR_ASSIGN_OR_RETURN(const storage::AttemptRow attempt, attempt_of(trial, number, token));
  if (attempt.state != storage::AttemptState::kEnded) return Status::ok();
  return {Code::kPermissionDenied, fmt::format("{}.{} has ended", trial.to_string(), number)};
}

Status ArtifactServiceImpl::may_bring(const v1::ArtifactKey& key) const {
  const TrialId trial{key.trial()};
  TAILOR_ASSIGN_OR_RETURN(const storage::AttemptRow attempt,
                          attempt_of(trial, key.attempt(), key.token()));
  TAILOR_ASSIGN_OR_RETURN(const auto checkpoints, views_.store().checkpoints(trial));
  const bool reported =
      std::any_of(checkpoints.begin(), checkpoints.end(), [&](const storage::CheckpointRow& row) {
        return row.attempt == attempt.id && row.step == key.step() && row.sha256 == key.sha256();
      });
  if (reported) return Status::ok();
  return {Code::kNotFound, fmt::format("{}.{} has reported no such checkpoint of step {}",
                                       trial.to_string(), key.attempt(), key.step())};
}

Status ArtifactServiceImpl::is_wanted(const storage::ArtifactKey& key) const {
  TAILOR_ASSIGN_OR_RETURN(const storage::ArtifactNeeds needs,
                          artifact_needs(views_.store(), key.attempt.trial));
  if (needs.use == storage::ArtifactUse::kCompleted) {
    return {Code::kCancelled, key.attempt.trial.to_string() + " has completed and needs none"};
  }
  for (const storage::Artifact& one : options_.artifacts->list(key.attempt.trial)) {
    if (one.whole && needs.names(one.key) && storage::is_newer(one.key, key)) {
      return {Code::kCancelled, fmt::format("a newer checkpoint of {} is here already, of step {}",
                                            key.attempt.trial.to_string(), one.key.step)};
    }
  }
  return Status::ok();
}

bool ArtifactServiceImpl::remove(TrialId trial, const std::vector<storage::ArtifactKey>& keys) {
  bool removed = !keys.empty();
  for (const storage::ArtifactKey& key : keys) {
    if (const Status done = options_.artifacts->remove(key); !done) {
      log_warn("artifacts", "a checkpoint cannot be removed", {{"reason", done.message()}});
      removed = false;
    }
  }
  if (!keys.empty()) teller_->tell(trial);
  return removed;
}

void ArtifactServiceImpl::clean(TrialId trial) {
  const auto needs = artifact_needs(views_.store(), trial);
  if (!needs) return;  // nothing is garbage while nobody can tell
  remove(trial, storage::garbage_of(options_.artifacts->list(trial), *needs, part_ages()).now);
}

void ArtifactServiceImpl::clean_parts() {
  const MonotonicMs now = SystemClock().now_ms();
  {
    const std::scoped_lock lock(mutex_);
    if (cleaned_ms_ != 0 && now - cleaned_ms_ < kLookMs) return;
    cleaned_ms_ = now;
  }
  for (const TrialId trial : options_.artifacts->trials_with_parts()) clean(trial);
}

std::deque<TrialId> ArtifactServiceImpl::removable() const {
  std::deque<TrialId> idle, others, ended;
  for (const TrialId trial : options_.artifacts->trials()) {
    if (stopping_) break;
    const auto needs = artifact_needs(views_.store(), trial);
    if (!needs) continue;
    const storage::Garbage garbage =
        storage::garbage_of(options_.artifacts->list(trial), *needs, part_ages());
    if (!garbage.now.empty() || !garbage.idle.empty()) {
      idle.push_back(trial);
    } else if (!garbage.others.empty()) {
      others.push_back(trial);
    } else if (!garbage.ended.empty()) {
      ended.push_back(trial);
    }
  }
  idle.insert(idle.end(), others.begin(), others.end());
  idle.insert(idle.end(), ended.begin(), ended.end());
  return idle;
}

bool ArtifactServiceImpl::make_room() {
  const std::scoped_lock lock(mutex_);
  for (;;) {
    if (removable_.empty()) {
      // Looking through everything takes time: when nothing is found, not again at once.
      const MonotonicMs now = SystemClock().now_ms();
      if (looked_ms_ != 0 && now - looked_ms_ < kLookMs) return false;
      removable_ = removable();
      looked_ms_ = removable_.empty() ? now : 0;
      if (removable_.empty()) return false;
    }
    const TrialId trial = removable_.front();
    removable_.pop_front();
    const auto needs = artifact_needs(views_.store(), trial);  // it may be another by now
    if (!needs) continue;
    storage::Garbage garbage =
        storage::garbage_of(options_.artifacts->list(trial), *needs, part_ages());
    garbage.now.insert(garbage.now.end(), garbage.idle.begin(), garbage.idle.end());
    const auto& going = !garbage.now.empty()      ? garbage.now
                        : !garbage.others.empty() ? garbage.others
                                                  : garbage.ended;
    if (remove(trial, going)) return true;
  }
}

Result<storage::ArtifactStore::Progress> ArtifactServiceImpl::announce(
    const v1::BeginUploadRequest& request) {
  TAILOR_ASSIGN_OR_RETURN(storage::ArtifactStore* const artifacts, store());
  TAILOR_RETURN_IF_ERROR(may_bring(request.key()));
  const storage::ArtifactKey key = to_key(request.key());
  TAILOR_RETURN_IF_ERROR(is_wanted(key));
  std::vector<storage::ArtifactFile> files;
  for (const v1::ArtifactFile& file : request.files()) {
    files.push_back({file.name(), file.bytes(), file.sha256()});
  }
  clean_parts();
  for (;;) {
    auto progress = artifacts->begin(key, files);
    if (progress) {
      clean(key.attempt.trial);  // older ones that were on their way: nobody goes on with them
      return progress;
    }
    if (progress.error().code() != Code::kResourceExhausted || !make_room()) return progress;
  }
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
  // Before anything is copied: what waits in the pool is bounded by the chunks' size.
  if (request->data().size() > kChunkBytesMax) {
    auto [reactor, call] =
        Call<v1::WriteChunkResponse>::make("WriteChunk", response, options_.on_call);
    call->finish(Status(Code::kInvalidArgument, "a chunk of more than 1 MiB"));
    return reactor;
  }
  return answer(
      pool_, "WriteChunk", response, options_.on_call,
      [this, request = *request]() -> Result<v1::WriteChunkResponse> {
        TAILOR_ASSIGN_OR_RETURN(storage::ArtifactStore* const artifacts, store());
        TAILOR_RETURN_IF_ERROR(status_of(attempt_of(
            TrialId{request.key().trial()}, request.key().attempt(), request.key().token())));
        TAILOR_RETURN_IF_ERROR(artifacts->write(to_key(request.key()), request.file(),
                                                request.offset(), request.data()));
        return v1::WriteChunkResponse();
      });
}

grpc::ServerUnaryReactor* ArtifactServiceImpl::FinishUpload(Context*,
                                                            const v1::FinishUploadRequest* request,
                                                            v1::FinishUploadResponse* response) {
  return answer(verifying_, "FinishUpload", response, options_.on_call,
                [this, key = request->key()]() -> Result<v1::FinishUploadResponse> {
                  TAILOR_ASSIGN_OR_RETURN(storage::ArtifactStore* const artifacts, store());
                  TAILOR_RETURN_IF_ERROR(may_bring(key));
                  TAILOR_RETURN_IF_ERROR(artifacts->finish(to_key(key)));
                  teller_->tell(TrialId{key.trial()});
                  clean(TrialId{key.trial()});  // of older ones, now that this is verified
                  return v1::FinishUploadResponse();
                });
}

grpc::ServerUnaryReactor* ArtifactServiceImpl::DescribeArtifact(
    Context*, const v1::DescribeArtifactRequest* request, v1::DescribeArtifactResponse* response) {
  return answer(pool_, "DescribeArtifact", response, options_.on_call,
                [this, request = *request]() -> Result<v1::DescribeArtifactResponse> {
                  TAILOR_ASSIGN_OR_RETURN(storage::ArtifactStore* const artifacts, store());
                  const TrialId trial{request.trial()};
                  TAILOR_RETURN_IF_ERROR(may_read(trial, request.attempt(), request.token()));
                  const auto found = artifacts->find(trial, request.sha256());
                  if (!found)
                    return error(Code::kNotFound, "this checkpoint is not stored any more");
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
        TAILOR_RETURN_IF_ERROR(may_read(TrialId{request.key().trial()}, request.reader_attempt(),
                                        request.reader_token()));
        const std::size_t bytes_max = std::min<std::size_t>(request.bytes_max(), kChunkBytesMax);
        v1::ReadChunkResponse out;
        TAILOR_ASSIGN_OR_RETURN(
            *out.mutable_data(),
            artifacts->read(to_key(request.key()), request.file(), request.offset(), bytes_max));
        return out;
      });
}

}  // namespace tailor::rpc
