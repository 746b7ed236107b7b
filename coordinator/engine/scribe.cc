#include "coordinator/engine/scribe.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/logging.h"

namespace tailor::engine {
namespace {

void log_event(const storage::EventRow& row) {
  std::string ids;
  const auto add = [&ids](std::string_view key, const std::string& id) {
    ids += fmt::format("{}{}={}", ids.empty() ? "" : " ", key, id);
  };
  if (row.sweep.valid()) add("sweep", row.sweep.to_string());
  if (row.trial.valid()) add("trial", row.trial.to_string());
  if (row.attempt != 0) add("attempt", AttemptId{row.trial, row.attempt}.to_string());
  if (row.worker.valid()) add("worker", row.worker.to_string());
  const std::string kind(storage::event_kind_name(row.kind));
  const std::string text = ids.empty() ? kind : kind + " " + ids;
  if (row.message.empty()) {
    log_info("engine", text);
  } else {
    log_info("engine", text, {{"message", row.message}});
  }
}

}  // namespace

Scribe::Scribe(std::size_t lines_max) : lines_max_(lines_max), thread_([this] { run(); }) {}

Scribe::~Scribe() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

bool Scribe::events(std::span<const storage::Mutation> rows) {
  bool any = false;
  for (const storage::Mutation& mutation : rows) {
    const auto* row = std::get_if<storage::EventRow>(&mutation);
    if (row == nullptr) continue;
    any = true;
    const std::scoped_lock lock(mutex_);
    if (waiting_.size() >= lines_max_) {
      ++left_out_;
      continue;
    }
    waiting_.push_back([event = *row] { log_event(event); });
  }
  if (any) wake_.notify_one();
  return any;
}

void Scribe::say(std::function<void()> write) {
  const std::scoped_lock lock(mutex_);
  waiting_.push_back(std::move(write));
  wake_.notify_one();
}

std::uint64_t Scribe::left_out() const {
  const std::scoped_lock lock(mutex_);
  return left_out_;
}

void Scribe::run() {
  std::vector<std::function<void()>> lines;
  std::uint64_t left_out = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock,
                 [this] { return ending_ || !waiting_.empty() || left_out_ != left_out_told_; });
      lines.swap(waiting_);
      left_out = left_out_ - std::exchange(left_out_told_, left_out_);
      if (lines.empty() && left_out == 0) return;  // ending, and all is written
    }
    for (const auto& write : lines) write();
    lines.clear();
    if (left_out > 0) {
      log_warn("engine",
               "events were not logged: the log is slower than they come; the database "
               "has them all",
               {{"events", std::to_string(left_out)}});
    }
  }
}

}  // namespace tailor::engine
