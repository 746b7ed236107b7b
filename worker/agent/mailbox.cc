// See mailbox.h.
#include "worker/agent/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"

namespace tailor::agent {

Mailbox::Mailbox() : event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TAILOR_CHECK(event_fd_ >= 0, "no event descriptor: raise the limit of open files (ulimit -n)");
}

Mailbox::~Mailbox() { ::close(event_fd_); }

void Mailbox::post(AgentEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = ::write(event_fd_, &one, sizeof one);
}

std::vector<AgentEvent> Mailbox::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_fd_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

}  // namespace tailor::agent
