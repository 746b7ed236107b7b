// The windows of outbox.h.
#include "worker/agent/outbox.h"

#include <algorithm>
#include <utility>

#include "protocol/limits.h"

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

std::optional<protocol::CheckpointReport> ReportOutbox::checkpoint_through(
    std::uint64_t sequence) const {
  if (sequence <= acked_) return std::nullopt;
  const std::uint64_t known = std::min<std::uint64_t>(sequence - acked_, queue_.size());
  for (auto i = static_cast<std::size_t>(known); i-- > 0;) {
    const auto* checkpoint = std::get_if<protocol::CheckpointReport>(&queue_[i].body);
    if (checkpoint != nullptr) return *checkpoint;
  }
  return std::nullopt;
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
  std::size_t bytes = 0;
  while (taken.size() < count_max && bytes < protocol::kReportsBytesMax && sent_ < read_through()) {
    const protocol::Report& next = queue_[static_cast<std::size_t>(sent_ - acked_)];
    if (!end_allowed && std::holds_alternative<protocol::EndReport>(next.body)) break;
    taken.push_back(next);
    bytes += protocol::report_bytes(next);
    ++sent_;
  }
  return taken;
}

std::size_t LogOutbox::room(std::size_t window) const {
  std::size_t held = 0;
  for (const Piece& piece : pieces_) held += piece.bytes.size();
  return held >= window ? 0 : window - held;
}

void LogOutbox::add(std::string_view bytes, std::uint64_t left_out) {
  if (bytes.empty()) return;
  if (left_out == 0 && !pieces_.empty()) {
    pieces_.back().bytes += bytes;
  } else {
    pieces_.push_back({read_through() + left_out, left_out, std::string(bytes)});
  }
}

bool LogOutbox::acknowledge(std::uint64_t offset) {
  if (offset <= acked_) return false;
  while (!pieces_.empty()) {
    Piece& first = pieces_.front();
    if (offset <= first.begin) break;
    const std::uint64_t known = std::min<std::uint64_t>(offset - first.begin, first.bytes.size());
    first.bytes.erase(0, static_cast<std::size_t>(known));
    first.begin += known;
    first.left_out = 0;
    if (!first.bytes.empty()) break;
    pieces_.pop_front();
  }
  acked_ = offset;
  sent_ = std::max(sent_, acked_);
  return true;
}

void LogOutbox::restart(std::uint64_t offset) {
  if (offset < acked_) {
    pieces_.clear();
    acked_ = offset;
  } else {
    acknowledge(offset);
  }
  sent_ = acked_;
}

LogOutbox::Taken LogOutbox::take(std::size_t bytes_max) {
  for (const Piece& piece : pieces_) {
    const std::uint64_t end = piece.begin + piece.bytes.size();
    if (end <= sent_) continue;
    Taken taken;
    taken.offset = std::max(sent_, piece.begin);
    if (taken.offset == piece.begin) taken.left_out = piece.left_out;
    taken.bytes =
        piece.bytes.substr(static_cast<std::size_t>(taken.offset - piece.begin), bytes_max);
    sent_ = taken.offset + taken.bytes.size();
    return taken;
  }
  return {sent_, 0, {}};
}

}  // namespace tailor::agent
