// What the geometry commands share: options, reading and checking .npy files, and telling a person
// how long something will take. Nothing here talks to a coordinator.
//
// Everything in a file is outside input: it is refused with the file's name, the entry and what to
// do, and exit code 2.
#pragma once

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "client/context.h"
#include "geometry/accelerator.h"
#include "geometry/cloud.h"
#include "geometry/distance.h"
#include "geometry/rips.h"

namespace tailor::client::geometry_tools {

/// Throws the Failure for a bad file or option: exit code 2 for all that the user can put right,
/// 3 for a file that is not there. `context` (a file's name) goes in front unless it is empty.
void require_input(const Status& status, std::string_view context = {});
template <typename T>
T require_input(Result<T> result, std::string_view context = {}) {
  if (!result) require_input(result.error(), context);
  return std::move(*result);
}

/// Options of the commands that measure distances.
struct MetricOptions {
  std::string geometry = "raw";
  double rho = geometry::kDefaultRho;
  bool distances = false;  ///< files hold square distance matrices
  int threads = 1;
  std::string device = "cpu";

  /// Throws Failure(kUsage) on an unknown geometry or a rho outside (0, 1).
  geometry::DistanceOptions checked() const;
};
/// Adds --geometry, --rho, --distances, --threads and --device.
void add_metric_options(CLI::App* command, MetricOptions& options);
void add_rho_option(CLI::App* command, double& rho);
/// Adds --threads; the default is every processor of the machine.
void add_threads_option(CLI::App* command, int& threads);

/// Adds --device.
void add_device_option(CLI::App* command, std::string& device);

/// The device of a command, opened; says on stderr when it left work to the CPU.
class Device {
 public:
  /// Throws the Failure for an unknown or unusable device.
  Device(const std::string& name, const Printer& out);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  /// Null for the CPU.
  const geometry::Accelerator* get() const { return accelerator_.get(); }

 private:
  const Printer& out_;
  std::unique_ptr<geometry::Accelerator> accelerator_;
};

/// A cloud: rank 2, every number finite.
geometry::Cloud read_cloud(const std::string& path);
/// A distance matrix: rank 2, square, finite, symmetric, not negative, zero on the diagonal.
geometry::DistanceMatrix read_distances(const std::string& path);
/// A diagram: rows (birth, death); deaths may be infinite. An array without entries is the empty
/// diagram, whatever its shape.
geometry::Diagram read_diagram(const std::string& path);

/// Points without a direction (norm below geometry::kZeroNorm), by index.
std::vector<bool> zero_points(const geometry::Cloud& cloud);
/// `cloud` without the points where `drop` is set.
geometry::Cloud without(const geometry::Cloud& cloud, const std::vector<bool>& drop);

/// Notes on stderr, for both: a matrix to which --geometry is not applied, and a cloud that looks
/// like a distance matrix.
void note_geometry_unused(const Printer& out, const MetricOptions& options);
void note_looks_like_distances(const Printer& out, const geometry::Cloud& cloud,
                               const std::string& path);

/// Elementary operations that one thread of an ordinary processor does in a second; a rough guide.
inline constexpr double kDenseRate = 2e9;  ///< distances, products
inline constexpr double kTopologyRate = 5e8;
inline constexpr double kWorkRate = 6e9;  ///< of geometry::work_cost, which counts generously

/// While it lives, a person who waits is told on stderr: at once, with the estimate, when that is
/// long; then from time to time how long it has been. Short work says nothing.
class Progress {
 public:
  /// `bytes` is the memory needed, 0 when it is not worth a word.
  Progress(std::string what, double estimate_s, double bytes = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void report(const std::stop_token& stop);

  std::string what_;
  double estimate_s_;
  std::mutex mutex_;  // guards nothing but the wait
  std::condition_variable_any ended_;
  std::jthread reporter_;  // last: it uses the others
};

/// Adds `tailor geometry allocate` (geometry_allocate.cc).
void add_allocate(CLI::App& group, Context& context);

}  // namespace tailor::client::geometry_tools
