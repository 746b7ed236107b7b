// See artifacts.h.
#include "storage/artifacts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

namespace tailor::storage {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kFilesMax = 64;
constexpr auto kFileBytesMax = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
constexpr const char* kPart = ".part";
constexpr const char* kManifest = "manifest.json";

/// The database is on this disk too: artifacts leave so much of it free.
constexpr std::uint64_t kReserveBytes = 5ull << 30;
constexpr std::uint64_t kReserveShare = 20;  // a twentieth of a small disk

/// Why `wanted` more bytes would leave too little of the disk; "" = they would not.
std::string too_full(const std::string& root, std::uint64_t wanted) {
  struct statvfs status {};
  if (::statvfs(root.c_str(), &status) != 0) return {};
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  const std::uint64_t total = std::uint64_t{status.f_blocks} * status.f_frsize;
  const std::uint64_t reserve = std::min(kReserveBytes, total / kReserveShare);
  if (free >= reserve && free - reserve >= wanted) return {};
  return fmt::format("the disk of {} has {} MiB free; {} MiB more would leave less than {} MiB",
                     root, free >> 20, wanted >> 20, reserve >> 20);
}

bool is_hash(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Status check(const ArtifactKey& key, const std::vector<ArtifactFile>& files) {
  const auto bad = [](std::string why) { return Status(Code::kInvalidArgument, std::move(why)); };
  if (!is_hash(key.sha256)) return bad("an artifact needs the SHA-256 of its manifest");
  if (key.step < 0) return bad(fmt::format("an artifact of step {}", key.step));
  if (files.empty() || files.size() > kFilesMax) {
    return bad(
        fmt::format("an artifact of {} files; 1 to {} are allowed", files.size(), kFilesMax));
  }
  std::set<std::string_view> names;
  bool has_manifest = false;
  for (const ArtifactFile& file : files) {
    if (!is_plain_name(file.name)) return bad("an artifact's file has no plain name");
    if (!names.insert(file.name).second) return bad("an artifact names " + file.name + " twice");
    if (!is_hash(file.sha256)) return bad(file.name + " needs a SHA-256");
    if (file.bytes > kFileBytesMax) return bad(file.name + " is larger than any file can be");
    has_manifest = has_manifest || (file.name == kManifest && file.sha256 == key.sha256);
  }
  if (!has_manifest) return bad("an artifact needs the manifest.json that it is named by");
  return Status::ok();
}

/// At most the greatest number: what is announced from afar must not wrap around to a small one.
std::uint64_t add(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b
             ? std::numeric_limits<std::uint64_t>::max()
             : a + b;
}

std::uint64_t sum_of(const std::vector<ArtifactFile>& files) {
  std::uint64_t sum = 0;
  for (const ArtifactFile& file : files) sum = add(sum, file.bytes);
  return sum;
}

std::string to_text(const ArtifactKey& key, const std::vector<ArtifactFile>& files) {
  json j = {{"attempt", key.attempt.number},
            {"generation", key.generation},
            {"step", key.step},
            {"sha256", key.sha256},
            {"files", json::array()}};
  for (const ArtifactFile& file : files) {
    j["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return j.dump(1) + "\n";
}

/// files.json of a folder of trial `trial`.
Result<std::pair<ArtifactKey, std::vector<ArtifactFile>>> from_folder(TrialId trial,
                                                                      const std::string& folder) {
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(folder + "/files.json", 1 << 20));
  const auto parsed = parse_json(text);
  if (!parsed) return error(Code::kDataLoss, parsed.error().message());
  try {
    ArtifactKey key{{trial, parsed->at("attempt").get<std::uint32_t>()},
                    parsed->at("generation").get<std::uint64_t>(),
                    parsed->at("step").get<std::int64_t>(),
                    parsed->at("sha256").get<std::string>()};
    std::vector<ArtifactFile> files;
    for (const json& file : parsed->at("files")) {
      files.push_back({file.at("name").get<std::string>(), file.at("bytes").get<std::uint64_t>(),
                       file.at("sha256").get<std::string>()});
    }
    TAILOR_RETURN_IF_ERROR(check(key, files));
    return std::pair(std::move(key), std::move(files));
  } catch (const json::exception& problem) {
    return error(Code::kDataLoss, problem.what());
  }
}

/// When anything was last written to a part. One whose folder is only being made is the youngest.
std::int64_t written_s(const std::string& part, const std::vector<ArtifactFile>& files) {
  struct stat status {};
  const std::string data = part + "/data";
  if (::stat(data.c_str(), &status) != 0) return std::numeric_limits<std::int64_t>::max();
  std::int64_t latest = status.st_mtime;
  for (const ArtifactFile& file : files) {
    if (::stat((data + "/" + file.name).c_str(), &status) == 0)
      latest = std::max<std::int64_t>(latest, status.st_mtime);
  }
  return latest;
}

Result<std::uint64_t> size_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return static_cast<std::uint64_t>(status.st_size);
  if (errno == ENOENT) return 0;
  return error(errno_status(errno, "measure", path));
}

}  // namespace

bool is_newer(const ArtifactKey& a, const ArtifactKey& b) {
  const auto age = [](const ArtifactKey& key) {
    return std::tuple(key.generation, key.attempt.number, key.step);
  };
  return age(a) > age(b);
}

Garbage garbage_of(const std::vector<Artifact>& of_trial, const ArtifactNeeds& needs,
                   const PartAges& ages) {
  const ArtifactKey* newest = nullptr;         // whole
  const ArtifactKey* newest_coming = nullptr;  // whole or not
  for (const Artifact& one : of_trial) {
    if (!needs.names(one.key)) continue;
    const auto replaces = [&](const ArtifactKey* best) {
      return best == nullptr || is_newer(one.key, *best);
    };
    if (one.whole && replaces(newest)) newest = &one.key;
    if (replaces(newest_coming)) newest_coming = &one.key;
  }
  Garbage garbage;
  for (const Artifact& one : of_trial) {
    const bool named = needs.names(one.key);
    if (!one.whole) {
      const bool superseded = named && is_newer(*newest_coming, one.key);
      if (superseded || one.written_s < ages.stale_before_s) {
        garbage.now.push_back(one.key);
      } else if (one.written_s < ages.idle_before_s) {
        garbage.idle.push_back(one.key);
      }
    } else if (!named) {
      garbage.others.push_back(one.key);
    } else if (newest != &one.key || needs.use == ArtifactUse::kCompleted) {
      garbage.now.push_back(one.key);
    } else if (needs.use != ArtifactUse::kOpen) {
      garbage.ended.push_back(one.key);
    }
  }
  return garbage;
}

std::string ArtifactStore::folder_of(const ArtifactKey& key) const {
  std::string name = std::to_string(key.attempt.number);
  if (key.generation != 0) name += fmt::format("-{:x}", key.generation);
  return fmt::format("{}/{}/{}-{:09}-{}", root_, key.attempt.trial.to_string(), name, key.step,
                     key.sha256.substr(0, 16));
}

namespace {

constexpr const char* kIdentity = "/identity";

/// A folder of an earlier version, or a new one, is given the name.
Status check_identity(const std::string& root, const std::string& database) {
  const Result<std::string> there = read_file(root + kIdentity, 4096);
  if (!there && there.error().code() == Code::kNotFound) {
    return write_file_atomic(root + kIdentity, database + "\n");
  }
  if (!there) return there.error();
  // Empty after a power cut.
  if (trim(*there).empty()) return write_file_atomic(root + kIdentity, database + "\n");
  if (trim(*there) == database) return Status::ok();
  return {
      Code::kAborted,
      fmt::format("{} holds the checkpoints of another database ({}, this one is {}): give this "
                  "one a folder of its own (--artifacts), or, if the other one is gone for "
                  "good, remove {}{}",
                  root, trim(*there), database, root, kIdentity)};
}

}  // namespace

Result<std::unique_ptr<ArtifactStore>> ArtifactStore::open(const std::string& root,
                                                           std::uint64_t quota_bytes,
                                                           const std::string& database,
                                                           std::vector<std::string>* warnings) {
  std::error_code failure;
  fs::create_directories(root, failure);
  if (failure) return error(errno_status(failure.value(), "create", root));
  auto lock = FileLock::acquire(root + "/", false);
  if (!lock) return error(Status(lock.error()).with_context("the folder of checkpoints"));
  TAILOR_RETURN_IF_ERROR(check_identity(root, database));
  std::unique_ptr<ArtifactStore> store(new ArtifactStore(root, quota_bytes, *std::move(lock)));
  store->load(warnings);
  return store;
}

void ArtifactStore::load(std::vector<std::string>* warnings) {
  std::error_code failure;
  for (fs::directory_iterator trial_at(root_, failure), end; !failure && trial_at != end;
       trial_at.increment(failure)) {
    const auto trial = TrialId::parse(trial_at->path().filename().string());
    if (!trial) continue;
    std::error_code inner;
    for (fs::directory_iterator at(trial_at->path(), inner); !inner && at != end;
         at.increment(inner)) {
      const std::string folder = at->path().string();
      const bool whole = !folder.ends_with(kPart);
      auto found = from_folder(*trial, folder);
      if (!found || folder != folder_of(found->first) + (whole ? "" : kPart)) {
        warnings->push_back(
            fmt::format("{} is passed by: {}", folder,
                        found ? "its name is another one's" : found.error().message()));
        continue;
      }
      Entry entry;
      entry.bytes = sum_of(found->second);
      entry.files = std::move(found->second);
      entry.whole = whole;
      const std::uint64_t bytes = entry.bytes;
      const auto [there, is_new] = entries_.emplace(std::move(found->first), std::move(entry));
      if (is_new) {
        bytes_.add(bytes);
      } else {  // whole and a part: what is whole counts, whichever was read first
        there->second.whole = true;
        warnings->push_back(folder_of(there->first) + kPart + " is passed by: it is whole beside");
      }
    }
  }
}

std::vector<Artifact> ArtifactStore::list() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Artifact> all;
  for (const auto& [key, entry] : entries_) {
    if (entry.whole) all.push_back({key, entry.bytes});
  }
  return all;
}

std::optional<Artifact> ArtifactStore::find(TrialId trial, std::string_view sha256) const {
  const std::scoped_lock lock(mutex_);
  for (auto at = entries_.lower_bound({{trial, 0}, 0, 0, ""});
       at != entries_.end() && at->first.attempt.trial == trial; ++at) {
    if (at->second.whole && at->first.sha256 == sha256)
      return Artifact{at->first, at->second.bytes};
  }
  return std::nullopt;
}

std::vector<Artifact> ArtifactStore::list(TrialId trial) const {
  std::vector<Artifact> all;
  std::map<ArtifactKey, std::vector<ArtifactFile>> parts;
  {
    const std::scoped_lock lock(mutex_);
    for (auto at = entries_.lower_bound({{trial, 0}, 0, 0, ""});
         at != entries_.end() && at->first.attempt.trial == trial; ++at) {
      all.push_back({at->first, at->second.bytes, at->second.whole, 0});
      if (!at->second.whole) parts.emplace(at->first, at->second.files);
    }
  }
  for (Artifact& one : all) {
    if (!one.whole) one.written_s = written_s(folder_of(one.key) + kPart, parts.at(one.key));
  }
  return all;
}

std::vector<TrialId> ArtifactStore::trials() const {
  const std::scoped_lock lock(mutex_);
  std::vector<TrialId> all;
  for (const auto& [key, entry] : entries_) {
    if (all.empty() || all.back() != key.attempt.trial) all.push_back(key.attempt.trial);
  }
  return all;
}

std::vector<TrialId> ArtifactStore::trials_with_parts() const {
  const std::scoped_lock lock(mutex_);
  std::vector<TrialId> all;
  for (const auto& [key, entry] : entries_) {
    const bool known = !all.empty() && all.back() == key.attempt.trial;
    if (!entry.whole && !known) all.push_back(key.attempt.trial);
  }
  return all;
}

std::uint64_t ArtifactStore::bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_.value();
}

std::optional<ArtifactStore::Entry> ArtifactStore::entry(const ArtifactKey& key) const {
  const std::scoped_lock lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<ArtifactStore::Held> ArtifactStore::hold(const ArtifactKey& key) const {
  for (;;) {
    const auto before = entry(key);
    if (!before) return std::nullopt;
    std::unique_lock busy(*before->busy);
    // It may have become whole, or gone, while this waited.
    auto now = entry(key);
    if (now && now->busy == before->busy) return Held{*std::move(now), std::move(busy)};
  }
}

void ArtifactStore::forget(const ArtifactKey& key) {
  const std::scoped_lock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  bytes_.take(found->second.bytes);
  entries_.erase(found);
}

Result<ArtifactStore::Progress> ArtifactStore::begin(const ArtifactKey& key,
                                                     const std::vector<ArtifactFile>& files) {
  TAILOR_RETURN_IF_ERROR(check(key, files));
  const std::string folder = folder_of(key) + kPart;
  bool is_new = false;
  std::optional<Held> held;
  while (!held) {
    Entry entry;
    entry.files = files;
    entry.bytes = sum_of(files);
    // Before anybody can see it, and in the order of `hold`: the entry's first.
    std::unique_lock busy(*entry.busy);
    {
      const std::scoped_lock lock(mutex_);
      is_new = !entries_.contains(key);
      if (is_new) {
        const std::uint64_t held_bytes = bytes_.value();
        if (entry.bytes > quota_bytes_ || held_bytes > quota_bytes_ - entry.bytes) {
          return error(Code::kResourceExhausted,
                       fmt::format("the artifact store holds {} of {} MiB; {} MiB more do not fit",
                                   held_bytes >> 20, quota_bytes_ >> 20, entry.bytes >> 20));
        }
        if (std::string why = too_full(root_, entry.bytes); !why.empty()) {
          return error(Code::kResourceExhausted, std::move(why));
        }
        bytes_.add(entry.bytes);
        entries_.emplace(key, entry);
        held = Held{std::move(entry), std::move(busy)};
      }
    }
    if (!held) held = hold(key);
  }
  if (held->entry.whole) return Progress{true, {}};
  if (held->entry.files != files) {
    return error(Code::kFailedPrecondition, "it was announced before with other files");
  }
  if (is_new) {
    const auto make = [&]() -> Status {
      std::error_code failure;
      fs::create_directories(folder + "/data", failure);
      if (failure) return errno_status(failure.value(), "create", folder);
      return write_file_atomic(folder + "/files.json", to_text(key, files));
    };
    if (const Status made = make(); !made) {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
      forget(key);
      return error(made);
    }
  }
  Progress progress;
  for (const ArtifactFile& file : files) {
    TAILOR_ASSIGN_OR_RETURN(progress.bytes[file.name], size_of(folder + "/data/" + file.name));
  }
  return progress;
}

Status ArtifactStore::write(const ArtifactKey& key, std::string_view name, std::uint64_t offset,
                            std::string_view bytes) {
  const auto held = hold(key);
  const Entry* const current = held ? &held->entry : nullptr;
  if (current == nullptr || current->whole) {
    return {Code::kNotFound, "this artifact was not announced, or is whole already"};
  }
  const auto file = std::find_if(current->files.begin(), current->files.end(),
                                 [&](const ArtifactFile& one) { return one.name == name; });
  if (file == current->files.end()) {
    return {Code::kNotFound, fmt::format("{} was not announced", name)};
  }
  const std::string path = folder_of(key) + kPart + "/data/" + file->name;
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t size, size_of(path));
  if (offset != size || bytes.size() > file->bytes - std::min(file->bytes, size)) {
    return {Code::kOutOfRange, fmt::format("{} has {} of {} bytes; {} more were sent for offset {}",
                                           name, size, file->bytes, bytes.size(), offset)};
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status(errno, "open", path);
  std::size_t done = 0;
  int failure = 0;
  while (done < bytes.size() && failure == 0) {
    const ssize_t wrote =
        ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (wrote >= 0) {
      done += static_cast<std::size_t>(wrote);
    } else if (errno != EINTR) {
      failure = errno;
    }
  }
  // What is half written would be taken for what the caller sent; it is verified, but late.
  if (failure != 0 && ::ftruncate(fd, static_cast<off_t>(offset)) != 0) failure = errno;
  ::close(fd);
  return failure == 0 ? Status::ok() : errno_status(failure, "write", path);
}

Status ArtifactStore::finish(const ArtifactKey& key) {
  const auto held = hold(key);
  if (!held) return {Code::kNotFound, "this artifact was not announced"};
  if (held->entry.whole) return Status::ok();
  const std::string folder = folder_of(key), part = folder + kPart;
  for (const ArtifactFile& file : held->entry.files) {
    const std::string path = part + "/data/" + file.name;
    TAILOR_ASSIGN_OR_RETURN(const std::uint64_t size, size_of(path));
    if (size != file.bytes) {
      return {Code::kFailedPrecondition,
              fmt::format("{} has {} of {} bytes", file.name, size, file.bytes)};
    }
    if (size == 0 && ::access(path.c_str(), F_OK) != 0) {
      TAILOR_RETURN_IF_ERROR(write_file_atomic(path, "", false));
    }
    TAILOR_RETURN_IF_ERROR(sync_file(path));
    TAILOR_ASSIGN_OR_RETURN(const std::string hash, sha256_file(path));
    if (hash != file.sha256) {
      ::unlink(path.c_str());
      return {Code::kDataLoss,
              fmt::format("{} is not what was announced (SHA-256 {}..., not {}...): send it again",
                          file.name, hash.substr(0, 12), file.sha256.substr(0, 12))};
    }
  }
  TAILOR_RETURN_IF_ERROR(sync_directory(part + "/data"));
  TAILOR_RETURN_IF_ERROR(sync_directory(part));
  if (::rename(part.c_str(), folder.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) return errno_status(errno, "rename", part);
    // What could not be read when the folder was opened: this is what it should have been.
    std::error_code failure;
    fs::remove_all(folder, failure);
    if (failure) return errno_status(failure.value(), "remove", folder);
    if (::rename(part.c_str(), folder.c_str()) != 0) return errno_status(errno, "rename", part);
  }
  TAILOR_RETURN_IF_ERROR(sync_directory(folder.substr(0, folder.find_last_of('/'))));
  TAILOR_RETURN_IF_ERROR(sync_directory(root_));
  const std::scoped_lock lock(mutex_);
  if (const auto found = entries_.find(key); found != entries_.end()) found->second.whole = true;
  return Status::ok();
}

Result<std::vector<ArtifactFile>> ArtifactStore::files(const ArtifactKey& key) const {
  const auto current = entry(key);
  if (!current || !current->whole) return error(Code::kNotFound, "no such artifact");
  return current->files;
}

Result<std::string> ArtifactStore::read(const ArtifactKey& key, std::string_view name,
                                        std::uint64_t offset, std::size_t bytes_max) const {
  TAILOR_ASSIGN_OR_RETURN(const std::vector<ArtifactFile> all, files(key));
  const bool known = std::any_of(all.begin(), all.end(),
                                 [&](const ArtifactFile& one) { return one.name == name; });
  if (!known) return error(Code::kNotFound, fmt::format("the artifact has no file {}", name));
  const std::string path = folder_of(key) + "/data/" + std::string(name);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error(errno_status(errno, "open", path));
  std::string bytes(bytes_max, '\0');
  const Result<std::size_t> got = read_at(fd, bytes.data(), bytes_max, offset, path);
  ::close(fd);
  if (!got) return error(got.error());
  bytes.resize(*got);
  return bytes;
}

Status ArtifactStore::remove(const ArtifactKey& key) {
  const auto held = hold(key);
  if (!held) return Status::ok();
  // Not whole any more before anything of it goes.
  const std::string folder = folder_of(key), part = folder + kPart;
  if (held->entry.whole) {
    if (::rename(folder.c_str(), part.c_str()) != 0 && errno != ENOENT) {
      return errno_status(errno, "rename", folder);
    }
    const std::scoped_lock lock(mutex_);
    if (const auto found = entries_.find(key); found != entries_.end()) found->second.whole = false;
  }
  std::error_code failure;
  fs::remove_all(part, failure);
  if (failure) return errno_status(failure.value(), "remove", part);
  ::rmdir(part.substr(0, part.find_last_of('/')).c_str());  // the trial's, when it was the last
  forget(key);
  return Status::ok();
}

}  // namespace tailor::storage
