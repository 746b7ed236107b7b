// See identity.h.
#include "worker/agent/identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/random.h>
#include <sys/socket.h>
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
  // Nobody writes an empty file there; a loss of power leaves one. It is nobody's, and replaced.
  const bool empty = !linked && failure == EEXIST && !line_of(path);
  if (!linked && (failure != EEXIST || empty) && ::rename(own.c_str(), path.c_str()) != 0) {
    // No links on this file system, and no rename either.
    return error(errno_status(failure, "create", path));
  }
  ::unlink(own.c_str());
  TAILOR_RETURN_IF_ERROR(sync_directory(trials_dir));
  return line_of(path);
}

std::string address_towards(const std::string& target) {
  const std::size_t colon = target.rfind(':');
  if (colon == std::string::npos) return {};
  std::string host = target.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), target.c_str() + colon + 1, &hints, &found) != 0) return {};
  std::string address;
  for (const addrinfo* at = found; at != nullptr && address.empty(); at = at->ai_next) {
    const int socket = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST] = {};
    if (socket >= 0 && ::connect(socket, at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      address = text;
    }
    if (socket >= 0) ::close(socket);
  }
  ::freeaddrinfo(found);
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

}  // namespace tailor::agent
