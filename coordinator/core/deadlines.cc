#include "coordinator/core/deadlines.h"

#include <algorithm>

namespace tailor::core {

void Deadlines::set(DeadlineKind kind, std::uint64_t id, MonotonicMs at_ms) {
  Kind& k = of(kind);
  const auto [found, is_new] = k.by_id.emplace(id, at_ms);
  if (is_new) {
    k.by_time.emplace(at_ms, id);
    return;
  }
  if (found->second == at_ms) return;
  // The node moves; a renewed lease allocates nothing.
  auto node = k.by_time.extract({found->second, id});
  node.value().first = at_ms;
  k.by_time.insert(std::move(node));
  found->second = at_ms;
}

void Deadlines::clear(DeadlineKind kind, std::uint64_t id) {
  Kind& k = of(kind);
  const auto found = k.by_id.find(id);
  if (found == k.by_id.end()) return;
  k.by_time.erase({found->second, id});
  k.by_id.erase(found);
}

std::optional<std::uint64_t> Deadlines::take_due(DeadlineKind kind, MonotonicMs now_ms) {
  Kind& k = of(kind);
  if (k.by_time.empty() || k.by_time.begin()->first > now_ms) return std::nullopt;
  const std::uint64_t id = k.by_time.begin()->second;
  k.by_time.erase(k.by_time.begin());
  k.by_id.erase(id);
  return id;
}

void Deadlines::shift(DeadlineKind kind, std::int64_t by_ms) {
  Kind& k = of(kind);
  std::set<Entry> moved;
  for (const auto& [at_ms, id] : k.by_time) moved.emplace_hint(moved.end(), at_ms + by_ms, id);
  k.by_time = std::move(moved);
  for (auto& [id, at_ms] : k.by_id) at_ms += by_ms;
}

std::optional<MonotonicMs> Deadlines::at(DeadlineKind kind, std::uint64_t id) const {
  const Kind& k = of(kind);
  const auto found = k.by_id.find(id);
  if (found == k.by_id.end()) return std::nullopt;
  return found->second;
}

std::optional<MonotonicMs> Deadlines::earliest() const {
  std::optional<MonotonicMs> first;
  for (const Kind& kind : kinds_) {
    if (kind.by_time.empty()) continue;
    const MonotonicMs at_ms = kind.by_time.begin()->first;
    first = std::min(first.value_or(at_ms), at_ms);
  }
  return first;
}

}  // namespace tailor::core
