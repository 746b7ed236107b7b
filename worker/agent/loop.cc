// See loop.h: one event at a time, effects in order.
#include "worker/agent/loop.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/logging.h"

namespace tailor::agent {
namespace {

constexpr std::int64_t kEmptyingPollMs = 10;

}  // namespace

AgentLoop::AgentLoop(LoopConfig config, const Clock& clock, Link& link, Mailbox& mailbox,
                     int signal_fd)
    : config_(std::move(config)),
      clock_(clock),
      link_(link),
      mailbox_(mailbox),
      signal_fd_(signal_fd),
      state_(config_.options),
      supervisor_(clock) {}

AgentLoop::~AgentLoop() = default;

AgentLoop::Attempt& AgentLoop::adopt(AttemptDirectory directory, AttemptNote note) {
  ReportTailer reports(directory.file("reports.jsonl"));
  LogTailer log(directory.file("log"), config_.log_limits);
  const protocol::AttemptRef ref = note.ref;
  attempts_.erase(ref);
  return attempts_
      .emplace(ref,
               Attempt{std::move(directory), std::move(note), std::move(reports), std::move(log)})
      .first->second;
}

Status AgentLoop::start() {
  std::error_code failure;
  std::filesystem::create_directories(config_.trials_dir, failure);
  if (failure) return errno_status(failure.value(), "create", config_.trials_dir);
  std::vector<std::string> warnings;
  TAILOR_ASSIGN_OR_RETURN(
      const std::vector<AttemptNote> notes,
      find_attempts(config_.trials_dir, config_.options.worker_name, &warnings));
  for (const std::string& warning : warnings) {
    log_warn("loop", "passed by an attempt", {{"reason", warning}});
  }
  Start event{clock_.wall_ms(), {}};
  for (const AttemptNote& note : notes) {
    AttemptDirectory directory(AttemptDirectory::path_of(config_.trials_dir, note.ref.attempt));
    RestoredAttempt restored{note.ref, note.slots, is_alive(note.process), note.acked_sequence, {}};
    if (Result<std::optional<protocol::Report>> end = directory.read_end()) {
      restored.end = *std::move(end);
    } else {
      log_warn("loop", "cannot read the stored end; it will be written again",
               {{"attempt", note.ref.attempt.to_string()}, {"reason", end.error().message()}});
    }
    if (restored.running) supervisor_.watch(note.ref, note.process, false);
    adopt(std::move(directory), note);
    event.restored.push_back(std::move(restored));
  }
  tick_at_ms_ = clock_.now_ms();
  apply(std::move(event));
  drain_events();
  return Status::ok();
}

int AgentLoop::run() {
  while (!exit_code_) run_once();
  return *exit_code_;
}

void AgentLoop::run_once() {
  wait();
  for (AgentEvent& event : mailbox_.take()) {
    apply(std::move(event));
    drain_events();
  }
  if (signal_fd_ >= 0) {
    signalfd_siginfo info;
    while (::read(signal_fd_, &info, sizeof info) == sizeof info) {
      apply(DrainRequested{info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM"});
      drain_events();
    }
  }
  for (TrainerExited& event : supervisor_.reap()) {
    apply(std::move(event));
    drain_events();
  }
  const MonotonicMs now = clock_.now_ms();
  if (now >= tick_at_ms_) {
    tick_at_ms_ = now + config_.tick_ms;
    apply(Tick{clock_.wall_ms()});
    drain_events();
  }
}

void AgentLoop::wait() {
  std::vector<pollfd> fds{{mailbox_.fd(), POLLIN, 0}};
  if (signal_fd_ >= 0) fds.push_back({signal_fd_, POLLIN, 0});
  for (const int fd : supervisor_.wait_fds()) fds.push_back({fd, POLLIN, 0});
  std::int64_t limit = std::clamp<std::int64_t>(tick_at_ms_ - clock_.now_ms(), 0, config_.tick_ms);
  if (supervisor_.emptying()) limit = std::min(limit, kEmptyingPollMs);
  ::poll(fds.data(), fds.size(), static_cast<int>(limit));
}

void AgentLoop::apply(AgentEvent event) {
  const Effects effects = step(state_, event, clock_.now_ms());
  for (const AgentEffect& effect : effects) {
    std::visit([this](const auto& value) { run_effect(value); }, effect);
  }
}

void AgentLoop::drain_events() {
  while (!events_.empty()) {
    AgentEvent event = std::move(events_.front());
    events_.pop_front();
    apply(std::move(event));
  }
}

void AgentLoop::run_effect(const StartTrainer& effect) {
  const protocol::TrialSpec& spec = effect.assign.spec;
  const protocol::AttemptRef ref{{spec.trial, spec.attempt}, spec.token};
  const Status started = start_trainer(effect);
  if (started) {
    events_.push_back(TrainerStarted{ref});
  } else {
    events_.push_back(SpawnFailed{ref, started.message()});
  }
}

Status AgentLoop::start_trainer(const StartTrainer& effect) {
  protocol::TrialSpec spec = effect.assign.spec;
  const AttemptId id{spec.trial, spec.attempt};
  TAILOR_ASSIGN_OR_RETURN(AttemptDirectory directory,
                          AttemptDirectory::create(config_.trials_dir, id));
  AttemptNote note{config_.options.worker_name, {id, spec.token}, effect.assign.slots, {}, 0};
  // The note first: whatever happens next, a restarted daemon knows of the attempt.
  const Status noted = directory.write_note(note);
  if (!noted) {
    ::rmdir(directory.path().c_str());  // empty, or it stays
    return noted;
  }
  Attempt& attempt = adopt(std::move(directory), std::move(note));
  spec.resume_from = checkpoint_folders(config_.trials_dir, id);
  TAILOR_RETURN_IF_ERROR(attempt.directory.write_spec(spec));
  TAILOR_RETURN_IF_ERROR(attempt.directory.write_lease(effect.lease_deadline_ms));

  std::string visible;
  for (const std::uint32_t slot : effect.assign.slots) {
    if (slot >= config_.visible_devices.size() || config_.visible_devices[slot].empty()) continue;
    visible += (visible.empty() ? "" : ",") + config_.visible_devices[slot];
  }
  SpawnRequest request;
  request.argv = {config_.trainer, "run", attempt.directory.path()};
  request.environment = environment_with({fmt::format("OMP_NUM_THREADS={}", spec.threads),
                                          fmt::format("CUDA_VISIBLE_DEVICES={}", visible)});
  request.working_dir = config_.trainer_working_dir;
  request.log_path = attempt.directory.file("log");
  TAILOR_ASSIGN_OR_RETURN(HeldProcess process, spawn_held(request));
  attempt.note.process = process.identity();
  TAILOR_RETURN_IF_ERROR(attempt.directory.write_note(attempt.note));
  TAILOR_RETURN_IF_ERROR(process.release().with_context(config_.trainer));
  supervisor_.watch(attempt.note.ref, attempt.note.process, true);
  return Status::ok();
}

void AgentLoop::run_effect(const WriteLease& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) return;
  const Status written = found->second.directory.write_lease(effect.deadline_ms);
  if (!written) {
    log_warn("loop", "cannot renew a lease; the trainer stops when it runs out",
             {{"attempt", effect.ref.attempt.to_string()}, {"reason", written.message()}});
  }
}

void AgentLoop::run_effect(const ReadReports& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) {  // no folder: nothing was ever written
    events_.push_back(ReportsRead{effect.ref, effect.after_sequence, {}, true, 0, {}});
    return;
  }
  events_.push_back(
      found->second.reports.read(effect.ref, effect.after_sequence, effect.count_max));
}

void AgentLoop::run_effect(const ReadLog& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) {
    events_.push_back(LogRead{effect.ref, effect.offset, {}, true, 0});
    return;
  }
  events_.push_back(
      found->second.log.read(effect.ref, effect.offset, effect.bytes_max, effect.after_exit));
}

void AgentLoop::run_effect(const PersistAck& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) return;
  found->second.note.acked_sequence = effect.sequence;
  const Status written = found->second.directory.write_note(found->second.note);
  if (!written) {
    log_warn("loop", "cannot note an acknowledgement; a restart will send some reports again",
             {{"attempt", effect.ref.attempt.to_string()}, {"reason", written.message()}});
  }
}

void AgentLoop::run_effect(const PersistEnd& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) return;
  const Status written = found->second.directory.write_end(effect.report);
  if (!written) {
    log_warn("loop", "cannot store the end of an attempt; a restart may word it differently",
             {{"attempt", effect.ref.attempt.to_string()}, {"reason", written.message()}});
  }
}

void AgentLoop::run_effect(const ForgetAttempt& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) return;
  const Status finished = found->second.directory.finish();
  if (!finished) {
    log_warn("loop", "cannot mark an attempt as done; a restart will ask about it again",
             {{"attempt", effect.ref.attempt.to_string()}, {"reason", finished.message()}});
  }
  attempts_.erase(found);
}

void AgentLoop::run_effect(const LogLine& effect) {
  const auto write = [&](LogFields fields) {
    switch (effect.level) {
      case LogLevel::kDebug:
        return log_debug("agent", effect.message, fields);
      case LogLevel::kInfo:
        return log_info("agent", effect.message, fields);
      case LogLevel::kWarn:
        return log_warn("agent", effect.message, fields);
      case LogLevel::kError:
        return log_error("agent", effect.message, fields);
    }
  };
  if (!effect.attempt.empty() && !effect.detail.empty()) {
    write({{"attempt", effect.attempt}, {"detail", effect.detail}});
  } else if (!effect.attempt.empty()) {
    write({{"attempt", effect.attempt}});
  } else if (!effect.detail.empty()) {
    write({{"detail", effect.detail}});
  } else {
    write({});
  }
}

}  // namespace tailor::agent
