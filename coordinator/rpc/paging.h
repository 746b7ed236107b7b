// How answers stay bounded (private to coordinator/rpc): a page ends after so many entries or so
// many bytes, whichever is first, and every list that can grow comes in pages.
#pragma once

#include <google/protobuf/message.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tailor::rpc {

/// Bytes of the lists of one answer. With what stands beside a list (a sweep file of 1 MiB at most)
/// and one entry too many an answer is below 4 MiB, which every gRPC client takes.
inline constexpr std::size_t kPageBytesMax = 2 << 20;
inline constexpr std::uint64_t kPageMax = 1'000;
inline constexpr std::uint64_t kTrialsPageMax = 10'000;
inline constexpr std::uint64_t kWorkersPageMax = 10'000;
inline constexpr std::uint64_t kSeriesPointsMax = 50'000;
inline constexpr std::size_t kTomlBytesMax = 1 << 20;

/// 0 = the most.
inline std::uint64_t page_limit(std::uint64_t asked, std::uint64_t most) {
  return asked == 0 ? most : std::min(asked, most);
}

/// Counts what has gone into an answer.
class PageBudget {
 public:
  /// False when `entry` must go onto the next page. The first always has room, so that every page
  /// goes on.
  bool take(const google::protobuf::Message& entry) {
    constexpr std::size_t kFraming = 8;  // its tag and its length
    const std::size_t bytes = entry.ByteSizeLong() + kFraming;
    if (used_ > 0 && used_ + bytes > kPageBytesMax) return false;
    used_ += bytes;
    return true;
  }

 private:
  std::size_t used_ = 0;
};

}  // namespace tailor::rpc
