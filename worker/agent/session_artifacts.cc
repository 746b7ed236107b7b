// See session_artifacts.h: chunk by chunk, each call with a deadline.
#include "worker/agent/session_artifacts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "protocol/channel.h"
#include "tailor/v1/artifact.grpc.pb.h"
#include "worker/agent/checkpoint_files.h"

namespace tailor::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunkBytes = 1 << 20;
constexpr auto kCallLimit = std::chrono::seconds(60);
constexpr auto kLook = std::chrono::milliseconds(50);    // between two looks at give_up
constexpr auto kVerifyLimit = std::chrono::minutes(30);  // FinishUpload reads all of it

/// Keeps a transfer below a rate.
class Pace {
 public:
  explicit Pace(std::uint64_t bytes_per_s) : bytes_per_s_(bytes_per_s) {}
  /// Returns when more may be moved, or soon after `give_up` says so: at a low rate one chunk is
  /// worth a long time.
  void moved(std::size_t bytes, const CheckpointStore::GiveUp& give_up) {
    if (bytes_per_s_ == 0) return;
    bytes_ += bytes;
    const double due_s = begin_s_ + static_cast<double>(bytes_) / static_cast<double>(bytes_per_s_);
    for (double now_s = steady_seconds(); now_s < due_s && !give_up(); now_s = steady_seconds()) {
      const std::chrono::duration<double> left(due_s - now_s);
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(left, kLook));
    }
  }

 private:
  const std::uint64_t bytes_per_s_;
  const double begin_s_ = steady_seconds();
  std::uint64_t bytes_ = 0;
};

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

const Status kGivenUp(Code::kCancelled, "given up");

/// What is damaged on this disk does not get better by another try.
Status damaged_here(const Status& status) {
  return {Code::kNotFound, "the checkpoint here is damaged: " + status.message()};
}

/// Where a checkpoint is fetched to: `prefix` and the token of the attempt that needs it. What an
/// attempt with a smaller token (an earlier one of the trial) has left there is gone on with; other
/// leavings of earlier ones go.
std::string part_folder(const std::string& parent, const std::string& prefix, FencingToken token) {
  const std::string part = fmt::format("{}/{}{:x}", parent, prefix, token);
  std::vector<std::string> earlier;
  std::error_code failure;
  for (fs::directory_iterator at(parent, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(kFetching)) continue;
    const std::string_view digits = std::string_view(name).substr(name.rfind('-') + 1);
    FencingToken its = 0;
    const char* const last = digits.data() + digits.size();
    const auto [stopped, bad] = std::from_chars(digits.data(), last, its, 16);
    if (bad == std::errc() && stopped == last && its < token) earlier.push_back(name);
  }
  for (const std::string& name : earlier) {
    const std::string path = parent + "/" + name;
    const bool taken = name.starts_with(prefix) && !fs::exists(part, failure) &&
                       ::rename(path.c_str(), part.c_str()) == 0;
    if (!taken) fs::remove_all(path, failure);
  }
  return part;
}

/// A fetch that failed so may go on later where it ended.
bool may_go_on(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded ||
         code == Code::kResourceExhausted || code == Code::kAborted || code == Code::kCancelled;
}

}  // namespace

struct ArtifactClient::Impl {
  std::unique_ptr<v1::ArtifactService::Stub> stub;
  std::uint64_t bytes_per_s = 0;

  template <typename Request, typename Response>
  using Method = void (v1::ArtifactService::Stub::async::*)(grpc::ClientContext*, const Request*,
                                                            Response*,
                                                            std::function<void(grpc::Status)>);

  /// One call to its end, which comes soon once `give_up` says so.
  template <typename Request, typename Response>
  Result<Response> call(Method<Request, Response> method, const Request& request,
                        const GiveUp& give_up, std::chrono::milliseconds limit = kCallLimit) {
    grpc::ClientContext context;
    const std::int64_t limit_ms = limit.count();
    context.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(limit_ms, GPR_TIMESPAN)));
    Response response;
    // Shared: it may still be in use when the future is ready already.
    const auto promise = std::make_shared<std::promise<grpc::Status>>();
    std::future<grpc::Status> ended = promise->get_future();
    (stub->async()->*method)(&context, &request, &response, [promise](grpc::Status status) {
      promise->set_value(std::move(status));
    });
    while (ended.wait_for(kLook) != std::future_status::ready) {
      if (give_up()) context.TryCancel();
    }
    const Status status = protocol::from_grpc(ended.get());
    if (!status) return error(status);
    return response;
  }

  Status send_file(const v1::ArtifactKey& key, const std::string& folder,
                   const CheckpointFile& file, std::uint64_t from, Pace& pace,
                   const GiveUp& give_up) {
    const std::string path = folder + "/" + file.name;
    const Descriptor in{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (in.fd < 0) return errno_status(errno, "open", path);
    while (from < file.bytes) {
      if (give_up()) return kGivenUp;
      v1::WriteChunkRequest request;
      *request.mutable_key() = key;
      request.set_file(file.name);
      request.set_offset(from);
      std::string& data = *request.mutable_data();
      data.resize(std::min<std::uint64_t>(kChunkBytes, file.bytes - from));
      TAILOR_ASSIGN_OR_RETURN(const std::size_t got,
                              read_at(in.fd, data.data(), data.size(), from, path));
      if (got != data.size()) return {Code::kNotFound, path + " has become shorter"};
      TAILOR_RETURN_IF_ERROR(
          status_of(call(&v1::ArtifactService::Stub::async::WriteChunk, request, give_up)));
      from += got;
      pace.moved(got, give_up);
    }
    return Status::ok();
  }

  /// Goes on where the file ends. What was there may be less than was written (a power cut): a file
  /// that was gone on with and is not what was stored is received once more, from its beginning.
  Status receive_file(const v1::ArtifactKey& key, const protocol::AttemptRef& reader,
                      const std::string& folder, const v1::ArtifactFile& file, Pace& pace,
                      const GiveUp& give_up) {
    bool went_on = false;
    const Status first = receive_rest(key, reader, folder, file, pace, give_up, went_on);
    if (first.code() != Code::kDataLoss || !went_on) return first;
    return receive_rest(key, reader, folder, file, pace, give_up, went_on);
  }

  /// One that is not what was stored is removed.
  Status receive_rest(const v1::ArtifactKey& key, const protocol::AttemptRef& reader,
                      const std::string& folder, const v1::ArtifactFile& file, Pace& pace,
                      const GiveUp& give_up, bool& went_on) {
    if (file.name().empty() || file.name().find('/') != std::string::npos || file.name() == "." ||
        file.name() == "..") {
      return {Code::kDataLoss, "the coordinator names a file that is none"};
    }
    const std::string path = folder + "/" + file.name();
    Descriptor out{::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)};
    if (out.fd < 0) return errno_status(errno, "create", path);
    struct stat there {};
    if (::fstat(out.fd, &there) != 0) return errno_status(errno, "measure", path);
    auto at = static_cast<std::uint64_t>(there.st_size);
    if (at > file.bytes()) {
      if (::ftruncate(out.fd, 0) != 0) return errno_status(errno, "cut", path);
      at = 0;
    }
    went_on = at > 0;
    while (at < file.bytes()) {
      if (give_up()) return kGivenUp;
      v1::ReadChunkRequest request;
      *request.mutable_key() = key;
      request.set_reader_attempt(reader.attempt.number);
      request.set_reader_token(reader.token);
      request.set_file(file.name());
      request.set_offset(at);
      request.set_bytes_max(kChunkBytes);
      TAILOR_ASSIGN_OR_RETURN(const v1::ReadChunkResponse chunk,
                              call(&v1::ArtifactService::Stub::async::ReadChunk, request, give_up));
      if (chunk.data().empty()) {
        ::unlink(path.c_str());
        return {Code::kDataLoss, file.name() + " ends early"};
      }
      for (std::size_t done = 0; done < chunk.data().size();) {
        const ssize_t wrote =
            ::write(out.fd, chunk.data().data() + done, chunk.data().size() - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return errno_status(errno, "write", path);
        done += static_cast<std::size_t>(wrote);
      }
      at += chunk.data().size();
      pace.moved(chunk.data().size(), give_up);
    }
    if (::fsync(out.fd) != 0) return errno_status(errno, "sync", path);
    TAILOR_ASSIGN_OR_RETURN(const std::string hash, sha256_file(path));
    if (hash == file.sha256()) return Status::ok();
    ::unlink(path.c_str());
    return {Code::kDataLoss, fmt::format("{} did not arrive as it was stored", file.name())};
  }
};

ArtifactClient::ArtifactClient(const std::string& target, std::uint64_t bytes_per_s)
    : impl_(std::make_unique<Impl>()) {
  grpc::ChannelArguments arguments;
  // Apart from the session's connection: chunks must not stand before heartbeats.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  impl_->stub = v1::ArtifactService::NewStub(protocol::open_channel(target, std::move(arguments)));
  impl_->bytes_per_s = bytes_per_s;
}

ArtifactClient::~ArtifactClient() = default;

Status ArtifactClient::upload(const protocol::AttemptRef& ref,
                              const protocol::CheckpointReport& report, const GiveUp& give_up) {
  const auto here = checkpoint_files(report.path, report.sha256);
  if (!here) {
    return here.error().code() == Code::kDataLoss ? damaged_here(here.error()) : here.error();
  }
  const std::vector<CheckpointFile>& files = *here;
  v1::BeginUploadRequest begin;
  begin.mutable_key()->set_trial(ref.attempt.trial.value);
  begin.mutable_key()->set_attempt(ref.attempt.number);
  begin.mutable_key()->set_token(ref.token);
  begin.mutable_key()->set_step(report.step);
  begin.mutable_key()->set_sha256(report.sha256);
  for (const CheckpointFile& file : files) {
    v1::ArtifactFile* one = begin.add_files();
    one->set_name(file.name);
    one->set_bytes(file.bytes);
    one->set_sha256(file.sha256);
  }
  TAILOR_ASSIGN_OR_RETURN(
      const v1::BeginUploadResponse begun,
      impl_->call(&v1::ArtifactService::Stub::async::BeginUpload, begin, give_up));
  if (begun.whole()) return Status::ok();
  Pace pace(impl_->bytes_per_s);
  for (const CheckpointFile& file : files) {
    const auto there = begun.bytes().find(file.name);
    const std::uint64_t from = there == begun.bytes().end() ? 0 : there->second;
    TAILOR_RETURN_IF_ERROR(impl_->send_file(begin.key(), report.path, file, from, pace, give_up));
  }
  v1::FinishUploadRequest finish;
  *finish.mutable_key() = begin.key();
  const Status finished = status_of(
      impl_->call(&v1::ArtifactService::Stub::async::FinishUpload, finish, give_up, kVerifyLimit));
  if (finished.code() != Code::kDataLoss) return finished;
  // Was it changed on its way, or is it not what the manifest says already here?
  const Status whole = verify_checkpoint_files(report.path);
  return whole ? finished : damaged_here(whole);
}

Status ArtifactClient::fetch(const protocol::AttemptRef& ref,
                             const protocol::StoredCheckpoint& stored, const std::string& folder,
                             const GiveUp& give_up) {
  v1::DescribeArtifactRequest request;
  request.set_trial(ref.attempt.trial.value);
  request.set_attempt(ref.attempt.number);
  request.set_token(ref.token);
  request.set_sha256(stored.sha256);
  TAILOR_ASSIGN_OR_RETURN(
      const v1::DescribeArtifactResponse description,
      impl_->call(&v1::ArtifactService::Stub::async::DescribeArtifact, request, give_up));
  const std::size_t slash = folder.find_last_of('/');
  const std::string parent = folder.substr(0, slash);
  // A name that no trainer takes for a checkpoint, of this checkpoint alone.
  const std::string prefix =
      fmt::format("{}{}-{}-", kFetching, folder.substr(slash + 1), stored.sha256.substr(0, 16));
  const std::string part = part_folder(parent, prefix, ref.token);
  std::error_code failure;
  fs::create_directories(part, failure);
  if (failure) return errno_status(failure.value(), "create", part);
  const auto receive = [&]() -> Status {
    Pace pace(impl_->bytes_per_s);
    for (const v1::ArtifactFile& file : description.files()) {
      TAILOR_RETURN_IF_ERROR(
          impl_->receive_file(description.key(), ref, part, file, pace, give_up));
    }
    // What was asked for, whatever the coordinator calls it.
    TAILOR_RETURN_IF_ERROR(status_of(checkpoint_files(part, stored.sha256)));
    TAILOR_RETURN_IF_ERROR(sync_directory(part));
    if (::rename(part.c_str(), folder.c_str()) != 0) return errno_status(errno, "rename", part);
    return sync_directory(parent);
  };
  const Status received = receive();
  if (!received && !may_go_on(received.code())) fs::remove_all(part, failure);
  return received;
}

}  // namespace tailor::agent
