// Locking and file system checks.
#include "storage/file_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/logging.h"
#include "base/text.h"

namespace tailor::storage {
namespace {

// f_type values of statfs(2), from the kernel's headers and the file systems' own sources.
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 15> kNetworkFileSystems{{
    {0x6969u, "NFS"},
    {0x517Bu, "SMB"},
    {0xFF534D42u, "CIFS"},
    {0xFE534D42u, "SMB2"},
    {0x65735546u, "FUSE"},
    {0x01021997u, "9P"},
    {0x5346414Fu, "AFS"},
    {0x6B414653u, "AFS"},
    {0x73757245u, "Coda"},
    {0x00C36400u, "Ceph"},
    {0x0BD00BD0u, "Lustre"},
    {0x47504653u, "GPFS"},
    {0x19830326u, "BeeGFS"},
    {0x7461636Fu, "OCFS2"},
    {0x01161970u, "GFS2"},
}};

constexpr int kLinksMax = 40;  // as the kernel has it

/// What the lock file says of its owner, "another process" when it says nothing.
std::string owner_of(int fd) {
  std::array<char, 32> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  if (size <= 0) return "another process";
  return fmt::format("process {}",
                     trim(std::string_view(text.data(), static_cast<std::size_t>(size))));
}

Status in_use(const std::string& path, const std::string& owner) {
  return Status(
      Code::kAlreadyExists,
      fmt::format("{} is in use by {}; a database belongs to one coordinator: stop that one, or "
                  "give this one another path",
                  path, owner));
}

}  // namespace

Result<std::string> resolve_database_path(const std::string& path) {
  namespace fs = std::filesystem;
  const auto bad = [&](std::string_view why) {
    return error(Code::kInvalidArgument,
                 fmt::format("`{}` is no file name for a database{}", path, why));
  };
  std::error_code ec;
  fs::path at = fs::absolute(path, ec);
  if (path.empty() || ec || at.filename().empty()) return bad("");
  for (int links = 0;; ++links) {
    if (links > kLinksMax) return bad(": its symbolic links go round");
    // The folder first: links in it are followed whether the file is there or not.
    const fs::path folder = fs::weakly_canonical(at.parent_path(), ec);
    if (ec) return bad(": " + ec.message());
    at = folder / at.filename();
    const fs::path target = fs::read_symlink(at, ec);
    if (ec) break;  // no link
    at = target.is_absolute() ? target : folder / target;
    if (at.filename().empty()) return bad("");
  }
  if (at.filename() == "." || at.filename() == "..") at = fs::weakly_canonical(at, ec);
  return at.string();
}

Result<FileLock> FileLock::acquire(const std::string& path, bool lock_file) {
  FileLock lock;
  const std::string lock_path = path + ".lock";
  lock.lock_fd_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock.lock_fd_ < 0) return error(errno_status(errno, "open", lock_path));
  if (::flock(lock.lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return error(errno_status(errno, "lock", lock_path));
    return error(in_use(path, owner_of(lock.lock_fd_)));
  }
  if (lock_file) {
    lock.file_fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock.file_fd_ < 0) return error(errno_status(errno, "open", path));
    if (::flock(lock.file_fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return error(errno_status(errno, "lock", path));
      return error(in_use(path, "another process, by another name of the same file"));
    }
    struct stat locked {};
    struct stat named {};
    if (::fstat(lock.file_fd_, &locked) != 0 || ::stat(path.c_str(), &named) != 0 ||
        locked.st_dev != named.st_dev || locked.st_ino != named.st_ino) {
      return error(Code::kUnavailable,
                   fmt::format("{} was replaced while it was being opened; try again", path));
    }
    if (locked.st_nlink > 1) {
      log_warn("storage",
               "the database has several names (hard links); its write-ahead log goes by the one "
               "that it is opened by: always use the same",
               {{"path", path}});
    }
  }
  const std::string owner = fmt::format("{}\n", ::getpid());
  // Only for the message above: a disk that cannot take it does not take the lock away.
  if (::ftruncate(lock.lock_fd_, 0) != 0 ||
      ::pwrite(lock.lock_fd_, owner.data(), owner.size(), 0) < 0) {
    (void)::ftruncate(lock.lock_fd_, 0);
  }
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept
    : lock_fd_(std::exchange(other.lock_fd_, -1)), file_fd_(std::exchange(other.file_fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(lock_fd_, other.lock_fd_);
  std::swap(file_fd_, other.file_fd_);
  return *this;
}

FileLock::~FileLock() {
  if (file_fd_ >= 0) ::close(file_fd_);
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

std::optional<FileIdentity::Number> FileIdentity::number_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return Number{info.st_dev, info.st_ino};
}

Result<FileIdentity> FileIdentity::of(const std::string& path) {
  FileIdentity identity;
  identity.path_ = path;
  identity.log_path_ = path + "-wal";
  for (const auto& [name, number] : {std::pair{&identity.path_, &identity.file_},
                                     std::pair{&identity.log_path_, &identity.log_}}) {
    const std::optional<Number> found = number_of(*name);
    if (!found) return error(errno_status(errno, "look at", *name));
    *number = *found;
  }
  return identity;
}

Status FileIdentity::still_there() const {
  for (const auto& [name, number] : {std::pair{&path_, &file_}, std::pair{&log_path_, &log_}}) {
    const std::optional<Number> found = number_of(*name);
    if (found == *number) continue;
    if (!found && errno != ENOENT && errno != ENOTDIR) continue;  // nothing was learned
    return Status(
        Code::kDataLoss,
        fmt::format("{} was {} while it was in use: nothing that is written from now on could be "
                    "found again, so nothing is. Move it back if it was moved; otherwise stop the "
                    "coordinator, put the latest backup at {} and start again",
                    *name, found ? "replaced by another file" : "removed", path_));
  }
  return {};
}

std::string_view network_file_system_name(std::int64_t magic) {
  for (const auto& [known, name] : kNetworkFileSystems) {
    if (static_cast<std::uint32_t>(magic) == known) return name;
  }
  return {};
}

Result<std::string_view> network_file_system_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0) {
    return error(errno_status(errno, "look at the folder", folder));
  }
  return network_file_system_name(static_cast<std::int64_t>(info.f_type));
}

Status check_file_system(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const std::string_view name, network_file_system_of(path));
  if (name.empty()) return {};
  return Status(
      Code::kFailedPrecondition,
      fmt::format("{} is on {}, a network file system: its locks and syncs cannot be trusted with "
                  "a database; use a local disk (and `tailor backup` to copy it away)",
                  path, name));
}

}  // namespace tailor::storage
