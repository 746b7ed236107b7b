#include "base/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace tailor {
namespace {

// Where there is no limit; more connections than that end in other ways.
constexpr rlim_t kUnlimited = 1 << 20;

}  // namespace

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kUnlimited));
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  return descriptor_limit();
}

std::uint64_t descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;  // the least that systems give
  return std::min(limit.rlim_cur, kUnlimited);
}

std::uint64_t lowest_free_descriptor() {
  const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return descriptor_limit();
  ::close(descriptor);
  return static_cast<std::uint64_t>(descriptor);
}

}  // namespace tailor
