// fake_trainer: a trainer without a network, for tests of everything around trainers.
//
//     fake_trainer run DIR [--ranks N --rank R --local-ranks K --rendezvous HOST:PORT]
//
// It keeps the contract of the trial directory (design.md 1) as tailor-trainer does: reads
// spec.json, appends to reports.jsonl, obeys the lease and SIGTERM, writes checkpoints to a
// temporary name and renames them, resumes from the newest good one of spec.resume_from. Its loss
// is a function of seed and step alone, so a resumed run reports the values of an unbroken one.
//
// As ranks of a gang over machines it meets the others as tailor-trainer does (rank 0 writes
// DIR/rendezvous), one process for all ranks of a machine. Rank 0 trains when all are there, and
// ends as infrastructure when one is lost; the others do nothing but hold on to it.
//
// Behaviour, from the environment or, stronger, from "key=value" parts of the candidate's name
// (separated by ';': "c1;steps=5;fail=nan@2"):
//     FAKE_STEPS             steps=       optimiser steps (default: as the spec's tokens ask)
//     FAKE_STEP_MS           step_ms=     time of one step (default 5)
//     FAKE_CHECKPOINT_EVERY  checkpoint=  steps between checkpoints (default 10; 0 = none)
//     FAKE_FAIL              fail=        KIND or KIND@STEP (default step 3), one of
//         nan oom data user  an end with that class       mute   exit code 5 without an end
//         crash              SIGSEGV                       exit0  exit code 0 without an end
//         kill               SIGKILL to itself             hang   deaf to SIGTERM and to its lease
//         freeze SIGSTOP to itself
//     FAKE_LEAVES            leaves=      leaves a process behind that sleeps in a session of its
//                                         own: "child", or "bare", which has no environment either
//     FAKE_LOG_BYTES         log_bytes=   prints lines "attempt A step S ..." of so many bytes at
//     each
//                                         step (default 0), first a line that is not UTF-8, last
//                                         one that has no end
//     FAKE_PROFILE           profile=     of trials that are to measure: "front" (the default: the
//     work
//                                         falls over depth), or "fail"
//     FAKE_FAIL_ATTEMPTS     fail_attempts=  only attempts up to this number fail (default: all)
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"
#include "model/shape/count.h"
#include "protocol/convert.h"
#include "worker/trainer/carry.h"

namespace tailor {
namespace {

namespace fs = std::filesystem;
using protocol::EndClass;
using protocol::TrainerExit;

volatile std::sig_atomic_t g_told_to_stop = 0;

struct Behaviour {
  std::int64_t steps = 0;
  std::int64_t step_ms = 5;
  std::int64_t checkpoint_every = 10;
  std::int64_t log_bytes = 0;
  std::string fail;    // "" = succeeds
  std::string leaves;  // "" = nothing
  std::string profile;
  std::int64_t fail_step = 3;
  std::int64_t fail_attempts = 1 << 30;
};

/// The value of a setting: of the candidate's name, else of the environment.
std::optional<std::string> setting(const std::string& candidate, const std::string& key,
                                   const char* variable) {
  for (const std::string_view part : split(candidate, ';')) {
    if (part.rfind(key + "=", 0) == 0) return std::string(part.substr(key.size() + 1));
  }
  const char* value = std::getenv(variable);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void read_number(const std::optional<std::string>& text, std::int64_t* value) {
  if (text) std::from_chars(text->data(), text->data() + text->size(), *value);
}

Behaviour behaviour_of(const protocol::TrialSpec& spec) {
  Behaviour b;
  b.steps = spec.train.batch_tokens > 0
                ? (spec.train.tokens + spec.train.batch_tokens - 1) / spec.train.batch_tokens
                : 10;
  const std::string& name = spec.candidate_name;
  read_number(setting(name, "steps", "FAKE_STEPS"), &b.steps);
  read_number(setting(name, "step_ms", "FAKE_STEP_MS"), &b.step_ms);
  read_number(setting(name, "checkpoint", "FAKE_CHECKPOINT_EVERY"), &b.checkpoint_every);
  read_number(setting(name, "log_bytes", "FAKE_LOG_BYTES"), &b.log_bytes);
  read_number(setting(name, "fail_attempts", "FAKE_FAIL_ATTEMPTS"), &b.fail_attempts);
  b.fail = setting(name, "fail", "FAKE_FAIL").value_or("");
  if (const std::size_t at = b.fail.find('@'); at != std::string::npos) {
    read_number(b.fail.substr(at + 1), &b.fail_step);
    b.fail.resize(at);
  }
  b.profile = setting(name, "profile", "FAKE_PROFILE").value_or("front");
  b.leaves = setting(name, "leaves", "FAKE_LEAVES").value_or("");
  if (spec.attempt > b.fail_attempts) b.fail.clear();
  b.steps = std::max<std::int64_t>(b.steps, 1);
  b.checkpoint_every = std::max<std::int64_t>(b.checkpoint_every, 0);
  b.fail_step = std::min(b.fail_step, b.steps);
  return b;
}

/// Falls like a training loss and differs between seeds; the same for the same seed and step.
double loss_at(std::uint64_t seed, std::int64_t step) {
  return 2.0 + 3.0 * std::exp(-static_cast<double>(step) / 20.0) +
         0.01 * keyed_normal(seed, static_cast<std::uint64_t>(step), 0);
}

struct GangOptions {
  int ranks = 1;
  int rank = 0;
  int local_ranks = 1;
  std::string rendezvous;
  bool spread() const { return ranks > local_ranks && !rendezvous.empty(); }
};

sockaddr_in address_of(const std::string& endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const std::string host = endpoint.substr(0, colon);
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(endpoint.c_str() + colon + 1)));
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  return address;
}

/// Rank 0's connections to the other machines of the gang.
class Gang {
 public:
  /// Waits for the others, at most a minute. Empty: they are there; else what is wrong.
  std::string meet(const std::string& dir, const GangOptions& options) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = address_of(options.rendezvous);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    if (::bind(listener, generic, size) != 0 || ::listen(listener, 16) != 0 ||
        ::getsockname(listener, generic, &size) != 0) {
      return "rank 0 cannot listen";
    }
    char host[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
    static_cast<void>(write_file_atomic(
        dir + "/rendezvous", fmt::format("{}:{}\n", host, ntohs(address.sin_port)), false));
    const SystemClock clock;
    const MonotonicMs until = clock.now_ms() + 60'000;
    for (int there = options.local_ranks; there < options.ranks;) {
      pollfd waiting{listener, POLLIN, 0};
      if (g_told_to_stop) return "told to stop while the ranks met";
      if (clock.now_ms() > until) return "the other ranks did not come";
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int other = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      char ranks = 0;
      if (other < 0 || ::read(other, &ranks, 1) != 1) continue;
      there += ranks;
      others_.push_back(other);
    }
    ::close(listener);
    return {};
  }
  /// True when the connection to one of the others has ended.
  bool lost() const {
    for (const int other : others_) {
      char byte = 0;
      if (::recv(other, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0) return true;
    }
    return false;
  }
  void say_done() const {
    for (const int other : others_) {
      [[maybe_unused]] const ssize_t told = ::send(other, "d", 1, MSG_NOSIGNAL);
    }
  }

  /// The other machines' part: until rank 0 says that all is done (0), or is gone.
  static int hold_on(const GangOptions& options) {
    const SystemClock clock;
    const MonotonicMs until = clock.now_ms() + 60'000;
    sockaddr_in address = address_of(options.rendezvous);
    const int first = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (::connect(first, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      if (clock.now_ms() > until) return static_cast<int>(TrainerExit::kLostRank);
      ::poll(nullptr, 0, 20);
    }
    const char ranks = static_cast<char>(options.local_ranks);
    [[maybe_unused]] const ssize_t told = ::send(first, &ranks, 1, MSG_NOSIGNAL);
    for (;;) {
      pollfd waiting{first, POLLIN, 0};
      if (g_told_to_stop) return static_cast<int>(TrainerExit::kStopped);
      if (::poll(&waiting, 1, 20) <= 0) continue;
      char byte = 0;
      return ::read(first, &byte, 1) == 1 && byte == 'd' ? 0
                                                         : static_cast<int>(TrainerExit::kLostRank);
    }
  }

 private:
  std::vector<int> others_;
};

class Trainer {
 public:
  Trainer(std::string dir, protocol::TrialSpec spec, GangOptions gang)
      : dir_(std::move(dir)),
        spec_(std::move(spec)),
        behaviour_(behaviour_of(spec_)),
        gang_options_(std::move(gang)) {}

  int run() {
    reports_fd_ =
        ::open((dir_ + "/reports.jsonl").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (reports_fd_ < 0) {
      std::fprintf(stderr, "fake_trainer: cannot write reports in %s\n", dir_.c_str());
      return static_cast<int>(TrainerExit::kInfrastructure);
    }
    if (!behaviour_.leaves.empty()) leave_behind(behaviour_.leaves == "bare");
    if (gang_options_.spread()) {
      if (const std::string why = gang_.meet(dir_, gang_options_); !why.empty()) {
        return end(EndClass::kInfrastructure, why, 0, TrainerExit::kLostRank);
      }
    }
    const std::int64_t start = resume();
    for (protocol::Report& earlier : trainer::reports_to_carry(dir_, resumed_from_, start)
                                         .value_or(std::vector<protocol::Report>())) {
      std::visit([this](auto& body) { report(std::move(body)); }, earlier.body);
    }
    report(started(start));
    std::printf("fake_trainer: %s from step %ld of %ld\n", spec_.candidate_name.c_str(),
                static_cast<long>(start), static_cast<long>(behaviour_.steps));
    if (behaviour_.log_bytes > 0) std::printf("not UTF-8: \xff\n");
    std::fflush(stdout);
    for (std::int64_t step = start + 1; step <= behaviour_.steps; ++step) {
      if (gang_.lost()) {
        return end(EndClass::kInfrastructure, "another rank was lost", step - 1,
                   TrainerExit::kLostRank);
      }
      if (const std::string why = pause(); !why.empty()) {
        checkpoint(step - 1);
        return end(EndClass::kStopped, why, step - 1, TrainerExit::kStopped);
      }
      if (step == behaviour_.fail_step && !behaviour_.fail.empty()) {
        if (const auto code = fail(step)) return *code;
      }
      protocol::MetricReport metric;
      metric.step = step;
      metric.tokens = step * spec_.train.batch_tokens;
      metric.values["train_loss"] = loss_at(spec_.seed, step);
      report(std::move(metric));
      print(step);
      if (behaviour_.checkpoint_every > 0 && step % behaviour_.checkpoint_every == 0) {
        checkpoint(step);
      }
    }
    if (behaviour_.log_bytes > 0) std::printf("the last line");
    std::fflush(stdout);
    checkpoint(behaviour_.steps);
    if (spec_.geometry.enabled) measure();
    gang_.say_done();
    return end(EndClass::kCompleted, "", behaviour_.steps, TrainerExit::kCompleted);
  }

 private:
  /// A daemon of the trainer's: its parent is gone at once, its group and session are its own.
  static void leave_behind(bool bare) {
    const pid_t child = ::fork();
    if (child > 0) {
      ::waitpid(child, nullptr, 0);
      return;
    }
    if (child < 0) return;
    ::setsid();
    if (::fork() != 0) std::_Exit(0);
    char sleep[] = "/bin/sleep", time[] = "300";
    char* argv[] = {sleep, time, nullptr};
    char* nothing[] = {nullptr};
    ::execve(sleep, argv, bare ? nothing : environ);
    std::_Exit(127);
  }

  protocol::StartedReport started(std::int64_t step) const {
    protocol::StartedReport report;
    report.pid = ::getpid();
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    report.host = host;
    report.device = spec_.device;
    report.version = "fake";
    report.data_hash = sha256_hex(spec_.data.train);
    report.resumed_step = step;
    report.resumed_from = resumed_from_;
    const shape::Counts counts = shape::count_parameters(spec_.architecture);
    report.parameters_body = counts.body;
    report.parameters_total = counts.total;
    report.steps_total = behaviour_.steps;
    return report;
  }

  template <typename Body>
  void report(Body body) {
    protocol::Report value{++sequence_, clock_.wall_ms(), std::move(body)};
    const std::string line = protocol::to_json_line(value) + "\n";
    std::size_t done = 0;
    while (done < line.size()) {
      const ssize_t wrote = ::write(reports_fd_, line.data() + done, line.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) {
        std::perror("fake_trainer: reports.jsonl");
        std::_Exit(static_cast<int>(TrainerExit::kInfrastructure));
      }
      done += static_cast<std::size_t>(wrote);
    }
  }

  /// A profile that is a function of the shape and the seed alone.
  void measure() {
    protocol::ProfileReport profile;
    profile.step = behaviour_.steps;
    profile.tokens = spec_.geometry.tokens;
    profile.subsamples = spec_.geometry.subsamples;
    profile.rho = spec_.geometry.rho;
    profile.seed = spec_.seed;
    if (behaviour_.profile == "fail") {
      profile.failure = "all tokens are equal";
    } else {
      for (std::int32_t l = 0; l < spec_.architecture.layers(); ++l) {
        for (const char* geometry : {"raw", "spherical", "hyperbolic"}) {
          for (const char* statistic : {"shift", "gromov", "topology"}) {
            profile.entries.push_back({l, -1, geometry, statistic, 1.0 / (1 + l), 0.01});
          }
        }
        if (!spec_.geometry.dimension) continue;
        profile.entries.push_back({l, -1, "raw", "two_nn", 6.0, 0.1});
        profile.entries.push_back({l, -1, "raw", "levina_bickel", 5.0, 0.1});
      }
    }
    report(std::move(profile));
  }

  int end(EndClass end_class, std::string message, std::int64_t step, TrainerExit code) {
    protocol::EndReport report_value{end_class, std::move(message), step, {}};
    if (end_class == EndClass::kCompleted) {
      const double loss = loss_at(spec_.seed, step) + 0.05;
      report_value.values = {{"validation_loss", loss},
                             {"perplexity", std::exp(loss)},
                             {"train_loss", loss_at(spec_.seed, step)},
                             {"tokens_per_s", 1000.0}};
    }
    report(std::move(report_value));
    return static_cast<int>(code);
  }

  void print(std::int64_t step) const {
    for (std::int64_t left = behaviour_.log_bytes; left > 0;) {
      const std::string line = fmt::format("attempt {} step {:>6}", spec_.attempt, step) +
                               std::string(left > 100 ? 70 : 0, '.') + "\n";
      std::fwrite(line.data(), 1, line.size(), stdout);
      left -= static_cast<std::int64_t>(line.size());
    }
    std::fflush(stdout);
  }

  /// Works for one step. Not empty: why training has to stop.
  std::string pause() {
    const MonotonicMs until = clock_.now_ms() + behaviour_.step_ms;
    for (;;) {
      if (g_told_to_stop) return "told to stop (SIGTERM); a checkpoint was saved";
      if (lease_ran_out()) return "the lease ran out: the worker is gone; a checkpoint was saved";
      const std::int64_t left = until - clock_.now_ms();
      if (left <= 0) return {};
      ::poll(nullptr, 0, static_cast<int>(std::min<std::int64_t>(left, 20)));
    }
  }

  bool lease_ran_out() {
    const Result<std::string> text = read_file(dir_ + "/lease", 64);
    if (!text) return leased_;  // none at all: run by hand
    leased_ = true;
    std::int64_t deadline = 0;
    std::from_chars(text->data(), text->data() + text->size(), deadline);
    return clock_.now_ms() >= deadline;
  }

  std::optional<int> fail(std::int64_t step) {
    const std::string& kind = behaviour_.fail;
    std::fprintf(stderr, "fake_trainer: asked to fail with %s at step %ld\n", kind.c_str(),
                 static_cast<long>(step));
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    if (kind == "nan")
      return end(EndClass::kNan, "the loss is not finite", step, TrainerExit::kNan);
    if (kind == "oom") return end(EndClass::kOom, "out of memory", step, TrainerExit::kOom);
    if (kind == "data") return end(EndClass::kData, "a shard is damaged", step, TrainerExit::kData);
    if (kind == "user") return end(EndClass::kUser, "a bad spec", step, TrainerExit::kUsage);
    if (kind == "mute") return static_cast<int>(TrainerExit::kNan);
    if (kind == "exit0") return 0;
    if (kind == "crash") ::raise(SIGSEGV);
    if (kind == "kill") ::raise(SIGKILL);
    if (kind == "freeze") ::raise(SIGSTOP);
    if (kind == "hang") {
      ::signal(SIGTERM, SIG_IGN);
      // Not for ever, so that a failed test leaves nothing behind.
      for (const MonotonicMs until = clock_.now_ms() + 120'000; clock_.now_ms() < until;) {
        ::poll(nullptr, 0, 100);
      }
      return 1;
    }
    return std::nullopt;
  }

  void checkpoint(std::int64_t step) {
    if (step <= last_checkpoint_ || behaviour_.checkpoint_every == 0) return;
    const std::string parent = dir_ + "/checkpoints";
    const std::string path = fmt::format("{}/{:08}", parent, step);
    const std::string temporary = path + ".tmp";
    std::error_code failure;
    fs::remove_all(temporary, failure);
    fs::create_directories(temporary, failure);
    const std::string state = nlohmann::json({{"step", step}}).dump();
    const std::string manifest =
        nlohmann::json({{"step", step}, {"files", {{"state.json", sha256_hex(state)}}}}).dump();
    if (!write_file_atomic(temporary + "/state.json", state).is_ok() ||
        !write_file_atomic(temporary + "/manifest.json", manifest).is_ok()) {
      std::fprintf(stderr, "fake_trainer: cannot write a checkpoint\n");
      return;
    }
    fs::rename(temporary, path, failure);
    if (failure || !sync_directory(parent).is_ok()) return;
    last_checkpoint_ = step;
    report(protocol::CheckpointReport{step, path, sha256_hex(manifest),
                                      static_cast<std::int64_t>(state.size() + manifest.size())});
  }

  /// The step of the newest checkpoint that verifies; 0 = from scratch.
  std::int64_t resume() {
    std::int64_t best = 0;
    for (const std::string& folder : spec_.resume_from) {
      std::error_code failure;
      for (fs::directory_iterator it(folder, failure), last; !failure && it != last;
           it.increment(failure)) {
        const std::string path = it->path().string();
        if (path.ends_with(".tmp")) continue;
        const Result<std::string> state = read_file(path + "/state.json", 1 << 16);
        const Result<std::string> manifest = read_file(path + "/manifest.json", 1 << 16);
        if (!state || !manifest) continue;
        const auto m = nlohmann::json::parse(*manifest, nullptr, false);
        const auto s = nlohmann::json::parse(*state, nullptr, false);
        if (!m.is_object() || !s.is_object() || !s.contains("step")) continue;
        if (!m.contains("files") || m["files"].value("state.json", "") != sha256_hex(*state))
          continue;
        const auto step = s["step"].get<std::int64_t>();
        if (step > best) {
          best = step;
          resumed_from_ = path;
        }
      }
    }
    last_checkpoint_ = best;
    return best;
  }

  const SystemClock clock_;
  const std::string dir_;
  const protocol::TrialSpec spec_;
  const Behaviour behaviour_;
  const GangOptions gang_options_;
  Gang gang_;
  int reports_fd_ = -1;
  std::uint64_t sequence_ = 0;
  std::int64_t last_checkpoint_ = 0;
  std::string resumed_from_;
  bool leased_ = false;  // a lease was seen once: none now means that it is gone
};

int run(int argc, char** argv) {
  if (argc < 3 || argc % 2 == 0 || std::string(argv[1]) != "run") {
    std::fprintf(stderr, "usage: fake_trainer run DIR [--ranks N ...]\n");
    return static_cast<int>(TrainerExit::kUsage);
  }
  GangOptions gang;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--ranks") gang.ranks = std::atoi(argv[i + 1]);
    if (option == "--rank") gang.rank = std::atoi(argv[i + 1]);
    if (option == "--local-ranks") gang.local_ranks = std::atoi(argv[i + 1]);
    if (option == "--rendezvous") gang.rendezvous = argv[i + 1];
  }
  const std::string dir = argv[2];
  const Result<std::string> text = read_file(dir + "/spec.json", 1 << 24);
  if (!text) {
    std::fprintf(stderr, "fake_trainer: %s\n", text.error().message().c_str());
    return static_cast<int>(TrainerExit::kUsage);
  }
  Result<protocol::TrialSpec> spec = protocol::trial_spec_from_json(*text);
  if (!spec) {
    std::fprintf(stderr, "fake_trainer: %s/spec.json: %s\n", dir.c_str(),
                 spec.error().message().c_str());
    return static_cast<int>(TrainerExit::kUsage);
  }
  struct sigaction action {};
  action.sa_handler = [](int) { g_told_to_stop = 1; };
  ::sigaction(SIGTERM, &action, nullptr);
  if (gang.rank > 0) return Gang::hold_on(gang);
  return Trainer(dir, *std::move(spec), std::move(gang)).run();
}

}  // namespace
}  // namespace tailor

int main(int argc, char** argv) { return tailor::run(argc, argv); }
