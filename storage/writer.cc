// The storage thread.
#include "storage/writer.h"

#include <iterator>
#include <utility>

namespace tailor::storage {
namespace {

// Failures that lie in a batch, not in the disk: the batches that shared its transaction are
// innocent.
bool is_of_the_batch(Code code) {
  return code == Code::kInvalidArgument || code == Code::kAlreadyExists ||
         code == Code::kFailedPrecondition || code == Code::kInternal;
}

}  // namespace

Writer::Writer(Store& store, WriterOptions options)
    : store_(store),
      options_(options),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Writer::~Writer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.request_stop();
  thread_.join();
}

Status Writer::submit(std::vector<Mutation> batch, Done done) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return Status(Code::kUnavailable, "the storage thread is stopping");
  const std::size_t waiting = stats_.queued_mutations;
  if (waiting > 0 && waiting + batch.size() > options_.queued_mutations_max) {
    ++stats_.refused_batches;
    return Status(Code::kResourceExhausted,
                  "the storage queue is full (" + std::to_string(waiting) +
                      " rows wait for the disk); slow down and try again");
  }
  stats_.queued_mutations += batch.size();
  ++stats_.queued_batches;
  ++submitted_;
  queue_.push_back({std::move(batch), std::move(done)});
  work_.notify_one();
  return {};
}

void Writer::flush() {
  std::unique_lock lock(mutex_);
  const std::uint64_t until = submitted_;
  idle_.wait(lock, [&] { return finished_ >= until; });
}

WriterStats Writer::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Writer::run(const std::stop_token& stop) {
  while (true) {
    std::vector<Item> items = take(stop);
    if (items.empty()) return;  // stopping, and nothing is left
    commit(items);
  }
}

std::vector<Writer::Item> Writer::take(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  work_.wait(lock, stop, [&] { return !queue_.empty(); });
  std::vector<Item> items;
  std::size_t mutations = 0;
  while (!queue_.empty()) {
    const std::size_t size = queue_.front().batch.size();
    if (!items.empty() && mutations + size > options_.commit_mutations_max) break;
    mutations += size;
    items.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return items;
}

void Writer::commit(std::vector<Item>& items) {
  std::vector<Status> outcomes(items.size());
  std::vector<std::size_t> sizes;
  for (const Item& item : items) sizes.push_back(item.batch.size());
  if (items.size() == 1) {
    outcomes[0] = commit_counted(items[0].batch, 1);
  } else {
    std::vector<Mutation> all;
    for (Item& item : items) {
      all.insert(all.end(), std::make_move_iterator(item.batch.begin()),
                 std::make_move_iterator(item.batch.end()));
    }
    const Status status = commit_counted(all, items.size());
    outcomes.assign(items.size(), status);
    if (is_of_the_batch(status.code())) {
      std::span<const Mutation> rest(all);
      for (std::size_t i = 0; i < items.size(); ++i) {
        outcomes[i] = commit_counted(rest.first(sizes[i]), 1);
        rest = rest.subspan(sizes[i]);
      }
    }
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].done) items[i].done(outcomes[i]);
    const std::lock_guard lock(mutex_);
    stats_.queued_mutations -= sizes[i];
    --stats_.queued_batches;
    ++finished_;
  }
  idle_.notify_all();
}

Status Writer::commit_counted(std::span<const Mutation> batch, std::size_t batches) {
  Status status = store_.commit(batch);
  const std::lock_guard lock(mutex_);
  stats_.last_error = status;
  if (status.is_ok()) {
    ++stats_.commits;
    stats_.batches += batches;
    stats_.mutations += batch.size();
  } else {
    ++stats_.failed_commits;
  }
  return status;
}

}  // namespace tailor::storage
