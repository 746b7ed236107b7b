// Locking and file system checks.
#include "storage/file_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <utility>

#include "base/file.h"
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

std::string owner_of(int fd) {
  std::array<char, 32> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  if (size <= 0) return "another process";
  return fmt::format("process {}",
                     trim(std::string_view(text.data(), static_cast<std::size_t>(size))));
}

}  // namespace

Result<FileLock> FileLock::acquire(const std::string& path) {
  const std::string lock_path = path + ".lock";
  FileLock lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.fd_ < 0) return error(errno_status(errno, "open", lock_path));
  if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return error(errno_status(errno, "lock", lock_path));
    return error(
        Code::kAlreadyExists,
        fmt::format("{} is in use by {}; a database belongs to one coordinator: stop that one, or "
                    "give this one another path",
                    path, owner_of(lock.fd_)));
  }
  const std::string owner = fmt::format("{}\n", ::getpid());
  // Only for the message above: a disk that cannot take it does not take the lock away.
  if (::ftruncate(lock.fd_, 0) != 0 || ::pwrite(lock.fd_, owner.data(), owner.size(), 0) < 0) {
    (void)::ftruncate(lock.fd_, 0);
  }
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::string_view network_file_system_name(std::int64_t magic) {
  for (const auto& [known, name] : kNetworkFileSystems) {
    if (static_cast<std::uint32_t>(magic) == known) return name;
  }
  return {};
}

Status check_file_system(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0) {
    return errno_status(errno, "look at the folder", folder);
  }
  const std::string_view name = network_file_system_name(static_cast<std::int64_t>(info.f_type));
  if (name.empty()) return {};
  return Status(
      Code::kFailedPrecondition,
      fmt::format("{} is on {}, a network file system: its locks and syncs cannot be trusted with "
                  "a database; use a local disk (and `tailor backup` to copy it away)",
                  path, name));
}

}  // namespace tailor::storage
