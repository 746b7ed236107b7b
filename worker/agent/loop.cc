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
#include "base/text.h"
#include "worker/agent/checkpoint_files.h"
#include "worker/agent/process/cgroup.h"

namespace tailor::agent {
namespace {

constexpr std::int64_t kEmptyingPollMs = 10;

}  // namespace

struct AgentLoop::Files {
  Files(AttemptDirectory the_directory, AttemptNote the_note, LogLimits limits)
      : directory(std::move(the_directory)),
        note(std::move(the_note)),
        reports(directory.file("reports.jsonl")),
        log(directory.file("log"), limits) {}

  /// Makes the folder survive a power cut, once: before the coordinator hears of a checkpoint in
  /// it, and soon after its trainer has started. A trial of a second needs no fsync.
  void sync() {
    if (synced || note.process.pid == 0) return;
    synced = true;
    const Status done = directory.sync();
    if (done) return;
    log_warn("loop", "a new folder may not survive a power cut",
             {{"attempt", note.ref.attempt.to_string()}, {"reason", done.message()}});
  }

  AttemptDirectory directory;
  AttemptNote note;
  ReportTailer reports;
  LogTailer log;
  bool synced = false;
};

AgentLoop::AgentLoop(LoopConfig config, const Clock& clock, Link& link, Mailbox& mailbox,
                     int signal_fd)
    : config_(std::move(config)),
      clock_(clock),
      link_(link),
      mailbox_(mailbox),
      signal_fd_(signal_fd),
      state_(config_.options),
      supervisor_(clock, config_.trials_dir + ":" + config_.options.worker_name),
      deliveries_(std::make_shared<Deliveries>()),
      uploader_(config_.checkpoints, config_.upload_retry_ms,
                [this](const protocol::AttemptRef& ref, std::int64_t step) {
                  mailbox_.post(CheckpointUploaded{ref, step});
                }) {}

AgentLoop::~AgentLoop() {
  for (auto& [ref, attempt] : attempts_) *attempt.cancelled = true;
}

AgentLoop::Attempt& AgentLoop::adopt(std::shared_ptr<Files> files) {
  Attempt attempt;
  attempt.seeks_rendezvous =
      files->note.gang.first_rank == 0 && files->note.gang.world > files->note.gang.ranks;
  attempt.thread = std::make_unique<FileThread>();
  const protocol::AttemptRef ref = files->note.ref;
  attempt.files = std::move(files);
  return attempts_.insert_or_assign(ref, std::move(attempt)).first->second;
}

void AgentLoop::on_files(const protocol::AttemptRef& ref, Attempt& attempt, std::string name,
                         std::function<std::optional<AgentEvent>(Files&)> job, bool patient) {
  // Nothing here may refer to the loop but inside of the delivery, which the loop itself runs.
  auto work = [this, ref, name, files = attempt.files, deliveries = deliveries_,
               before = config_.before_files, job = std::move(job)] {
    if (before) before(ref, name);
    std::optional<AgentEvent> event = job(*files);
    if (!event) return;
    deliveries->post([this, event = *std::move(event)] { events_.push_back(event); });
  };
  attempt.thread->post(std::move(name), std::move(work), patient);
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
    AttemptDirectory directory(
        AttemptDirectory::path_of(config_.trials_dir, note.ref, note.gang.first_rank));
    RestoredAttempt restored{note.ref, note.slots, false, note.acked_sequence, {}};
    restored.gang = note.gang;
    restored.limits = note.limits;
    if (Result<std::optional<protocol::Report>> end = directory.read_end()) {
      restored.end = *std::move(end);
    } else {
      log_warn("loop", "cannot read the stored end; it will be written again",
               {{"attempt", note.ref.attempt.to_string()}, {"reason", end.error().message()}});
    }
    // One whose trainer is gone is watched too: what it left behind may not be.
    restored.running = note.process.pid > 0 && note.process.boot_id == boot_id();
    if (restored.running) {
      restored.started_ms = note.started_ms;
      supervisor_.watch(note.ref, note.process, false, note.cgroup);
    }
    adopt(std::make_shared<Files>(std::move(directory), note, config_.log_limits));
    event.restored.push_back(std::move(restored));
  }
  for (const TrainerExited& gone : supervisor_.reap()) {
    for (RestoredAttempt& restored : event.restored) {
      if (restored.ref == gone.ref) restored.running = false;
    }
  }
  for (const protocol::Slot& slot : config_.options.slots) {
    if (!config_.memory_in_use) break;
    const bool taken = std::any_of(
        event.restored.begin(), event.restored.end(), [&](const RestoredAttempt& restored) {
          return restored.running &&
                 std::count(restored.slots.begin(), restored.slots.end(), slot.index) > 0;
        });
    idle_memory_[slot.index] = taken ? 0 : config_.memory_in_use(slot.index).value_or(0);
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
    if (auto* health = std::get_if<NodeHealth>(&event)) {
      for (const auto& [slot, why] : occupied_) {
        health->trouble += (health->trouble.empty() ? "" : "; ") + why;
        await_memory({slot}, 0, {});  // whether it still is, for the next time
      }
    }
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
  for (const std::function<void()>& delivery : deliveries_->take()) {
    delivery();
    drain_events();
  }
  for (TrainerExited& event : supervisor_.reap()) {
    exited(std::move(event));
    drain_events();
  }
  const MonotonicMs now = clock_.now_ms();
  if (now >= tick_at_ms_) {
    tick_at_ms_ = now + config_.tick_ms;
    look_after_files();
    apply(Tick{clock_.wall_ms()});
    drain_events();
  }
}

void AgentLoop::wait() {
  std::vector<pollfd> fds{{mailbox_.fd(), POLLIN, 0}, {deliveries_->fd(), POLLIN, 0}};
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

namespace {

/// Contexts of other programs come and go.
constexpr std::uint64_t kMemorySlack = 1ull << 30;
constexpr int kMemoryPollMs = 50;

}  // namespace

void AgentLoop::exited(TrainerExited event) {
  const auto found = state_.attempts.find(event.ref);
  std::vector<std::uint32_t> slots;
  if (config_.memory_in_use && found != state_.attempts.end()) {
    for (const protocol::Slot& slot : config_.options.slots) {
      const auto& held = found->second.slots;
      const bool ours = std::find(held.begin(), held.end(), slot.index) != held.end();
      if (ours && slot.kind == protocol::DeviceKind::kGpu) slots.push_back(slot.index);
    }
  }
  if (slots.empty()) return apply(std::move(event));
  await_memory(std::move(slots), config_.memory_limit_ms,
               [this, event] { events_.push_back(event); });
}

void AgentLoop::await_memory(std::vector<std::uint32_t> slots, std::int64_t limit_ms,
                             std::function<void()> then) {
  auto thread = std::make_unique<FileThread>();
  thread->post("waiting for GPU memory", [this, slots, limit_ms, in_use = config_.memory_in_use,
                                          idle = idle_memory_, deliveries = deliveries_,
                                          then = std::move(then)] {
    const SystemClock clock;
    const MonotonicMs until = clock.now_ms() + limit_ms;
    std::map<std::uint32_t, std::string> occupied;
    for (;;) {
      occupied.clear();
      for (const std::uint32_t slot : slots) {
        const std::uint64_t bytes = in_use(slot).value_or(0);
        if (bytes <= idle.at(slot) + kMemorySlack) continue;
        occupied[slot] = fmt::format(
            "the GPU of slot {} has {} MiB in use although its trial has ended", slot, bytes >> 20);
      }
      if (occupied.empty() || clock.now_ms() >= until) break;
      ::poll(nullptr, 0, kMemoryPollMs);
    }
    deliveries->post([this, slots, occupied, then] {
      for (const std::uint32_t slot : slots) occupied_.erase(slot);
      occupied_.insert(occupied.begin(), occupied.end());
      if (then) then();
    });
  });
  leaving_.push_back(std::move(thread));
}

/// Tells of threads that hang, looks for what trainers have to say outside of their reports, and
/// lets threads go that have nothing left to do.
void AgentLoop::look_after_files() {
  const SystemClock clock;  // FileThread's
  for (auto& [ref, attempt] : attempts_) {
    const std::optional<FileThread::Running> running = attempt.thread->running();
    std::string trouble;
    if (running && clock.now_ms() - running->since_ms >= config_.files_limit_ms) {
      trouble = fmt::format("{} has not ended for {} s or more", running->name,
                            config_.files_limit_ms / 1000);
    }
    if (trouble != attempt.trouble) {
      attempt.trouble = trouble;
      events_.push_back(FilesAnswer{ref, std::move(trouble)});
    }
    if (!attempt.seeks_rendezvous || attempt.seeking || !attempt.trouble.empty()) continue;
    attempt.seeking = true;
    on_files(
        ref, attempt, "looking for the rendezvous",
        [this, ref = ref, deliveries = deliveries_](Files& files) -> std::optional<AgentEvent> {
          const Result<std::string> text = read_file(files.directory.file("rendezvous"), 4096);
          const bool found = text && text->ends_with('\n');
          deliveries->post([this, ref, found] {
            const auto at = attempts_.find(ref);
            if (at == attempts_.end()) return;
            at->second.seeking = false;
            if (found) at->second.seeks_rendezvous = false;
          });
          if (!found) return std::nullopt;
          return RendezvousFound{ref, std::string(trim(*text))};
        });
  }
  std::erase_if(leaving_, [](const auto& thread) { return thread->idle(); });
  drain_events();
}

SpawnRequest AgentLoop::spawn_request(const StartTrainer& effect,
                                      const std::string& directory) const {
  const protocol::TrialSpec& spec = effect.assign.spec;
  const protocol::Gang& gang = effect.assign.gang;
  SpawnRequest request;
  request.argv = {config_.trainer, "run", directory};
  const auto add = [&](const char* option, std::string value) {
    request.argv.emplace_back(option);
    request.argv.push_back(std::move(value));
  };
  if (gang.world > 1) add("--ranks", std::to_string(gang.world));
  if (gang.world > gang.ranks) {
    const std::string& own =
        config_.options.address.empty() ? config_.options.host : config_.options.address;
    add("--rank", std::to_string(gang.first_rank));
    add("--local-ranks", std::to_string(gang.ranks));
    add("--rendezvous", effect.rendezvous.empty() ? own + ":0" : effect.rendezvous);
  }
  std::string visible;
  for (const std::uint32_t slot : effect.assign.slots) {
    if (slot >= config_.visible_devices.size() || config_.visible_devices[slot].empty()) continue;
    visible += (visible.empty() ? "" : ",") + config_.visible_devices[slot];
  }
  request.environment =
      environment_with({fmt::format("OMP_NUM_THREADS={}", spec.threads),
                        fmt::format("CUDA_VISIBLE_DEVICES={}", visible),
                        supervisor_.mark({{spec.trial, spec.attempt}, spec.token})});
  request.working_dir = config_.trainer_working_dir;
  request.log_path = directory + "/log";
  return request;
}

namespace {

/// Everything up to a running trainer. Nothing waits for the disk: until `sync`, nothing of the
/// attempt leaves this worker. What was made is taken back when it fails.
Status start_in(const AttemptDirectory& directory, AttemptNote& note,
                const protocol::TrialSpec& spec, MonotonicMs lease_deadline_ms,
                const SpawnRequest& request, const std::string& cgroup_parent) {
  TAILOR_RETURN_IF_ERROR(directory.write_spec(spec));
  TAILOR_RETURN_IF_ERROR(directory.write_lease(lease_deadline_ms));
  TAILOR_ASSIGN_OR_RETURN(HeldProcess process, spawn_held(request));
  note.process = process.identity();
  if (!cgroup_parent.empty()) {
    // With the process's number: other workers of the machine, of other coordinators, have attempts
    // of the same name, and what is killed is the whole group.
    const std::string name = fmt::format("tailor-{}-{:x}-{}", note.ref.attempt.to_string(),
                                         note.ref.token, note.process.pid);
    const Result<Cgroup> cgroup = Cgroup::create(cgroup_parent, name);
    if (cgroup && cgroup->add(note.process.pid)) note.cgroup = cgroup->path();
    if (cgroup && note.cgroup.empty()) cgroup->remove();
  }
  // Noted before it is let go: a daemon that dies now leaves no trainer that nobody knows.
  TAILOR_RETURN_IF_ERROR(directory.write_note(note));
  return process.release().with_context(request.argv.front());
}

/// What lies here of a trial's checkpoints. A folder counts only when it was read and is whole: a
/// damaged one must not hide the sound one that the coordinator keeps.
class CheckpointsHere {
 public:
  CheckpointsHere(const std::string& trials_dir, const protocol::AttemptRef& ref) : ref_(ref) {
    for (const std::string& checkpoints : checkpoint_folders(trials_dir, ref)) {
      const std::filesystem::path attempt = std::filesystem::path(checkpoints).parent_path();
      // In a folder of another generation there may be another trial with this one's number.
      const bool ours = folder_generation(attempt.filename().string()) == generation_of(ref.token);
      for (CheckpointFolder& one : checkpoints_in(checkpoints)) {
        all_.push_back({std::move(one.path), one.step, ours, {}});
      }
    }
  }
  /// True when the trainer finds something here that is no older than `stored`, or that itself.
  bool suffice(const protocol::StoredCheckpoint& stored) {
    return std::any_of(all_.begin(), all_.end(), [&](One& one) {
      if (one.step < stored.step || (!one.ours && !is(one, stored))) return false;
      if (!one.whole) one.whole = look(one);
      return *one.whole;
    });
  }

 private:
  struct One {
    std::string folder;
    std::int64_t step = 0;
    bool ours = false;
    std::optional<bool> whole;
  };
  static bool is(const One& one, const protocol::StoredCheckpoint& stored) {
    return one.step == stored.step && checkpoint_files(one.folder, stored.sha256).has_value();
  }
  bool look(const One& one) const {
    const Status verified = verify_checkpoint_files(one.folder);
    if (verified) return true;
    log_warn("loop", "a checkpoint here is damaged",
             {{"attempt", ref_.attempt.to_string()}, {"reason", verified.message()}});
    return false;
  }

  const protocol::AttemptRef ref_;
  std::vector<One> all_;
};

constexpr std::int64_t kFetchPatienceMs = 10 * 60'000;
constexpr std::int64_t kFetchPauseMsMax = 10'000;

/// Fetches again what fails only because the coordinator is away or busy (started anew, say): a
/// trial's progress is worth a wait, of `kFetchPatienceMs` since the first failure.
Status fetch_patiently(CheckpointStore& store, const protocol::AttemptRef& ref,
                       const protocol::StoredCheckpoint& stored, const std::string& folder,
                       const CheckpointStore::GiveUp& give_up) {
  const SystemClock clock;
  std::optional<MonotonicMs> until_ms;
  for (std::int64_t pause_ms = 100;; pause_ms = std::min(2 * pause_ms, kFetchPauseMsMax)) {
    const Status fetched = store.fetch(ref, stored, folder, give_up);
    const Code code = fetched.code();
    const bool may_pass = code == Code::kUnavailable || code == Code::kDeadlineExceeded ||
                          code == Code::kResourceExhausted;
    if (!may_pass || give_up()) return fetched;
    if (!until_ms) {
      until_ms = clock.now_ms() + kFetchPatienceMs;
      log_warn("loop", "a stored checkpoint cannot be fetched yet: tried again",
               {{"attempt", ref.attempt.to_string()}, {"reason", fetched.message()}});
    }
    if (clock.now_ms() + pause_ms > *until_ms) return fetched;
    const MonotonicMs again_ms = clock.now_ms() + pause_ms;
    while (clock.now_ms() < again_ms && !give_up()) ::poll(nullptr, 0, 50);
  }
}

/// Fetches the newest stored checkpoint that is newer than what lies here, so that the trainer
/// finds it beside the others. What cannot be fetched is said; the trainer then goes on from what
/// there is.
void fetch_checkpoint(CheckpointStore& store, const std::string& trials_dir,
                      const protocol::AttemptRef& ref,
                      const std::vector<protocol::StoredCheckpoint>& stored,
                      const CheckpointStore::GiveUp& give_up) {
  CheckpointsHere here(trials_dir, ref);
  for (const protocol::StoredCheckpoint& one : stored) {
    if (one.attempt >= ref.attempt.number || here.suffice(one)) continue;
    const protocol::AttemptRef owner{{ref.attempt.trial, one.attempt}, ref.token};
    const std::string folder =
        fmt::format("{}/checkpoints/{:09}", AttemptDirectory::path_of(trials_dir, owner), one.step);
    Status fetched = put_aside(folder);  // what lies there is damaged
    if (fetched) fetched = fetch_patiently(store, ref, one, folder, give_up);
    const std::string step = std::to_string(one.step);
    if (fetched) {
      log_info("loop", "fetched a checkpoint from the coordinator",
               {{"attempt", ref.attempt.to_string()}, {"step", step}});
      return;
    }
    if (give_up()) return;
    log_warn("loop", "a stored checkpoint cannot be fetched: the trial goes on from an older one",
             {{"attempt", ref.attempt.to_string()}, {"step", step}, {"reason", fetched.message()}});
  }
}

}  // namespace

void AgentLoop::run_effect(const CancelStart& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found != attempts_.end()) *found->second.cancelled = true;
}

void AgentLoop::run_effect(const StartTrainer& effect) {
  const protocol::TrialSpec& assigned = effect.assign.spec;
  const protocol::AttemptRef ref{{assigned.trial, assigned.attempt}, assigned.token};
  const std::uint32_t first_rank = effect.assign.gang.first_rank;
  AttemptNote note;
  note.worker_name = config_.options.worker_name;
  note.ref = ref;
  note.slots = effect.assign.slots;
  note.gang = effect.assign.gang;
  note.limits = {effect.assign.progress_limit_ms, effect.assign.time_limit_ms};
  note.started_ms = clock_.now_ms();
  const std::string path = AttemptDirectory::path_of(config_.trials_dir, ref, first_rank);
  Attempt& attempt =
      adopt(std::make_shared<Files>(AttemptDirectory(path), std::move(note), config_.log_limits));
  if (config_.checkpoints && first_rank == 0 && !effect.assign.stored.empty()) {
    const auto fetch = [store = config_.checkpoints, trials = config_.trials_dir, ref,
                        stored = effect.assign.stored,
                        cancelled = attempt.cancelled](Files&) -> std::optional<AgentEvent> {
      fetch_checkpoint(*store, trials, ref, stored, [&] { return cancelled->load(); });
      return std::nullopt;
    };
    on_files(ref, attempt, "fetching a checkpoint", fetch, /*patient=*/true);
  }
  on_files(ref, attempt, "starting the trainer",
           [this, ref, first_rank, trials = config_.trials_dir, spec = assigned,
            cancelled = attempt.cancelled, lease_ms = effect.lease_deadline_ms - clock_.now_ms(),
            request = spawn_request(effect, path), cgroups = config_.cgroup_parent,
            deliveries = deliveries_](Files& files) mutable -> std::optional<AgentEvent> {
             const SystemClock clock;  // it may have taken long to come here
             if (*cancelled) return SpawnFailed{ref, "it is not wanted any more"};
             const Result<AttemptDirectory> made =
                 AttemptDirectory::create(trials, ref, first_rank);
             if (!made) return SpawnFailed{ref, made.error().message()};
             spec.resume_from = checkpoint_folders(trials, ref);
             const Status started = start_in(files.directory, files.note, spec,
                                             clock.now_ms() + lease_ms, request, cgroups);
             if (!started) {
               files.directory.discard();
               files.note.process = {};
               if (!files.note.cgroup.empty()) Cgroup(files.note.cgroup).remove();
               return SpawnFailed{ref, started.message()};
             }
             // Watched before anything can be told of it.
             deliveries->post([this, ref, process = files.note.process, group = files.note.cgroup] {
               supervisor_.watch(ref, process, true, group);
               events_.push_back(TrainerStarted{ref});
             });
             return std::nullopt;
           });
}

void AgentLoop::run_effect(const WriteLease& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) return;
  on_files(effect.ref, found->second, "writing the lease",
           [effect](Files& files) -> std::optional<AgentEvent> {
             files.sync();
             const Status written = files.directory.write_lease(effect.deadline_ms);
             if (!written) {
               log_warn(
                   "loop", "cannot renew a lease; the trainer stops when it runs out",
                   {{"attempt", effect.ref.attempt.to_string()}, {"reason", written.message()}});
             }
             return std::nullopt;
           });
}

void AgentLoop::run_effect(const ReadReports& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) {  // no folder: nothing was ever written
    events_.push_back(ReportsRead{effect.ref, effect.after_sequence, {}, true, 0, {}});
    return;
  }
  on_files(effect.ref, found->second, "reading the reports", [effect](Files& files) {
    ReportsRead read = files.reports.read(effect.ref, effect.after_sequence, effect.count_max);
    const bool saved =
        std::any_of(read.reports.begin(), read.reports.end(), [](const auto& report) {
          return std::holds_alternative<protocol::CheckpointReport>(report.body);
        });
    if (saved) files.sync();
    return std::optional<AgentEvent>(std::move(read));
  });
}

void AgentLoop::run_effect(const ReadLog& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) {
    events_.push_back(LogRead{effect.ref, effect.offset, {}, true, 0});
    return;
  }
  on_files(effect.ref, found->second, "reading the log", [effect](Files& files) {
    return std::optional<AgentEvent>(
        files.log.read(effect.ref, effect.offset, effect.bytes_max, effect.after_exit));
  });
}

void AgentLoop::run_effect(const PersistAck& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) return;
  on_files(effect.ref, found->second, "noting an acknowledgement",
           [effect](Files& files) -> std::optional<AgentEvent> {
             files.sync();
             files.note.acked_sequence = effect.sequence;
             const Status written = files.directory.write_note(files.note);
             if (!written) {
               log_warn(
                   "loop", "cannot note an acknowledgement; a restart will send some reports again",
                   {{"attempt", effect.ref.attempt.to_string()}, {"reason", written.message()}});
             }
             return std::nullopt;
           });
}

void AgentLoop::run_effect(const PersistEnd& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) {  // it never had a folder
    events_.push_back(EndPersisted{effect.ref, effect.report.sequence});
    return;
  }
  on_files(effect.ref, found->second, "storing the end",
           [effect](Files& files) -> std::optional<AgentEvent> {
             const Status written = files.directory.write_end(effect.report);
             if (!written) {
               log_warn(
                   "loop", "cannot store the end of an attempt; a restart may word it differently",
                   {{"attempt", effect.ref.attempt.to_string()}, {"reason", written.message()}});
             }
             return EndPersisted{effect.ref, effect.report.sequence};
           });
}

void AgentLoop::run_effect(const ForgetAttempt& effect) {
  const auto found = attempts_.find(effect.ref);
  if (found == attempts_.end()) return;
  on_files(effect.ref, found->second, "marking the attempt as done",
           [effect](Files& files) -> std::optional<AgentEvent> {
             if (files.note.process.pid == 0) return std::nullopt;  // it was never started
             files.note.acked_sequence = effect.acked_sequence;
             static_cast<void>(files.directory.write_note(files.note));  // full disk: as last noted
             const Status finished = files.directory.finish();
             if (!finished) {
               log_warn(
                   "loop", "cannot mark an attempt as done; a restart will ask about it again",
                   {{"attempt", effect.ref.attempt.to_string()}, {"reason", finished.message()}});
             }
             return std::nullopt;
           });
  leaving_.push_back(std::move(found->second.thread));
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
