// What must hold before a database is opened and while it is open: one coordinator only, a file
// system whose locks and syncs can be trusted, and that the file is still where it was. Internal to
// storage/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tailor::storage {

/// Where `path` leads: absolute, symbolic links followed to the end, also where the file is not
/// there yet. Errors: kInvalidArgument (no file name, links that go round).
Result<std::string> resolve_database_path(const std::string& path);

/// An exclusive lock on a database, held until destruction (and given back by the kernel if the
/// process dies): on PATH.lock, which holds the owner's process id and stays, and on the file
/// itself, so that all names of one file, hard links too, meet in one lock.
class FileLock {
 public:
  /// Makes an empty file when there is none. The lock on the file itself is left out when
  /// `lock_file` is false (network file systems make of it one that SQLite's own collide with).
  /// REQUIRES: `path` is resolved; SQLite has not opened the file in this process. Errors:
  /// kAlreadyExists naming the process that holds it; kNotFound, kPermissionDenied, … when a file
  /// cannot be made or opened for writing.
  static Result<FileLock> acquire(const std::string& path, bool lock_file);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  FileLock() = default;
  int lock_fd_ = -1;
  // Closing any descriptor of the file gives up the locks that SQLite has on it: this one is closed
  // last.
  int file_fd_ = -1;
};

/// Which file a name meant: recognises that it was removed or replaced. Threads: values only.
class FileIdentity {
 public:
  FileIdentity() = default;
  /// Of the database `path` and its write-ahead log, which must exist. Errors: those of stat(2).
  static Result<FileIdentity> of(const std::string& path);
  /// Ok while both names mean the same files. Errors: kDataLoss with what to do. About 2 us.
  Status still_there() const;

 private:
  struct Number {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    friend bool operator==(const Number&, const Number&) = default;
  };
  static std::optional<Number> number_of(const std::string& path);

  std::string path_;
  std::string log_path_;
  Number file_;
  Number log_;
};

/// "NFS", "SMB", "FUSE", … for the f_type of statfs(2); "" for a local file system.
std::string_view network_file_system_name(std::int64_t magic);

/// The name of the network file system that the folder of `path` is on, "" for a local one.
/// Errors: kNotFound when the folder does not exist.
Result<std::string_view> network_file_system_of(const std::string& path);

/// Errors: kFailedPrecondition when the folder of `path` is on a network file system, where locks
/// are not reliable and a write-ahead log needs shared memory;
/// kNotFound when the folder does not exist.
Status check_file_system(const std::string& path);

}  // namespace tailor::storage
