#include "model/eval/windows.h"

#include <algorithm>

#include "base/check.h"

namespace tailor::eval {

Windows::Windows(std::uint64_t ids, std::int64_t length, std::int64_t stride)
    : ids_(ids), length_(length), stride_(stride), count_(1) {
  TAILOR_CHECK(ids >= 2 && stride >= 1 && stride <= length, "ids={} length={} stride={}", ids,
               length, stride);
  const std::uint64_t targets = ids - 1;
  const auto first = static_cast<std::uint64_t>(length);
  const auto step = static_cast<std::uint64_t>(stride);
  if (targets > first) count_ += (targets - first - 1) / step + 1;
}

Window Windows::operator[](std::uint64_t k) const {
  Window window;
  window.begin = k * static_cast<std::uint64_t>(stride_);
  window.length = static_cast<std::int64_t>(
      std::min(static_cast<std::uint64_t>(length_), ids_ - 1 - window.begin));
  window.skipped = k == 0 ? 0 : length_ - stride_;
  return window;
}

std::vector<BlockLoss> joined_blocks(std::span<const BlockLoss> windows, std::uint64_t tokens) {
  std::vector<BlockLoss> blocks;
  for (const BlockLoss& window : windows) {
    if (blocks.empty() || blocks.back().tokens >= tokens) blocks.emplace_back();
    blocks.back().nats += window.nats;
    blocks.back().tokens += window.tokens;
  }
  return blocks;
}

}  // namespace tailor::eval
