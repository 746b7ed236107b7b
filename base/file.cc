#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/atomic_file.h"

namespace tailor {
namespace {

/// Closes a descriptor when it goes out of scope.
struct Fd {
  int fd;
  explicit Fd(int f) : fd(f) {}
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
};

}  // namespace

std::string absolute_path(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::path full = fs::absolute(path, failed);
  if (failed) return path;
  fs::path out = full.lexically_normal();
  if (std::find(full.begin(), full.end(), "..") != full.end()) {
    const fs::path meant = fs::weakly_canonical(full, failed);
    if (!failed && fs::weakly_canonical(out, failed) != meant) out = meant;
  }
  if (!out.has_filename() && out.has_relative_path())
    out = out.parent_path();  // a slash at the end
  return out.string();
}

Status errno_status(int error_number, std::string_view action, std::string_view path) {
  Code code = Code::kUnavailable;
  if (error_number == ENOENT || error_number == ENOTDIR) code = Code::kNotFound;
  if (error_number == ELOOP || error_number == ENAMETOOLONG) code = Code::kInvalidArgument;
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG)
    code = Code::kResourceExhausted;
  if (error_number == EACCES || error_number == EPERM || error_number == EROFS) {
    code = Code::kPermissionDenied;
  }
  return Status(code, fmt::format("cannot {} {}: {}", action, path, std::strerror(error_number)));
}

Result<std::string> read_file(const std::string& path, std::uint64_t bytes_max) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return error(errno_status(errno, "open", path));
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return error(errno_status(errno, "stat", path));
  if (S_ISDIR(info.st_mode)) {
    return error(Code::kInvalidArgument, fmt::format("{} is a directory, not a file", path));
  }
  std::string content;
  content.reserve(std::min(static_cast<std::uint64_t>(info.st_size), bytes_max));
  char block[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.fd, block, sizeof block);
    if (got == 0) return content;
    if (got < 0) {
      if (errno == EINTR) continue;
      return error(errno_status(errno, "read", path));
    }
    content.append(block, static_cast<std::size_t>(got));
    if (content.size() > bytes_max) {
      return error(Code::kInvalidArgument,
                   fmt::format("{} is larger than {} bytes", path, bytes_max));
    }
  }
}

Result<std::size_t> read_at(int descriptor, void* data, std::size_t size, std::uint64_t offset,
                            std::string_view path) {
  constexpr std::size_t kOnceMax = 1u << 30;  // one call of the system takes little more
  char* bytes = static_cast<char*>(data);
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(descriptor, bytes + done, std::min(size - done, kOnceMax),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error(errno_status(errno, "read", path));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

std::string program_folder() {
  std::error_code failure;
  return std::filesystem::read_symlink("/proc/self/exe", failure).parent_path().string();
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  static std::atomic<std::uint64_t> serial{0};
  std::string temporary = fmt::format("{}.tmp.{}.{}", path, ::getpid(), ++serial);
  const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return error(errno_status(errno, "create", temporary));
  return AtomicFile(descriptor, path, std::move(temporary));
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::string_view content) {
  while (!content.empty()) {
    const ssize_t wrote = ::write(descriptor_, content.data(), content.size());
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return errno_status(errno, "write", temporary_);
    }
    content.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return Status::ok();
}

Status AtomicFile::commit(bool durable) {
  if (durable && ::fsync(descriptor_) != 0) return errno_status(errno, "fsync", temporary_);
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  Status status = closed ? Status::ok() : errno_status(errno, "close", temporary_);
  if (closed && ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    status = errno_status(errno, "rename onto", path_);
  }
  if (!status.is_ok()) {
    ::unlink(temporary_.c_str());
    return status;
  }
  if (!durable) return Status::ok();
  const std::size_t slash = path_.find_last_of('/');
  return sync_directory(slash == std::string::npos ? "." : path_.substr(0, slash + 1));
}

Status write_file_atomic(const std::string& path, std::string_view content, bool durable) {
  TAILOR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TAILOR_RETURN_IF_ERROR(file.write(content));
  return file.commit(durable);
}

Status sync_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return errno_status(errno, "open", path);
  if (::fsync(file.fd) != 0) return errno_status(errno, "sync", path);
  return Status::ok();
}

Status sync_directory(const std::string& path) {
  const Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.fd < 0) return errno_status(errno, "open", path);
  if (::fsync(directory.fd) != 0) return errno_status(errno, "fsync", path);
  return Status::ok();
}

}  // namespace tailor
