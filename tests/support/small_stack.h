// Runs something on a thread with a stack as small as `ulimit -s 256` gives, where what recurses
// along its input goes down.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>

#include "base/check.h"

namespace tailor::test {

inline void on_small_stack(const std::function<void()>& work) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t kBytes = 4 << 20;  // instrumented frames are many times as large
#else
  constexpr std::size_t kBytes = 256 << 10;
#endif
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  TAILOR_CHECK(pthread_attr_setstacksize(&attributes, kBytes) == 0, "stack of {}", kBytes);
  pthread_t thread{};
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  const int started =
      pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work));
  TAILOR_CHECK(started == 0, "a thread with a small stack: error {}", started);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace tailor::test
