// What must hold before a database is opened: one coordinator only, and a file system whose locks
// and syncs can be trusted. Internal to storage/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailor::storage {

/// An exclusive lock on PATH.lock, held until destruction (and given back by the kernel if the
/// process dies). The file holds the owner's process id and stays.
class FileLock {
 public:
  /// Errors: kAlreadyExists naming the process that holds it; kNotFound, kPermissionDenied, …
  /// when the lock file cannot be made.
  static Result<FileLock> acquire(const std::string& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

/// "NFS", "SMB", "FUSE", … for the f_type of statfs(2); "" for a local file system.
std::string_view network_file_system_name(std::int64_t magic);

/// Errors: kFailedPrecondition when the folder of `path` is on a network file system, where locks
/// are not reliable and a write-ahead log needs shared memory;
/// kNotFound when the folder does not exist.
Status check_file_system(const std::string& path);

}  // namespace tailor::storage
