// What the geometry commands share: options, reading and checking .npy files, and telling a person
// how long something will take. Nothing here talks to a coordinator.
//
// What a file must hold is geometry/array_files.h's and geometry/width_problem.h's to say; here a
// refusal becomes exit code 2.
#pragma once

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "client/context.h"
#include "geometry/accelerator.h"
#include "geometry/array_files.h"
#include "geometry/distance.h"

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

/// geometry::read_distances; says on `out` when they were condensed. Throws the Failure.
geometry::DistanceMatrix read_distances(geometry::CloudFile& from, const Printer& out);

/// Adds --memory.
void add_memory_option(CLI::App* command, std::optional<double>& gib);

/// All that a command will hold in memory at once, found from the headers of its files; refused
/// before any of it is allocated when it is more than the limit: --memory, else what the system
/// says is free (base/memory.h). What the program holds already and what its threads need is
/// counted, too.
class MemoryPlan {
 public:
  /// `what` for people: "persistence of 300 points". Throws Failure(kUsage) on a limit that is
  /// none.
  MemoryPlan(std::string what, std::optional<double> gib, int threads);

  /// Held from beginning to end.
  void hold(std::string part, double bytes);
  /// Held for a while, not together with the other passing parts.
  void pass(std::string part, double bytes);
  /// Bytes at the worst moment.
  double total() const;
  /// Bytes that a passing part may take.
  double room() const;
  /// Throws Failure(kUsage), with the amounts, when that is more than there may be.
  void check() const;

 private:
  struct Part {
    std::string name;
    double bytes;
  };
  std::string what_;
  double limit_;
  std::string limit_source_;
  double base_;  // the program and its threads
  std::vector<Part> held_;
  Part passing_ = {"", 0};  // the largest
};
/// Adds the distances of `from` to the plan, and what measuring them takes.
void plan_distances(MemoryPlan& plan, const geometry::CloudFile& from);

/// Runs a command; memory that the system did not give in spite of the plan becomes
/// Failure(kUsage).
void run_within_memory(std::string_view command, const std::function<void()>& run);

/// Notes on stderr, for both: a matrix to which --geometry is not applied, and a cloud that looks
/// like a distance matrix.
void note_geometry_unused(const Printer& out, const MetricOptions& options);
void note_looks_like_distances(const Printer& out, const geometry::Cloud& cloud,
                               const std::string& path);
/// A note on stderr when points are one with others.
void note_duplicates(const Printer& out, const geometry::DistanceMatrix& matrix,
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
