#include "coordinator/rpc/unread_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tailor::rpc {
namespace {

/// Of a stream that holds no message: its call, its connection's share, its buffers.
constexpr std::size_t kStreamBytes = 16 << 10;

}  // namespace

UnreadBudget::Share::Share(UnreadBudget& budget, std::function<void()> end)
    : budget_(budget), state_(budget.state_) {
  Held held;
  held.end = std::make_shared<const std::function<void()>>(std::move(end));
  const std::scoped_lock lock(state_->mutex);
  id_ = ++state_->last;
  state_->shares.emplace(id_, std::move(held));
}

UnreadBudget::Share::~Share() {
  const std::scoped_lock lock(state_->mutex);
  const auto found = state_->shares.find(id_);
  state_->bytes -= found->second.bytes;
  state_->shares.erase(found);
}

Status UnreadBudget::Share::hold(std::size_t bytes, bool waits) {
  return budget_.hold(id_, bytes + kStreamBytes, waits);
}

std::size_t UnreadBudget::bytes() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->bytes;
}

Status UnreadBudget::hold(std::uint64_t id, std::size_t bytes, bool waits) {
  std::vector<std::shared_ptr<const std::function<void()>>> ending;
  Status status;
  {
    const std::scoped_lock lock(state_->mutex);
    std::size_t& all = state_->bytes;
    Held& own = state_->shares.at(id);
    const MonotonicMs now = clock_.now_ms();
    const auto fits = [&] { return bytes <= own.bytes || all - own.bytes + bytes <= bytes_max_; };
    if (!fits()) {
      std::vector<Held*> idle;
      for (auto& [other, held] : state_->shares) {
        if (other != id && held.waits && held.bytes > 0 && now - held.since >= unread_ms_max_) {
          idle.push_back(&held);
        }
      }
      std::sort(idle.begin(), idle.end(),
                [](const Held* a, const Held* b) { return a->since < b->since; });
      for (Held* const held : idle) {
        if (fits()) break;
        ending.push_back(held->end);
        all -= std::exchange(held->bytes, 0);
        held->waits = false;
      }
    }
    if (fits()) {
      all = all - own.bytes + bytes;
      own.bytes = bytes;
    } else {
      status = {Code::kResourceExhausted,
                fmt::format("answers that other clients have not read yet hold {} of {} MiB; read "
                            "or end those, or try again later",
                            all >> 20, bytes_max_ >> 20)};
    }
    own.since = now;
    own.waits = waits && status.is_ok();
  }
  for (const auto& end : ending) (*end)();
  return status;
}

}  // namespace tailor::rpc
