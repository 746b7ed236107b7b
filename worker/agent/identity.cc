// See identity.h.
#include "worker/agent/identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"

namespace tailor::agent {
namespace {

Result<std::uint64_t> random_number() {
  std::uint64_t value = 0;
  if (::getrandom(&value, sizeof value, 0) != sizeof value) {
    return error(errno_status(errno, "read", "random numbers"));
  }
  return value;
}

/// The one line of `path`; kNotFound when it is missing or still empty.
Result<std::string> line_of(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path, 4096));
  const std::string line(trim(text));
  if (line.empty()) return error(Code::kNotFound, path + " is empty");
  return line;
}

}  // namespace

Result<std::string> default_worker_name(const std::string& work_dir, const std::string& host) {
  const std::string path = work_dir + "/worker-name";
  const Result<std::string> kept = line_of(path);
  if (kept || kept.error().code() != Code::kNotFound) return kept;
  std::error_code failure;
  std::filesystem::create_directories(work_dir, failure);
  if (failure) return error(errno_status(failure.value(), "create", work_dir));
  std::string name = host;
  if (!std::filesystem::exists(work_dir + "/worker.lock", failure)) {
    TAILOR_ASSIGN_OR_RETURN(const std::uint64_t number, random_number());
    name += fmt::format("-{:05x}", number & 0xfffff);
  }
  TAILOR_RETURN_IF_ERROR(write_file_atomic(path, name + "\n"));
  return name;
}

Result<std::string> folder_identity(const std::string& trials_dir) {
  const std::string path = trials_dir + "/.tailor-folder";
  const Result<std::string> known = line_of(path);
  if (known || known.error().code() != Code::kNotFound) return known;
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t high, random_number());
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t low, random_number());
  // A whole file under a name of its own, then linked to the common one: whoever is first wins, and
  // nobody reads half a line.
  const std::string own = fmt::format("{}.{:016x}", path, low);
  TAILOR_RETURN_IF_ERROR(write_file_atomic(own, fmt::format("{:016x}{:016x}\n", high, low)));
  const bool linked = ::link(own.c_str(), path.c_str()) == 0;
  const int failure = errno;
  if (!linked && failure != EEXIST && ::rename(own.c_str(), path.c_str()) != 0) {
    // No links on this file system, and no rename either.
    return error(errno_status(failure, "create", path));
  }
  ::unlink(own.c_str());
  TAILOR_RETURN_IF_ERROR(sync_directory(trials_dir));
  return line_of(path);
}

}  // namespace tailor::agent
