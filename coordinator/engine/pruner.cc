#include "coordinator/engine/pruner.h"

#include <chrono>
#include <string>

#include "base/logging.h"

namespace tailor::engine {
namespace {

constexpr std::int64_t kEveryMs = 600'000;
constexpr std::int64_t kBetweenPiecesMs = 50;  // a piece takes a few: a small part of the writer
constexpr std::int64_t kAfterFailureMs = 30'000;

}  // namespace

Pruner::Pruner(storage::Store& store, const storage::PruneRules& rules, const Clock& clock)
    : store_(store), rules_(rules), clock_(clock) {
  if (rules_ != storage::PruneRules()) thread_ = std::thread([this] { run(); });
}

Pruner::~Pruner() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

bool Pruner::wait(std::int64_t ms) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return stopping_; });
}

void Pruner::run() {
  while (prune_all() && wait(kEveryMs)) {
  }
}

bool Pruner::prune_all() {
  storage::Pruned sum;
  for (bool more = true; more;) {
    const Result<storage::Pruned> piece = store_.prune(rules_, clock_.wall_ms());
    if (!piece.has_value()) {
      log_warn("prune", "could not prune; tried again", {{"reason", piece.error().to_string()}});
      if (!wait(kAfterFailureMs)) return false;
      continue;
    }
    sum.log_bytes += piece->log_bytes;
    sum.points += piece->points;
    sum.events += piece->events;
    more = piece->more;
    if (more && !wait(kBetweenPiecesMs)) return false;
  }
  if (sum.log_bytes + sum.points + sum.events > 0) {
    log_info("prune", "deleted what the rules of [prune] say",
             {{"log_bytes", std::to_string(sum.log_bytes)},
              {"points", std::to_string(sum.points)},
              {"events", std::to_string(sum.events)}});
  }
  return true;
}

}  // namespace tailor::engine
