// A folder that goes away with the test, and waiting on a condition.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "tests/support/temporary_folder.h"

namespace tailor::agent {

using test::TemporaryFolder;

/// Asks every 5 ms until `condition` holds; false when it still does not after `limit_ms`.
inline bool eventually(const std::function<bool()>& condition, std::int64_t limit_ms = 20'000) {
  const SystemClock clock;
  const MonotonicMs deadline = clock.now_ms() + limit_ms;
  while (!condition()) {
    if (clock.now_ms() > deadline) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

}  // namespace tailor::agent
