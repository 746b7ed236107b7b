// The windows of outbox.h.
#include "worker/agent/outbox.h"

#include <algorithm>
#include <utility>

namespace tailor::agent {

bool ReportOutbox::add(std::vector<protocol::Report> reports) {
  for (protocol::Report& report : reports) {
    if (report.sequence <= read_through()) continue;
    if (report.sequence != read_through() + 1) return false;
    queue_.push_back(std::move(report));
  }
  return true;
}

bool ReportOutbox::acknowledge(std::uint64_t sequence) {
  if (sequence <= acked_) return false;
  const std::uint64_t known = std::min<std::uint64_t>(sequence - acked_, queue_.size());
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(known));
  acked_ = sequence;
  sent_ = std::max(sent_, acked_);
  return true;
}

void ReportOutbox::restart(std::uint64_t acked) {
  if (acked < acked_) {
    queue_.clear();
    acked_ = acked;
  } else {
    acknowledge(acked);
  }
  sent_ = acked_;
}

std::vector<protocol::Report> ReportOutbox::take(std::size_t count_max, bool end_allowed) {
  std::vector<protocol::Report> taken;
  while (taken.size() < count_max && sent_ < read_through()) {
    const protocol::Report& next = queue_[static_cast<std::size_t>(sent_ - acked_)];
    if (!end_allowed && std::holds_alternative<protocol::EndReport>(next.body)) break;
    taken.push_back(next);
    ++sent_;
  }
  return taken;
}

bool LogOutbox::acknowledge(std::uint64_t offset) {
  if (offset <= acked_) return false;
  bytes_.erase(0,
               static_cast<std::size_t>(std::min<std::uint64_t>(offset - acked_, bytes_.size())));
  acked_ = offset;
  sent_ = std::max(sent_, acked_);
  return true;
}

void LogOutbox::restart(std::uint64_t offset) {
  if (offset < acked_) {
    bytes_.clear();
    acked_ = offset;
  } else {
    acknowledge(offset);
  }
  sent_ = acked_;
}

std::string LogOutbox::take(std::size_t bytes_max) {
  std::string taken = bytes_.substr(static_cast<std::size_t>(sent_ - acked_), bytes_max);
  sent_ += taken.size();
  return taken;
}

}  // namespace tailor::agent
