// parallel_for: the only way geometry starts threads. The caller says how many; there is no pool,
// no global setting and no environment variable, and nothing outlives the call.
//
// Every item is computed by one thread and writes only its own results, and nothing is ever summed
// across items in arrival order, so results are the same bit for bit whatever the
// number of threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace tailor::geometry {

/// Calls body(i) once for every i in [0, count), on up to `threads` threads (the caller's among
/// them; values below 2 mean the caller's alone). Returns when all are done. `body` must not write
/// what another item reads or writes. If it throws (no memory left), the items that were not begun
/// are left out and the first exception comes out here. Fewer threads are used when the system
/// gives no more.
template <typename Body>
void parallel_for(int threads, std::size_t count, const Body& body) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::once_flag failed;
  const auto drain = [&] {
    try {
      for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i);
    } catch (...) {
      std::call_once(failed, [&failure] { failure = std::current_exception(); });
      next.store(count);
    }
  };
  std::vector<std::jthread> helpers;
  for (int t = 1; t < threads && static_cast<std::size_t>(t) < count; ++t) {
    try {
      helpers.emplace_back(drain);
    } catch (const std::system_error&) {
      break;  // the system is out of threads: the ones we have do all the work
    } catch (const std::bad_alloc&) {
      break;  // the same
    }
  }
  drain();
  helpers.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tailor::geometry
