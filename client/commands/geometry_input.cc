// Reads and checks what the geometry commands are given.
#include "client/commands/geometry_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "geometry/npy.h"

namespace tailor::client::geometry_tools {
namespace {

// Work that is expected to take longer is announced, and work that takes longer is commented on.
constexpr double kLongRunSeconds = 3;

std::string about(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", std::max(1.0, seconds));
  if (seconds < 6000) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

geometry::Cloud read_rank_two(const std::string& path) {
  return require_input(geometry::read_npy_cloud(path));
}

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

geometry::Cloud read_cloud(const std::string& path) {
  geometry::Cloud cloud = read_rank_two(path);
  require_input(geometry::check_finite(cloud.view(), path));
  return cloud;
}

geometry::DistanceMatrix read_distances(const std::string& path) {
  const geometry::Cloud array = read_rank_two(path);
  if (array.count != array.dimension) {
    throw Failure(Exit::kUsage,
                  fmt::format("{}: a distance matrix is square; this array is {} x {} (leave out "
                              "--distances for a cloud)",
                              path, array.count, array.dimension));
  }
  return require_input(geometry::DistanceMatrix::from_square(array.values, array.count), path);
}

geometry::Diagram read_diagram(const std::string& path) {
  const geometry::NpyArray array = require_input(geometry::read_npy(path));
  if (array.size() == 0 && !array.shape.empty()) return {};
  if (array.shape.size() != 2 || array.shape[1] != 2) {
    throw Failure(
        Exit::kUsage,
        fmt::format("{}: a diagram is an array of rows (birth, death), shape (k, 2); this "
                    "one has shape ({})",
                    path, fmt::join(array.shape, ", ")));
  }
  const std::vector<double> values = array.to_doubles();
  geometry::Diagram bars;
  for (std::size_t row = 0; row < array.shape[0]; ++row) {
    const geometry::Bar bar{values[2 * row], values[2 * row + 1]};
    if (!std::isfinite(bar.birth) || !(bar.death >= bar.birth)) {
      throw Failure(Exit::kUsage,
                    fmt::format("{}: row {} is ({}, {}); a birth must be finite and a death a "
                                "number not below it (infinity is allowed)",
                                path, row, bar.birth, bar.death));
    }
    bars.push_back(bar);
  }
  return bars;
}

std::vector<bool> zero_points(const geometry::Cloud& cloud) {
  std::vector<bool> zero(cloud.count);
  for (std::size_t i = 0; i < cloud.count; ++i) {
    zero[i] = geometry::norm(cloud.view().row(i)) < geometry::kZeroNorm;
  }
  return zero;
}

geometry::Cloud without(const geometry::Cloud& cloud, const std::vector<bool>& drop) {
  geometry::Cloud kept;
  kept.dimension = cloud.dimension;
  for (std::size_t i = 0; i < cloud.count; ++i) {
    if (drop[i]) continue;
    const auto row = cloud.view().row(i);
    kept.values.insert(kept.values.end(), row.begin(), row.end());
    ++kept.count;
  }
  return kept;
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
  if (cloud.count < 3 || cloud.count != cloud.dimension) return;
  if (!geometry::DistanceMatrix::from_square(cloud.values, cloud.count)) return;
  out.note(
      fmt::format("tailor: {} is taken as {} points, but is square, symmetric and zero on the "
                  "diagonal: if it holds distances, add --distances",
                  path, cloud.count));
}

Progress::Progress(std::string what, double estimate_s, double bytes)
    : what_(std::move(what)), estimate_s_(estimate_s) {
  if (estimate_s_ >= kLongRunSeconds) {
    const std::string memory =
        bytes > 0 ? fmt::format(" and up to {:.0f} MiB", bytes / (1 << 20)) : "";
    std::fprintf(stderr, "tailor: %s: about %s%s (a rough estimate)\n", what_.c_str(),
                 about(estimate_s_).c_str(), memory.c_str());
  }
  reporter_ = std::jthread([this](const std::stop_token& stop) { report(stop); });
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
