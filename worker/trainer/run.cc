#include "worker/trainer/run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/logging.h"
#include "base/text.h"
#include "model/train/ranks/group.h"
#include "model/train/trial.h"
#include "protocol/convert.h"
#include "worker/trainer/carry.h"
#include "worker/trainer/changes.h"
#include "worker/trainer/device.h"
#include "worker/trainer/local_ranks.h"
#include "worker/trainer/nccl.h"
#include "worker/trainer/progress.h"
#include "worker/trainer/trial_dir.h"

namespace tailor::trainer {
namespace {

using protocol::EndClass;
using protocol::EndReport;
using protocol::TrainerExit;
using train::ranks::Group;

std::atomic<int> g_signal = 0;  // the last SIGTERM or SIGINT; lock-free, set by the handler

extern "C" void on_signal(int number) { g_signal = number; }

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  // A closed log pipe must not end the trial.
  std::signal(SIGPIPE, SIG_IGN);
}

std::optional<std::string> asked_to_stop() {
  const int number = g_signal;
  if (number == 0) return std::nullopt;
  return number == SIGTERM ? "SIGTERM" : "interrupted";
}

// True when somebody watches stderr, and wants to be told.
bool shows_progress(const std::string& log_level) {
  const char* terminal = std::getenv("TERM");
  return (log_level == "info" || log_level == "debug") && ::isatty(STDERR_FILENO) == 1 &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

// Rank 0: writes reports to the directory and listens to signals and the lease.
class DirectoryObserver final : public train::TrialObserver {
 public:
  DirectoryObserver(ReportLog& log, const std::string& directory, const Clock& clock,
                    bool shows_progress)
      : log_(log),
        directory_(directory),
        clock_(clock),
        shows_progress_(shows_progress),
        lease_(directory, clock) {}
  ~DirectoryObserver() override {
    if (progress_) set_status_line("");
  }

  // Before run_trial.
  void set_spec(const protocol::TrialSpec& spec) {
    spec_ = spec;
    if (shows_progress_) progress_.emplace(clock_, spec.train.batch_tokens);
  }

  Status report(train::ProgressReport progress) override {
    if (const auto* started = std::get_if<protocol::StartedReport>(&progress)) {
      TAILOR_RETURN_IF_ERROR(write_trained(directory_, spec_));
      TAILOR_RETURN_IF_ERROR(carry_over(*started));
      if (progress_) progress_->started(*started);
    } else if (const auto* metric = std::get_if<protocol::MetricReport>(&progress)) {
      if (progress_) progress_->metric(*metric);
    }
    protocol::Report report;
    std::visit([&](auto& body) { report.body = std::move(body); }, progress);
    const bool durable = !std::holds_alternative<protocol::MetricReport>(report.body);
    return log_.append(std::move(report), durable);
  }

  void before_step(std::int64_t step, net::Decoder&) override {
    if (progress_) progress_->step(step);
  }

  // What the attempt that is gone on from reported to nobody.
  Status carry_over(const protocol::StartedReport& started) {
    auto carried = reports_to_carry(directory_, started.resumed_from, started.resumed_step);
    if (!carried) {
      log_warn("trainer", "reports of the earlier attempt cannot be read; its curve may have a gap",
               {{"reason", carried.error().message()}});
      return Status::ok();
    }
    for (protocol::Report& report : *carried) {
      TAILOR_RETURN_IF_ERROR(log_.append(std::move(report), /*durable=*/false));
    }
    return Status::ok();
  }

  std::optional<std::string> stop_reason() override {
    if (progress_) {
      if (const auto line = progress_->line()) set_status_line(*line);
    }
    if (auto reason = asked_to_stop()) return reason;
    return lease_.expired();
  }

 private:
  ReportLog& log_;
  const std::string directory_;
  const Clock& clock_;
  const bool shows_progress_;
  Lease lease_;
  protocol::TrialSpec spec_;
  std::optional<Progress> progress_;
};

// Other ranks: rank 0 reports. The first rank of each machine looks at the lease there, so that no
// machine trains on for a worker that is gone.
class RankObserver final : public train::TrialObserver {
 public:
  RankObserver(const std::string& directory, const Clock& clock, bool leads) {
    if (leads) lease_.emplace(directory, clock);
  }
  Status report(train::ProgressReport) override { return Status::ok(); }
  std::optional<std::string> stop_reason() override {
    if (auto reason = asked_to_stop()) return reason;
    return lease_ ? lease_->expired() : std::nullopt;
  }

 private:
  std::optional<Lease> lease_;
};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

EndReport end_of(EndClass end, std::string message) {
  EndReport report;
  report.end = end;
  report.message = std::move(message);
  return report;
}

// What the standard library or LibTorch threw, as an end.
EndReport end_of_exception() {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& failure) {
    return end_of(EndClass::kOom, failure.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return end_of(EndClass::kOom, "out of memory; use a smaller train.micro_batch_tokens");
  } catch (const c10::Error& failure) {
    const std::string what = failure.what_without_backtrace();
    // LibTorch's CPU allocator throws a plain Error.
    const bool memory = what.find("can't allocate memory") != std::string::npos ||
                        what.find("not enough memory") != std::string::npos;
    return end_of(memory ? EndClass::kOom : EndClass::kInfrastructure, what);
  } catch (const std::exception& failure) {
    return end_of(EndClass::kInfrastructure, failure.what());
  }
}

// The same on every rank that may work together: the spec, but for what differs by machine.
std::string common_task(protocol::TrialSpec spec) {
  spec.device.clear();
  spec.threads = 0;
  spec.data.train.clear();  // paths; the content is compared when it is open
  spec.data.validation.clear();
  spec.resume_from.clear();
  return fmt::format("{} attempt {}, spec {}, version {}", spec.trial.to_string(), spec.attempt,
                     sha256_hex(protocol::to_json(spec)).substr(0, 16), TAILOR_VERSION);
}

// "cuda:N" moved on by the rank's number on its machine.
std::string device_of(const std::string& device, int local_rank) {
  const std::optional<int> index = cuda_index(device);
  return index ? fmt::format("cuda:{}", *index + local_rank) : device;
}

// One process's part of a trial. Built once, used once.
class Run {
 public:
  Run(RunOptions options, std::string directory)
      : options_(std::move(options)), directory_(std::move(directory)) {}

  int to_end();

 private:
  bool is_first() const { return options_.rank <= 0; }
  // Whether an earlier run of this directory leaves anything to do; what it was, for run_trial.
  bool complete_already(const ReportLog& log, const protocol::TrialSpec& spec);
  EndReport trial(const protocol::TrialSpec& given, train::TrialObserver& observer);
  EndReport trial_in_group(const protocol::TrialSpec& spec, const OpenDevice& device, Group& group,
                           train::TrialObserver& observer);
  Result<std::unique_ptr<Group>> meet(const protocol::TrialSpec& spec, const OpenDevice& device);
  EndReport end_of_group(const train::ranks::GroupEnd& end);

  RunOptions options_;
  const std::string directory_;
  const SystemClock clock_;
  LocalRanks local_;
  std::optional<train::EarlierRun> earlier_;
  bool lost_rank_ = false;
};

Result<std::unique_ptr<Group>> Run::meet(const protocol::TrialSpec& spec,
                                         const OpenDevice& device) {
  if (options_.ranks == 1) return std::make_unique<Group>();
  train::ranks::GroupOptions group;
  group.rank = is_first() ? 0 : options_.rank;
  group.size = options_.ranks;
  group.group = common_task(spec);
  group.device = device.device;
  if (!device.device.is_cpu()) {
    leave_ends_to_the_watch();
    group.make_backend = nccl_backend();
  }
  group.lost_after_ms = static_cast<std::int64_t>(options_.lost_after_s * 1000);
  const bool alone = options_.rank < 0;  // every rank is here
  TAILOR_ASSIGN_OR_RETURN(
      group.rendezvous, train::ranks::parse_endpoint(alone ? "127.0.0.1:0" : options_.rendezvous));
  if (is_first()) {
    TAILOR_ASSIGN_OR_RETURN(group.listener, train::ranks::listen_on(group.rendezvous));
    TAILOR_ASSIGN_OR_RETURN(const auto bound, train::ranks::local_endpoint(group.listener));
    group.rendezvous.port = bound.port;
    log_info("trainer", "waiting for the other ranks",
             {{"ranks", std::to_string(group.size)},
              {"rendezvous", train::ranks::to_string(group.rendezvous)}});
    if (!alone) {
      TAILOR_RETURN_IF_ERROR(write_file_atomic(directory_ + "/rendezvous",
                                               train::ranks::to_string(group.rendezvous) + "\n",
                                               /*durable=*/false));
    }
  }
  const int here = alone ? options_.ranks : options_.local_ranks;
  if (here > 1) {
    TAILOR_ASSIGN_OR_RETURN(
        local_, LocalRanks::start(
                    {"run", directory_, "--ranks", std::to_string(options_.ranks), "--rendezvous",
                     train::ranks::to_string(group.rendezvous), "--lost-after",
                     fmt::format("{}", options_.lost_after_s), "--log-level", options_.log_level},
                    group.rank, here));
  }
  group.give_up = [this]() -> std::optional<std::string> {
    if (auto reason = asked_to_stop()) return reason;
    auto ended = local_.first_ended();
    if (ended) return *ended + " before the ranks had met; its reason is in the log";
    return std::nullopt;
  };
  return Group::join(std::move(group), clock_);
}

// The end of the group, with what is known of a rank that this process started.
EndReport Run::end_of_group(const train::ranks::GroupEnd& end) {
  constexpr int kFateMs = 2'000;
  lost_rank_ = end.lost;
  EndReport report = end_of(end.end, end.message);
  if (!end.lost) return report;
  if (end.end == EndClass::kInfrastructure) {
    if (const auto fate = local_.fate(end.rank, kFateMs)) report.message += " (it " + *fate + ")";
  } else {
    local_.kill(end.rank);  // silent, or hanging
  }
  report.message += "; a new attempt resumes from the last checkpoint";
  return report;
}

// Optimiser steps of a trial; 0 when its batch makes no sense.
std::int64_t steps_of(const protocol::TrainSpec& train) {
  return train.batch_tokens > 0 ? (train.tokens + train.batch_tokens - 1) / train.batch_tokens : 0;
}

bool Run::complete_already(const ReportLog& log, const protocol::TrialSpec& spec) {
  if (log.last_sequence() == 0) return false;
  const bool completed = log.earlier_end() == EndClass::kCompleted;
  earlier_ = train::EarlierRun{std::nullopt, completed, ""};
  auto trained = read_trained(directory_);
  if (!trained)
    log_warn("trainer", "what ran here is not known", {{"reason", trained.error().message()}});
  if (!trained || !*trained) {
    // An earlier version did not write it: the checkpoints' identity says whether, not what.
    if (!completed) return false;
    return train::newest_is_of(directory_ + "/checkpoints", spec, log.earlier_data_hash());
  }
  const std::vector<SpecChange> changes = changes_between(**trained, spec);
  earlier_->spec = **trained;
  earlier_->changes = to_text(changes);
  if (!changes.empty()) {
    log_info("trainer", "spec.json was changed since the last run",
             {{"changes", earlier_->changes}});
  }
  const bool same_steps = steps_of((*trained)->train) == steps_of(spec.train);
  return completed && std::all_of(changes.begin(), changes.end(), [&](const SpecChange& change) {
           return change.decides == Decides::kNothing ||
                  (change.field == "train.tokens" && same_steps);
         });
}

EndReport Run::trial(const protocol::TrialSpec& given, train::TrialObserver& observer) {
  std::optional<protocol::TrialSpec> spec = given;
  try {
    spec->device = device_of(spec->device, std::max(0, options_.local_rank));
    at::set_num_threads(std::max(1, spec->threads));  // the spec is checked later
    // Denormal numbers (old moments of rare tokens) cost a hundred times their worth.
    at::globalContext().setFlushDenormal(true);
    const auto device = open_device(spec->device);
    if (!device) {
      const bool bad_name = device.error().code() == Code::kInvalidArgument;
      return end_of(bad_name ? EndClass::kUser : EndClass::kInfrastructure,
                    device.error().message());
    }
    const auto group = meet(*spec, *device);
    if (!group) {
      if (g_signal != 0) return end_of(EndClass::kStopped, group.error().message());
      return end_of(group.error().code() == Code::kInvalidArgument ? EndClass::kUser
                                                                   : EndClass::kInfrastructure,
                    group.error().message());
    }
    return trial_in_group(*spec, *device, **group, observer);
  } catch (...) {
    return end_of_exception();
  }
}

EndReport Run::trial_in_group(const protocol::TrialSpec& spec, const OpenDevice& device,
                              Group& group, train::TrialObserver& observer) {
  train::TrialHost host;
  host.pid = ::getpid();
  host.host = host_name();
  host.device_name = device.name;
  host.make_graph = device.make_graph;
  host.version = std::string(TAILOR_VERSION) + (*TAILOR_COMMIT != '\0' ? "+" TAILOR_COMMIT : "");
  EndReport end;
  try {
    end = train::run_trial(spec, device.device, host,
                           {directory_ + "/checkpoints", directory_ + "/artifacts", earlier_},
                           observer, clock_, group);
  } catch (...) {
    end = end_of_exception();
    // What waited for a lost rank throws something or other, and may do so before the watch knows:
    // its verdict names the rank.
    constexpr std::int64_t kVerdictMs = 2'000;
    const std::int64_t wait_ms = end.end == EndClass::kInfrastructure ? kVerdictMs : 0;
    if (const auto reason = group.ended(wait_ms)) return end_of_group(*reason);
  }
  // Ends that every rank comes to by itself need no words.
  const bool together =
      end.end == EndClass::kCompleted || end.end == EndClass::kStopped || end.end == EndClass::kNan;
  if (!together) group.end(end.end, end.message);
  return end;
}

int Run::to_end() {
  std::optional<ReportLog> log;
  if (is_first()) {
    auto opened = ReportLog::open(directory_, clock_);
    if (!opened) {
      log_error("trainer", opened.error().message());
      return static_cast<int>(opened.error().code() == Code::kDataLoss
                                  ? TrainerExit::kData
                                  : TrainerExit::kInfrastructure);
    }
    log.emplace(std::move(*opened));
  }
  const auto spec = read_spec(directory_);
  if (log && spec && complete_already(*log, *spec)) {
    log_info("trainer",
             earlier_ && !earlier_->changes.empty()
                 ? "this trial is complete already; what was changed leaves its result as it is"
                 : "this trial is complete already",
             {{"directory", directory_}});
    return static_cast<int>(TrainerExit::kCompleted);
  }
  const std::uint64_t reports_before = log ? log->last_sequence() : 0;
  EndReport end;
  if (!spec) {
    end = end_of(EndClass::kUser, spec.error().message());
  } else if (log) {
    DirectoryObserver observer(*log, directory_, clock_, shows_progress(options_.log_level));
    observer.set_spec(*spec);
    end = trial(*spec, observer);
  } else {
    RankObserver observer(directory_, clock_, /*leads=*/options_.local_rank <= 0);
    end = trial(*spec, observer);
  }
  const TrainerExit code = lost_rank_ ? TrainerExit::kLostRank : exit_of(end.end);
  const std::string message = end.message;
  const std::string name(protocol::end_class_name(end.end));
  // A completed trial stays one when it is run again and nothing comes of it.
  const bool stays_completed =
      log && log->earlier_end() == EndClass::kCompleted && log->last_sequence() == reports_before;
  if (log && !stays_completed) {
    protocol::Report report;
    report.body = std::move(end);
    if (const Status written = log->append(std::move(report), /*durable=*/true); !written) {
      log_error("trainer", "the end could not be reported", {{"reason", written.to_string()}});
    }
  }
  const bool well = code == TrainerExit::kCompleted || code == TrainerExit::kStopped;
  (well ? log_info : log_error)(
      "trainer", message, {{"end", name}, {"rank", std::to_string(std::max(0, options_.rank))}});
  return static_cast<int>(code);
}

// kInvalidArgument when options do not go together.
Status check(const RunOptions& options) {
  const auto bad = [](std::string message) {
    return Status(Code::kInvalidArgument, std::move(message));
  };
  if (options.ranks < 1) return bad("--ranks is a number of processes, 1 or more");
  if (options.local_ranks < 1) return bad("--local-ranks is a number of processes, 1 or more");
  if (options.local_ranks > 1 && options.rank < 0) {
    return bad("--local-ranks needs --rank: which is the first of them?");
  }
  if (!(options.lost_after_s >= 0.1)) return bad("--lost-after takes 0.1 seconds or more");
  if (options.rank < 0) {
    if (options.rendezvous.empty()) return Status::ok();
    return bad("--rendezvous needs --rank: which of the ranks is this?");
  }
  if (options.rank >= options.ranks) {
    return bad(fmt::format("--rank is {}; with --ranks {} it is 0 to {}", options.rank,
                           options.ranks, options.ranks - 1));
  }
  if (options.local_ranks > options.ranks - options.rank) {
    return bad(fmt::format("--local-ranks is {}; from rank {} on there are {}", options.local_ranks,
                           options.rank, options.ranks - options.rank));
  }
  if (options.ranks > 1 && options.rendezvous.empty()) {
    return bad("--rank needs --rendezvous HOST:PORT, where rank 0 listens");
  }
  if (options.rendezvous.empty()) return Status::ok();
  return status_of(train::ranks::parse_endpoint(options.rendezvous)).with_context("--rendezvous");
}

}  // namespace

int run(const RunOptions& options) {
  const auto usage = [](const std::string& message) {
    std::fprintf(stderr, "tailor-trainer: %s\n", message.c_str());
    return static_cast<int>(TrainerExit::kUsage);
  };
  if (const Status status = check(options); !status) return usage(status.message());
  std::error_code failure;
  // Absolute: reports name checkpoints by their whole path.
  std::string directory = absolute_path(options.directory);
  if (!std::filesystem::is_directory(directory, failure)) {
    return usage(directory + " is no directory; give the trial directory that holds spec.json");
  }
  install_signal_handlers();
  return Run(options, std::move(directory)).to_end();
}

}  // namespace tailor::trainer
