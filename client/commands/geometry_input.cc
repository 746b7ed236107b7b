// Reads and checks what the geometry commands are given.
#include "client/commands/geometry_input.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/clock.h"
#include "base/memory.h"

namespace tailor::client::geometry_tools {
namespace {

// Work that is expected to take longer is announced, and work that takes longer is commented on.
constexpr double kLongRunSeconds = 3;

std::string about(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", std::max(1.0, seconds));
  if (seconds < 6000) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string amount(double bytes) {
  return bytes < 1e8 ? fmt::format("{:.4g} MiB", bytes / (1 << 20))
                     : fmt::format("{:.4g} GiB", bytes / (1 << 30));
}

// Resident memory of a thread: its stack as far as it is used, and its share of the allocator's.
constexpr double kThreadBytes = 256 << 10;
// What is printed, small change; and freed memory that the allocator keeps.
constexpr double kSlackBytes = 8 << 20;
constexpr double kAllocatorShare = 1.05;

}  // namespace

void require_input(const Status& status, std::string_view context) {
  if (status.is_ok()) return;
  const bool user = status.code() == Code::kDataLoss || status.code() == Code::kResourceExhausted;
  throw Failure(user ? Exit::kUsage : exit_for(status.code()),
                context.empty() ? status.message() : status.with_context(context).message());
}

geometry::DistanceOptions MetricOptions::checked() const {
  geometry::DistanceOptions options;
  options.geometry = require_input(geometry::parse_geometry(geometry));
  options.rho = rho;
  options.threads = threads;
  require_input(options.validate());
  return options;
}

void add_rho_option(CLI::App* command, double& rho) {
  command->add_option("--rho", rho,
                      "radius in (0, 1) of the sphere that hyperbolic points lie on (default tanh "
                      "1 = 0.761594; ours, the papers do not give theirs)");
}

void add_threads_option(CLI::App* command, int& threads) {
  threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  command
      ->add_option("--threads", threads,
                   "threads (default: one a processor; the result does not depend on it)")
      ->check(CLI::Range(1, 1024));
}

void add_device_option(CLI::App* command, std::string& device) {
  command->add_option("--device", device,
                      "cpu, or cuda:N for a GPU (default cpu; the result does not depend on it)");
}

Device::Device(const std::string& name, const Printer& out)
    : out_(out), accelerator_(require_input(geometry::open_accelerator(name))) {}

Device::~Device() {
  if (accelerator_ != nullptr && !accelerator_->status().is_ok()) {
    out_.note("tailor: " + accelerator_->status().message());
  }
}

void add_metric_options(CLI::App* command, MetricOptions& options) {
  command->add_option("--geometry", options.geometry,
                      "raw (Euclidean), spherical (angles) or hyperbolic (default raw; ours)");
  add_rho_option(command, options.rho);
  command->add_flag("--distances", options.distances,
                    "the files hold square distance matrices, used as they are");
  add_threads_option(command, options.threads);
  add_device_option(command, options.device);
}

geometry::DistanceMatrix read_distances(geometry::CloudFile& from, const Printer& out) {
  if (from.condensed && from.points > 2) {
    out.note(fmt::format(
        "tailor: {} is read as the condensed distances of {} points, the upper triangle "
        "by rows, as scipy's pdist writes it",
        from.path, from.points));
  }
  return require_input(geometry::read_distances(from));
}

void add_memory_option(CLI::App* command, std::optional<double>& gib) {
  command->add_option(
      "--memory", gib,
      "refuse beforehand what would hold more than this at once, in GiB (default: what "
      "the machine, its control group and ulimit leave; ours)");
}

MemoryPlan::MemoryPlan(std::string what, std::optional<double> gib, int threads)
    : what_(std::move(what)) {
  if (gib && !(*gib > 0)) {
    throw Failure(Exit::kUsage,
                  fmt::format("--memory must be a positive number of GiB, got {}", *gib));
  }
  const double resident = resident_memory();
  const MemoryLimit own = own_memory_limit();
  base_ = resident + threads * kThreadBytes + kSlackBytes;
  if (std::isfinite(own.bytes)) {
    // Where addresses count, a thread's whole stack does, and the allocator must not reserve more
    // of them for each.
    ::mallopt(M_ARENA_MAX, 1);
    rlimit stack{};
    const bool known = ::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY;
    base_ += (threads + 1) * (known ? static_cast<double>(stack.rlim_cur) : 8 << 20);
  }
  // --memory may be more than is free now, but not more than the process can ever have.
  const MemoryLimit free = gib ? own : available_memory();
  limit_ = free.bytes + resident;
  limit_source_ = free.source;
  if (gib && *gib * (1 << 30) <= limit_) {
    limit_ = *gib * (1 << 30);
    limit_source_ = "--memory";
  }
}

void MemoryPlan::hold(std::string part, double bytes) { held_.push_back({std::move(part), bytes}); }

void MemoryPlan::pass(std::string part, double bytes) {
  if (bytes > passing_.bytes) passing_ = {std::move(part), bytes};
}

double MemoryPlan::total() const {
  double total = base_ + passing_.bytes;
  for (const Part& part : held_) total += part.bytes;
  return kAllocatorShare * total;
}

double MemoryPlan::room() const {
  double held = base_;
  for (const Part& part : held_) held += part.bytes;
  return limit_ / kAllocatorShare - held;
}

void MemoryPlan::check() const {
  if (!(total() > limit_)) return;
  std::string parts;
  for (const Part& part : held_) parts += fmt::format("{} {}, ", part.name, amount(part.bytes));
  if (passing_.bytes > 0) parts += fmt::format("{} {}, ", passing_.name, amount(passing_.bytes));
  throw Failure(
      Exit::kUsage,
      fmt::format(
          "{} needs {} ({}the program {}); the limit is {:.4g} GiB ({}). Take a subsample{}", what_,
          amount(total()), parts, amount(base_), limit_ / (1 << 30), limit_source_,
          limit_source_ == "--memory" ? ", or raise the limit"
                                      : ", or fewer --threads where that is much of it"));
}

void plan_distances(MemoryPlan& plan, const geometry::CloudFile& from) {
  const double n = static_cast<double>(from.points);
  plan.hold("distances", 8 * n * n);
  if (from.distances) {
    plan.pass("reading them", 24 * n + (3 << 20));
  } else {
    const double cloud = 8 * n * static_cast<double>(from.dimension);
    plan.pass("the cloud while it is measured",
              cloud + geometry::distance_memory_bytes(from.points, from.dimension) - 8 * n * n);
  }
}

void run_within_memory(std::string_view command, const std::function<void()>& run) {
  std::string failed;
  try {
    return run();
  } catch (const std::bad_alloc&) {
    failed = "no memory was left";
  } catch (const std::length_error&) {
    failed = "more was asked for than memory can ever hold";
  }
  throw Failure(
      Exit::kUsage,
      fmt::format("{}: {}, although less was planned than the limit: other programs may have "
                  "taken it. Take a subsample or fewer --threads, or set a lower --memory to be "
                  "told beforehand",
                  command, failed));
}

void note_geometry_unused(const Printer& out, const MetricOptions& options) {
  if (options.distances && options.geometry != "raw") {
    out.note(
        fmt::format("tailor: with --distances the matrix is used as it is; --geometry {} is "
                    "not applied to it",
                    options.geometry));
  }
}

void note_looks_like_distances(const Printer& out, const geometry::Cloud& cloud,
                               const std::string& path) {
  if (!geometry::looks_like_distances(cloud)) return;
  out.note(
      fmt::format("tailor: {} is taken as {} points, but is square, symmetric and zero on the "
                  "diagonal: if it holds distances, add --distances",
                  path, cloud.count));
}

void note_duplicates(const Printer& out, const geometry::DistanceMatrix& matrix,
                     const std::string& path) {
  if (matrix.duplicates() == 0) return;
  out.note(fmt::format(
      "tailor: {}: {} of {} points are one with an earlier point: equal, or closer than "
      "the rounding of their numbers",
      path, matrix.duplicates(), matrix.count()));
}

Progress::Progress(std::string what, double estimate_s, double bytes)
    : what_(std::move(what)), estimate_s_(estimate_s) {
  if (estimate_s_ >= kLongRunSeconds) {
    const std::string memory = bytes > 0 ? " and up to " + amount(bytes) : "";
    std::fprintf(stderr, "tailor: %s: about %s%s (a rough estimate)\n", what_.c_str(),
                 about(estimate_s_).c_str(), memory.c_str());
  }
  try {
    reporter_ = std::jthread([this](const std::stop_token& stop) { report(stop); });
  } catch (const std::system_error&) {
    // No thread is left for it: the work matters more than the comment.
  }
}

Progress::~Progress() {
  reporter_.request_stop();
  ended_.notify_all();
}

void Progress::report(const std::stop_token& stop) {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  const SystemClock clock;
  const MonotonicMs start_ms = clock.now_ms();
  // A terminal's line is rewritten every second; a log gets a line now and then.
  const auto pause = std::chrono::milliseconds(terminal ? 1000 : 30000);
  bool wrote = false;
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, stop, pause, [] { return false; })) {
    if (stop.stop_requested()) break;
    const double elapsed_s = static_cast<double>(clock.now_ms() - start_ms) / 1000;
    if (elapsed_s < kLongRunSeconds) continue;
    const std::string of =
        estimate_s_ >= kLongRunSeconds ? fmt::format(" of about {}", about(estimate_s_)) : "";
    std::fprintf(stderr, "%stailor: %s: %.0f s%s%s", terminal ? "\r" : "", what_.c_str(), elapsed_s,
                 of.c_str(), terminal ? "\033[K" : "\n");
    std::fflush(stderr);
    wrote = true;
  }
  if (wrote && terminal) std::fputs("\r\033[K", stderr);
}

}  // namespace tailor::client::geometry_tools
