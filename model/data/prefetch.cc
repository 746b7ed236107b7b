#include "model/data/prefetch.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace tailor::data {
namespace {

constexpr std::size_t kOwnBuffers = 2;

}  // namespace

PrefetchLoader::PrefetchLoader(const TrainLoader& loader, const BatchPlan& plan)
    : loader_(loader), plan_(plan), kept_(1) {
  TAILOR_CHECK(plan.rows >= 1);
  const auto size =
      static_cast<std::size_t>(plan.rows) * static_cast<std::size_t>(loader.sequence_length());
  own_.resize(2 * kOwnBuffers * size);
  for (std::size_t i = 0; i < kOwnBuffers; ++i) {
    const std::span<std::int64_t> both = std::span(own_).subspan(2 * i * size, 2 * size);
    buffers_.push_back({both.first(size), both.last(size)});
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { read_ahead(stop); });
}

PrefetchLoader::PrefetchLoader(const TrainLoader& loader, const BatchPlan& plan,
                               std::vector<BatchBuffer> buffers, std::size_t kept)
    : loader_(loader), plan_(plan), kept_(kept), buffers_(std::move(buffers)) {
  TAILOR_CHECK(plan.rows >= 1 && kept >= 1 && kept < buffers_.size(), "{} rows, {} of {} kept",
               plan.rows, kept, buffers_.size());
  const auto size =
      static_cast<std::size_t>(plan.rows) * static_cast<std::size_t>(loader.sequence_length());
  for (const BatchBuffer& buffer : buffers_) {
    TAILOR_CHECK(buffer.inputs.size() == size && buffer.targets.size() == size);
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { read_ahead(stop); });
}

PrefetchLoader::~PrefetchLoader() = default;

void PrefetchLoader::read_ahead(const std::stop_token& stop) {
  for (std::uint64_t batch = 0; batch < plan_.batches; ++batch) {
    {
      std::unique_lock lock(mutex_);
      // What lies in the buffer must no longer be one of the kept.
      const bool free = changed_.wait(lock, stop, [this, batch] {
        return batch < buffers_.size() || batch + kept_ < given_ + buffers_.size();
      });
      if (!free) return;
    }
    const BatchBuffer& buffer = buffers_[batch % buffers_.size()];
    Status status = loader_.fill<std::int64_t>(plan_.first_sample + batch * plan_.stride,
                                               buffer.inputs, buffer.targets);
    const bool failed = !status;
    {
      const std::lock_guard lock(mutex_);
      if (failed) {
        failure_ = std::move(status);
      } else {
        ++read_;
      }
    }
    changed_.notify_all();
    if (failed) return;
  }
}

Result<std::size_t> PrefetchLoader::next() {
  std::unique_lock lock(mutex_);
  if (given_ == plan_.batches) {
    return error(Code::kOutOfRange, fmt::format("the run has {} batches", plan_.batches));
  }
  if (read_ == given_ && failure_) {
    const double since = steady_seconds();
    changed_.wait(lock, [this] { return read_ > given_ || !failure_; });
    waited_s_ += steady_seconds() - since;
  }
  if (read_ == given_) return error(failure_);
  const std::size_t index = given_ % buffers_.size();
  ++given_;
  lock.unlock();
  changed_.notify_all();
  return index;
}

}  // namespace tailor::data
