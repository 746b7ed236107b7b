// Groups of ranks as threads of one process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "model/train/ranks/group.h"

namespace tailor::test {

/// Runs `body` on every rank, each on its own thread; they meet over a real store on a free port.
/// `change` may alter the options of all.
inline void with_groups(int size, const std::function<void(train::ranks::Group&)>& body,
                        const std::function<void(train::ranks::GroupOptions&)>& change = {}) {
  const SystemClock clock;
  auto listener = train::ranks::listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(listener.has_value());
  const train::ranks::Endpoint rendezvous = *train::ranks::local_endpoint(*listener);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      train::ranks::GroupOptions options;
      options.rank = rank;
      options.size = size;
      options.rendezvous = rendezvous;
      if (rank == 0) options.listener = std::move(*listener);
      options.meet_ms = 30'000;
      options.lost_after_ms = 30'000;
      if (change) change(options);
      auto group = train::ranks::Group::join(std::move(options), clock);
      ASSERT_TRUE(group.has_value()) << group.error().message();
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tailor::test
