// Ranks as threads of one process, with a rendezvous in memory.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "model/train/ranks/mesh.h"

namespace tailor::test {

class MemoryRendezvous final : public train::ranks::Rendezvous {
 public:
  Status publish(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    table_[key] = value;
    changed_.notify_all();
    return Status::ok();
  }
  Result<std::string> find(const std::string& key, MonotonicMs deadline_ms) override {
    std::unique_lock lock(mutex_);
    const auto left = std::chrono::milliseconds(deadline_ms - SystemClock().now_ms());
    if (!changed_.wait_for(lock, left, [&] { return table_.contains(key); })) {
      return error(Code::kDeadlineExceeded, key + " was not published in time");
    }
    return table_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> table_;
};

inline train::ranks::MeshOptions mesh_options(int rank, int size) {
  train::ranks::MeshOptions options;
  options.rank = rank;
  options.size = size;
  options.meet_ms = 30'000;
  options.lost_after_ms = 30'000;
  return options;
}

/// Runs `body` on every rank, each on its own thread.
inline void with_ranks(int size, const std::function<void(train::ranks::Mesh&)>& body,
                       const std::function<void(train::ranks::MeshOptions&)>& change = {}) {
  const SystemClock clock;
  MemoryRendezvous rendezvous;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      train::ranks::MeshOptions options = mesh_options(rank, size);
      if (change) change(options);
      auto mesh = train::ranks::Mesh::join(options, rendezvous, clock);
      ASSERT_TRUE(mesh.has_value()) << mesh.error().message();
      body(**mesh);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tailor::test
