// tailor-sim: worlds from seeds, as many as one likes.
//
//   tailor-sim --seeds 0..199 --ticks 240
//   tailor-sim --seeds 17..17 --ticks 240 --trace
//   tailor-sim --seeds 0..3 --ticks 60 --workers 3000
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tests/simulation/world.h"

namespace tailor::simulation {
namespace {

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

Result<Range> parse_range(const std::string& text) {
  Range range;
  const char* const end = text.data() + text.size();
  const auto a = std::from_chars(text.data(), end, range.first);
  if (a.ec == std::errc() && a.ptr == end) {
    range.last = range.first;
    return range;
  }
  if (a.ec == std::errc() && std::string_view(a.ptr, end).starts_with("..")) {
    const auto b = std::from_chars(a.ptr + 2, end, range.last);
    if (b.ec == std::errc() && b.ptr == end && range.last >= range.first) return range;
  }
  return error(Code::kInvalidArgument,
               fmt::format("--seeds '{}' must be A..B with A <= B, as in 0..199", text));
}

struct Command {
  Range seeds{0, 199};
  std::int64_t ticks = 240;
  int workers = 0;
  bool trace = false;
  int jobs = 1;
};

/// The command that shows one world again.
std::string again(const Command& command, std::uint64_t seed) {
  return fmt::format("tailor-sim --seeds {}..{} --ticks {}{}", seed, seed, command.ticks,
                     command.workers > 0 ? fmt::format(" --workers {}", command.workers) : "");
}

/// Runs the worlds of a range on several threads, one world on one of them, and sums up.
class Runs {
 public:
  explicit Runs(const Command& command) : command_(command), next_(command.seeds.first) {}

  int run() {
    std::vector<std::jthread> threads;
    for (int i = 1; i < command_.jobs; ++i) threads.emplace_back([this] { work(); });
    work();
    threads.clear();
    if (failed_) return 1;
    fmt::print("seeds {}..{} kept every promise; what happened in them:\n", command_.seeds.first,
               command_.seeds.last);
    for (const auto& [what, count] : counters_) fmt::print("{:>12}  {}\n", count, what);
    return 0;
  }

 private:
  void work() {
    for (;;) {
      std::uint64_t seed = 0;
      {
        const std::scoped_lock lock(mutex_);
        if (failed_ || done_) return;
        seed = next_;
        done_ = next_ == command_.seeds.last;
        ++next_;
      }
      const Outcome outcome = run_world({seed, command_.ticks, command_.trace, command_.workers});
      const std::scoped_lock lock(mutex_);
      for (const auto& [what, count] : outcome.counters) counters_[what] += count;
      if (!outcome.failure.empty()) report(seed, outcome);
    }
  }

  void report(std::uint64_t seed, const Outcome& outcome) {
    failed_ = true;
    fmt::print(
        "seed {} failed {}\n  faults: {}\n  again: {} --trace\n"
        "  keep it, once mended: a line \"{} {} {} what it found\" in "
        "tests/simulation/regressions\n",
        seed, outcome.failure, Faults::draw(seed).describe(), again(command_, seed), seed,
        command_.ticks, command_.workers);
  }

  const Command command_;
  std::mutex mutex_;  // guards: all below, and stdout
  std::uint64_t next_;
  bool done_ = false;
  bool failed_ = false;
  std::map<std::string, std::uint64_t> counters_;
};

}  // namespace
}  // namespace tailor::simulation

int main(int argc, char** argv) {
  CLI::App app(
      "Runs the real scheduler and workers against simulated network, clocks, disks and trainers.\n"
      "Example: tailor-sim --seeds 0..199 --ticks 240");
  std::string seeds = "0..199";
  tailor::simulation::Command command;
  command.jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  app.add_option("--seeds", seeds, "which worlds: A..B")->capture_default_str();
  app.add_option("--ticks", command.ticks, "simulated seconds with faults, of each world")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000'000}));
  app.add_option("--workers", command.workers,
                 "so many workers in each world; 0 = the few that its seed draws")
      ->capture_default_str()
      ->check(CLI::Range(0, 100'000));
  app.add_option("--jobs", command.jobs, "worlds at a time")->check(CLI::Range(1, 1'024));
  app.add_flag("--trace", command.trace, "print everything that happens, one world at a time");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  const auto range = tailor::simulation::parse_range(seeds);
  if (!range) {
    fmt::print(stderr, "tailor-sim: {}\n", range.error().message());
    return 2;
  }
  command.seeds = *range;
  if (command.trace) command.jobs = 1;
  return tailor::simulation::Runs(command).run();
}
