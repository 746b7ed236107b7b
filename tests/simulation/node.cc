#include "tests/simulation/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tailor::simulation {

using protocol::AttemptRef;
using protocol::EndClass;

namespace {
constexpr std::int64_t kTickMs = 500;
constexpr std::int64_t kCheckpointEverySteps = 5;
}  // namespace

Node::Node(Context& context, Ledger& ledger, Network& network, int index)
    : c_(context),
      ledger_(ledger),
      network_(network),
      index_(index),
      who_(fmt::format("N{}", index)) {
  clock_rate_ = 1 + (c_.rng.uniform() * 2 - 1) * c_.faults.clock_drift_max;
}

MonotonicMs Node::boot_clock() const {
  return boot_offset_ +
         static_cast<MonotonicMs>(static_cast<double>(c_.now() - boot_time_) * clock_rate_);
}

// ---- the daemon

void Node::start_daemon() {
  if (daemon_up()) return;
  ++life_;
  daemon_since_ = c_.now();
  agent::AgentOptions options;
  options.worker_name = fmt::format("node-{}", c_.faults.same_name && index_ == 1 ? 0 : index_);
  options.instance = fmt::format("{}-{}", index_, life_);
  options.version = "sim";
  options.host = fmt::format("host-{}", index_);
  int slots = c_.faults.slots;
  if (slots > 1 && c_.faults.slots_lost > 0 && !c_.healed && c_.chance(c_.faults.slots_lost)) {
    c_.count("daemon starts with a slot less");
    --slots;
  }
  for (int i = 0; i < slots; ++i) {
    options.slots.push_back(
        {static_cast<std::uint32_t>(i), protocol::DeviceKind::kCpu, "cpu", 1u << 30, 1});
  }
  options.trainer_lease_ms = 4'000;
  options.offline_limit_ms = c_.faults.offline_limit_ms;
  options.stop_grace_ms = 3'000;
  options.backoff_max_ms = 3'000;
  options.welcome_limit_ms = 6'000;
  options.resend_ms = 5'000;
  options.flush_limit_ms = 3'000;
  options.reports_window = 8;
  options.reports_batch = 4;
  options.log_window_bytes = 64;
  options.log_batch_bytes = 16;
  options.seed = c_.rng.next_u64();
  agent_.emplace(std::move(options));

  agent::Start start;
  start.wall_ms = c_.clock.wall_ms();
  for (const auto& [ref, folder] : disk_) {
    if (folder.forgotten) continue;
    const bool running = std::any_of(trainers_.begin(), trainers_.end(),
                                     [&](const auto& entry) { return entry.second.ref == ref; });
    start.restored.push_back(
        {ref, folder.assign.slots, running, folder.acked, folder.end, folder.assign.gang});
    c_.count(running ? "trainer re-adopted" : "ended attempt found");
  }
  c_.trace(who_, fmt::format("daemon starts, {} attempts restored", start.restored.size()));
  apply(start);
  tick();
}

void Node::tick() {
  if (!daemon_up()) return;
  apply(agent::Tick{c_.clock.wall_ms()});
  c_.after(kTickMs, [this, life = life_] {
    if (life == life_) tick();
  });
}

void Node::apply(const agent::AgentEvent& event) {
  if (!daemon_up()) return;
  const agent::Effects effects = agent::step(*agent_, event, boot_clock());
  c_.count("agent steps");
  if (!effects.empty())
    c_.trace(who_, fmt::format("event {} -> {} effects", event.index(), effects.size()));
  for (const agent::AgentEffect& effect : effects) {
    std::visit([this](const auto& e) { execute(e); }, effect);
    if (!daemon_up()) return;  // it exited
  }
}

void Node::later(std::int64_t delay_ms, agent::AgentEvent event) {
  c_.after(delay_ms, [this, life = life_, event = std::move(event)] {
    if (life == life_) apply(event);
  });
}

void Node::daemon_down() {
  agent_.reset();
  ++life_;
  network_.node_died(index_);
}

void Node::schedule_restart(std::uint64_t delay_bound) {
  c_.after(c_.up_to(static_cast<std::int64_t>(c_.healed ? 100 : delay_bound)),
           [this] { start_daemon(); });
}

void Node::crash_daemon() {
  if (!daemon_up()) return;
  c_.count("daemon crash");
  c_.trace(who_, "daemon crashes");
  daemon_down();
  schedule_restart(static_cast<std::uint64_t>(c_.faults.node_down_ms_max));
}

void Node::crash_node(bool wipe) {
  c_.count(wipe ? "node wiped" : "node crash");
  c_.trace(who_, wipe ? "machine is replaced" : "machine loses power");
  const bool was_up = daemon_up();
  daemon_down();
  ++boot_;
  trainers_.clear();
  boot_time_ = c_.now();
  boot_offset_ = c_.up_to(10'000);
  if (wipe) {
    disk_.clear();
    checkpoints_.clear();
  }
  if (was_up) schedule_restart(static_cast<std::uint64_t>(c_.faults.node_down_ms_max));
}

void Node::drain(const std::string& reason) {
  c_.count("drain");
  apply(agent::DrainRequested{reason});
}

void Node::opened(std::uint64_t life, std::uint64_t session) {
  if (life == life_) apply(agent::SessionOpened{session});
}
void Node::closed(std::uint64_t life, std::uint64_t session, const Status& reason) {
  if (life == life_) apply(agent::SessionClosed{session, reason});
}
void Node::received(std::uint64_t life, std::uint64_t session,
                    protocol::CoordinatorMessage message) {
  if (life == life_) apply(agent::Received{session, std::move(message)});
}

void Node::execute(const agent::OpenSession& effect) {
  network_.open(index_, life_, effect.session);
}
void Node::execute(const agent::CloseSession& effect) {
  network_.close_from_worker(index_, life_, effect.session);
}
void Node::execute(const agent::Send& effect) {
  network_.send_up(index_, life_, effect.session, effect.message);
}

void Node::execute(const agent::StartTrainer& effect) {
  const AttemptRef ref{{effect.assign.spec.trial, effect.assign.spec.attempt},
                       effect.assign.spec.token};
  if (c_.chance(c_.healed ? 0 : c_.faults.spawn_failure)) {
    c_.count("spawn failed");
    return later(c_.up_to(20), agent::SpawnFailed{ref, "no process could be made"});
  }
  if (disk_.contains(ref))
    return c_.fail(fmt::format("{} is started twice", ref.attempt.to_string()));
  Folder& folder = disk_[ref];
  folder.assign = effect.assign;
  folder.lease_deadline_ms = effect.lease_deadline_ms;
  c_.after(c_.up_to(20), [this, ref, life = life_] {
    if (life == life_) spawn(ref);  // else the daemon died with the folder made and no process yet
  });
}

void Node::execute(const agent::UploadCheckpoint& effect) {
  later(c_.up_to(2'000), agent::CheckpointUploaded{effect.ref, effect.checkpoint.step});
}

void Node::execute(const agent::SignalTrainer& effect) {
  for (auto& [pid, trainer] : trainers_) {
    if (trainer.ref != effect.ref) continue;
    if (effect.signal == agent::TrainerSignal::kTerm) {
      trainer.term = true;
    } else {
      return gone(pid, {std::nullopt, 9});
    }
  }
}

void Node::execute(const agent::WriteLease& effect) {
  const auto found = disk_.find(effect.ref);
  if (found != disk_.end()) found->second.lease_deadline_ms = effect.deadline_ms;
}

void Node::execute(const agent::ReadReports& effect) {
  c_.after(c_.up_to(20), [this, effect, life = life_] {
    if (life == life_) read_reports(effect);
  });
}

void Node::read_reports(const agent::ReadReports& request) {
  agent::ReportsRead answer;
  answer.ref = request.ref;
  answer.after_sequence = request.after_sequence;
  answer.at_end = true;
  const auto found = disk_.find(request.ref);
  if (found != disk_.end()) {
    for (const protocol::Report& report : found->second.reports) {
      if (std::holds_alternative<protocol::EndReport>(report.body))
        answer.end_sequence = report.sequence;
      if (report.sequence <= request.after_sequence) continue;
      if (answer.reports.size() < request.count_max) {
        answer.reports.push_back(report);
      } else {
        answer.at_end = false;
      }
    }
  }
  apply(answer);
}

void Node::execute(const agent::ReadLog& effect) {
  c_.after(c_.up_to(20), [this, effect, life = life_] {
    if (life != life_) return;
    agent::LogRead answer{effect.ref, effect.offset, "", true};
    const auto found = disk_.find(effect.ref);
    if (found != disk_.end() && effect.offset < found->second.log.size()) {
      answer.bytes = found->second.log.substr(effect.offset, effect.bytes_max);
      answer.at_end = effect.offset + answer.bytes.size() == found->second.log.size();
    }
    apply(answer);
  });
}

void Node::execute(const agent::PersistAck& effect) {
  const auto found = disk_.find(effect.ref);
  if (found != disk_.end()) found->second.acked = effect.sequence;
}

void Node::execute(const agent::PersistEnd& effect) {
  disk_[effect.ref].end = effect.report;  // also for attempts that never had a process
  ledger_.wrote(effect.ref, effect.report);
  later(c_.up_to(20), agent::EndPersisted{effect.ref, effect.report.sequence});
}

void Node::execute(const agent::ForgetAttempt& effect) {
  const auto found = disk_.find(effect.ref);
  if (found != disk_.end()) found->second.forgotten = true;
}

void Node::execute(const agent::Exit& effect) {
  c_.count("daemon exit");
  c_.trace(who_, fmt::format("daemon exits with {}", effect.code));
  if (!trainers_.empty()) c_.fail(who_ + ": the daemon exits and leaves trainers behind");
  daemon_down();
  schedule_restart(10'000);
}

void Node::execute(const agent::LogLine& effect) {
  // The coordinator knows what is free: it may not order a trainer into a slot that is in full use.
  if (effect.detail.find("its slot is in use") != std::string::npos) {
    c_.fail(fmt::format("{}: {} ({})", who_, effect.message, effect.detail));
  }
}

// ---- trainers

void Node::spawn(const AttemptRef& ref) {
  Folder& folder = disk_.at(ref);
  for (const auto& [pid, other] : trainers_) {
    for (const std::uint32_t slot : folder.assign.slots) {
      if (std::count(other.slots.begin(), other.slots.end(), slot) == 0) continue;
      return c_.fail(fmt::format("{}: slot {} gets {} while {} still runs in it", who_, slot,
                                 ref.attempt.to_string(), other.ref.attempt.to_string()));
    }
  }
  if (folder.assign.gang.first_rank > 0) return spawn_member(ref);
  ledger_.began(ref);
  Trainer trainer;
  trainer.ref = ref;
  trainer.slots = folder.assign.slots;
  trainer.parent = life_;
  trainer.step = checkpoints_[ref.attempt.trial];
  trainer.steps_total =
      8 + static_cast<std::int64_t>(stable_hash(ref.attempt.trial.to_string()) % 20);
  trainer.step = std::min(trainer.step, trainer.steps_total);
  trainer.fate_step = trainer.steps_total;
  if (!c_.healed && c_.chance(c_.faults.trainer_failure)) {
    constexpr Fate kFates[] = {Fate::kNoObjective, Fate::kNanObjective, Fate::kNan,
                               Fate::kOom,         Fate::kUser,         Fate::kData,
                               Fate::kExitCode,    Fate::kExitCode,     Fate::kSignal,
                               Fate::kSignal,      Fate::kHang,         Fate::kHang};
    trainer.fate = kFates[c_.rng.below(std::size(kFates))];
    if (trainer.fate != Fate::kNoObjective && trainer.fate != Fate::kNanObjective) {
      trainer.fate_step = trainer.step + c_.up_to(trainer.steps_total - trainer.step);
    }
  }
  const std::uint64_t pid = next_pid_++;
  trainers_.emplace(pid, trainer);
  c_.count("trainer started");
  if (trainer.step > 0) c_.count("trainer resumed from a checkpoint");
  c_.trace(who_,
           fmt::format("trainer of {} starts at step {}", ref.attempt.to_string(), trainer.step));
  apply(agent::TrainerStarted{ref});
  if (folder.assign.gang.world > folder.assign.gang.ranks) {
    later(c_.up_to(500), agent::RendezvousFound{ref, fmt::format("host-{}:4711", index_)});
  }
  c_.after(c_.up_to(1'000), [this, pid] {
    const auto found = trainers_.find(pid);
    if (found == trainers_.end()) return;
    protocol::StartedReport started;
    started.pid = static_cast<std::int64_t>(pid);
    started.host = fmt::format("host-{}", index_);
    started.resumed_step = found->second.step;
    write(found->second.ref, started);
    train(pid);
  });
}

/// The ranks of a gang that do not speak: they live until they are told to go, or die.
void Node::spawn_member(const AttemptRef& ref) {
  c_.count("gang member started");
  Trainer trainer;
  trainer.ref = ref;
  trainer.slots = disk_.at(ref).assign.slots;
  trainer.parent = life_;
  trainer.silent = true;
  trainer.steps_total = trainer.fate_step = std::numeric_limits<std::int64_t>::max();
  if (!c_.healed && c_.chance(c_.faults.trainer_failure)) {
    trainer.fate = Fate::kSignal;
    trainer.fate_step = c_.up_to(20);
  }
  const std::uint64_t pid = next_pid_++;
  trainers_.emplace(pid, trainer);
  apply(agent::TrainerStarted{ref});
  train(pid);
}

void Node::write(const AttemptRef& ref, decltype(protocol::Report::body) body) {
  Folder& folder = disk_.at(ref);
  protocol::Report report{folder.reports.size() + 1, c_.clock.wall_ms(), std::move(body)};
  ledger_.wrote(ref, report);
  folder.reports.push_back(std::move(report));
  const std::string line = fmt::format("line {}\n", folder.reports.size());
  ledger_.wrote_log(ref, line);
  folder.log += line;
}

double Node::loss_of(const AttemptRef& ref, std::int64_t step) const {
  // The same trial gives the same numbers wherever and however often it runs.
  const double spread =
      static_cast<double>(stable_hash(ref.attempt.trial.to_string()) % 1000) / 1000.0;
  return 2 + spread + 5 / (1.0 + static_cast<double>(step));
}

void Node::save_checkpoint(const Trainer& trainer) {
  std::int64_t& saved = checkpoints_[trainer.ref.attempt.trial];
  if (saved >= trainer.step) return;
  saved = trainer.step;
  write(trainer.ref, protocol::CheckpointReport{
                         trainer.step, fmt::format("checkpoints/{}", trainer.step), "sha", 1});
}

void Node::train(std::uint64_t pid) {
  const auto found = trainers_.find(pid);
  if (found == trainers_.end() || found->second.ending) return;
  Trainer& trainer = found->second;
  if (c_.now() < trainer.hang_until) {  // deaf to signals and leases
    return c_.after(500, [this, pid] { train(pid); });
  }
  if (trainer.term || boot_clock() >= disk_.at(trainer.ref).lease_deadline_ms) {
    if (!trainer.term) {
      c_.count("trainer stopped by its lease");
      if (daemon_up() && c_.now() - daemon_since_ > 2'000) {
        return c_.fail(fmt::format("{}: the lease of {} ran out beside a living daemon", who_,
                                   trainer.ref.attempt.to_string()));
      }
    }
    return stop_gracefully(pid);
  }
  if (trainer.step >= trainer.fate_step) {
    meet_fate(pid);
  } else if (trainer.silent) {
    ++trainer.step;
  } else {
    ++trainer.step;
    write(
        trainer.ref,
        protocol::MetricReport{
            trainer.step, trainer.step * 64, {{"train_loss", loss_of(trainer.ref, trainer.step)}}});
    if (trainer.step % kCheckpointEverySteps == 0) save_checkpoint(trainer);
  }
  c_.after(200 + c_.up_to(1'500), [this, pid] { train(pid); });
}

void Node::stop_gracefully(std::uint64_t pid) {
  Trainer& trainer = trainers_.at(pid);
  if (!trainer.silent) {
    save_checkpoint(trainer);
    say_end(trainer, EndClass::kStopped);
  }
  exit(pid, c_.up_to(1'000), {static_cast<int>(protocol::TrainerExit::kStopped), std::nullopt});
}

void Node::say_end(const Trainer& trainer, EndClass end, std::map<std::string, double> values) {
  write(trainer.ref, protocol::EndReport{end, std::string(protocol::end_class_name(end)),
                                         trainer.step, std::move(values)});
}

void Node::measure(const Trainer& trainer) {
  const protocol::TrialSpec& spec = disk_.at(trainer.ref).assign.spec;
  if (!spec.geometry.enabled) return;
  protocol::ProfileReport profile;
  profile.step = trainer.step;
  profile.tokens = spec.geometry.tokens;
  profile.subsamples = spec.geometry.subsamples;
  profile.rho = spec.geometry.rho;
  profile.seed = spec.seed;
  // A function of the shape: the same network has the same profile wherever it is measured.
  for (std::int32_t l = 0; l < spec.architecture.layers(); ++l) {
    const double width = spec.architecture.widths[static_cast<std::size_t>(l)][0];
    profile.entries.push_back({l, -1, "hyperbolic", "topology", (2.0 - l) * std::sqrt(width), 0.1});
    profile.entries.push_back({l, -1, "raw", "two_nn", 4.0 + l, 0.1});
  }
  const std::uint64_t fate = c_.healed ? 9 : c_.rng.below(10);
  if (fate == 0) {
    profile.entries.clear();
    profile.failure = "all tokens are equal";
  } else if (fate == 1) {
    profile.entries[0].value = std::nan("");
  }
  c_.count(fate == 0 ? "measure failed" : "measured");
  write(trainer.ref, std::move(profile));
}

void Node::meet_fate(std::uint64_t pid) {
  Trainer& trainer = trainers_.at(pid);
  const auto end = [&](EndClass end_class, protocol::TrainerExit code,
                       std::map<std::string, double> values = {}) {
    say_end(trainer, end_class, std::move(values));
    exit(pid, c_.up_to(500), {static_cast<int>(code), std::nullopt});
  };
  using protocol::TrainerExit;
  switch (trainer.fate) {
    case Fate::kComplete:
      save_checkpoint(trainer);
      measure(trainer);
      return end(EndClass::kCompleted, TrainerExit::kCompleted,
                 {{"validation_loss", loss_of(trainer.ref, trainer.step)}});
    case Fate::kNoObjective:
      return end(EndClass::kCompleted, TrainerExit::kCompleted);
    case Fate::kNanObjective:
      return end(EndClass::kCompleted, TrainerExit::kCompleted,
                 {{"validation_loss", std::nan("")}});
    case Fate::kNan:
      return end(EndClass::kNan, TrainerExit::kNan);
    case Fate::kOom:
      return end(EndClass::kOom, TrainerExit::kOom);
    case Fate::kUser:
      return end(EndClass::kUser, TrainerExit::kUsage);
    case Fate::kData:
      return end(EndClass::kData, TrainerExit::kData);
    case Fate::kExitCode:
      return exit(pid, 0, {static_cast<int>(c_.rng.below(10)), std::nullopt});
    case Fate::kSignal:
      return exit(pid, 0, {std::nullopt, 11});
    case Fate::kHang:
      c_.count("trainer hangs");
      trainer.hang_until = c_.now() + c_.up_to(60'000);
      trainer.fate = Fate::kComplete;
      trainer.fate_step = trainer.steps_total;
      return;
  }
}

void Node::exit(std::uint64_t pid, std::int64_t delay_ms, agent::ExitStatus status) {
  trainers_.at(pid).ending = true;
  c_.after(delay_ms, [this, pid, status, boot = boot_] {
    if (boot == boot_) gone(pid, status);
  });
}

void Node::gone(std::uint64_t pid, agent::ExitStatus status) {
  const auto found = trainers_.find(pid);
  if (found == trainers_.end()) return;
  const Trainer trainer = found->second;
  trainers_.erase(found);
  c_.trace(who_, fmt::format("trainer of {} is gone", trainer.ref.attempt.to_string()));
  if (!daemon_up()) return;
  if (trainer.parent != life_) status = {};  // adopted: nobody can wait for its status
  later(c_.up_to(100), agent::TrainerExited{trainer.ref, status});
}

void Node::kill_a_trainer() {
  if (trainers_.empty()) return;
  c_.count("trainer killed");
  auto victim = trainers_.begin();
  std::advance(victim, static_cast<std::ptrdiff_t>(c_.rng.below(trainers_.size())));
  gone(victim->first, {std::nullopt, 9});
}

bool Node::idle() const {
  const bool all_forgotten = std::all_of(disk_.begin(), disk_.end(),
                                         [](const auto& entry) { return entry.second.forgotten; });
  return trainers_.empty() && daemon_up() && agent_->attempts.empty() && all_forgotten;
}

std::string Node::describe() const {
  std::string text = fmt::format("{}: daemon {}, {} trainers", who_, daemon_up() ? "up" : "down",
                                 trainers_.size());
  if (!daemon_up()) return text;
  for (const auto& [ref, attempt] : agent_->attempts) {
    text +=
        fmt::format("; {} phase={} acked={} end={}", ref.attempt.to_string(),
                    static_cast<int>(attempt.phase), attempt.reports.acked(), attempt.end_sequence);
  }
  return text;
}

}  // namespace tailor::simulation
