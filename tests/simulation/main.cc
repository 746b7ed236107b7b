// tailor-sim: worlds from seeds, as many as one likes.
//
//   tailor-sim --seeds 0..199 --ticks 240
//   tailor-sim --seeds 17..17 --ticks 240 --trace
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>

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

int run(const Range& seeds, std::int64_t ticks, bool trace) {
  std::map<std::string, std::uint64_t> counters;
  for (std::uint64_t seed = seeds.first;; ++seed) {
    const Outcome outcome = run_world({seed, ticks, trace});
    for (const auto& [what, count] : outcome.counters) counters[what] += count;
    if (!outcome.failure.empty()) {
      fmt::print(
          "seed {} failed {}\n  faults: {}\n  again: tailor-sim --seeds {}..{} --ticks {} "
          "--trace\n",
          seed, outcome.failure, Faults::draw(seed).describe(), seed, seed, ticks);
      return 1;
    }
    if (seed == seeds.last) break;
  }
  fmt::print("seeds {}..{} kept every promise; what happened in them:\n", seeds.first, seeds.last);
  for (const auto& [what, count] : counters) fmt::print("{:>12}  {}\n", count, what);
  return 0;
}

}  // namespace
}  // namespace tailor::simulation

int main(int argc, char** argv) {
  CLI::App app(
      "Runs the real scheduler and workers against simulated network, clocks, disks and trainers.\n"
      "Example: tailor-sim --seeds 0..199 --ticks 240");
  std::string seeds = "0..199";
  std::int64_t ticks = 240;
  bool trace = false;
  app.add_option("--seeds", seeds, "which worlds: A..B")->capture_default_str();
  app.add_option("--ticks", ticks, "simulated seconds with faults, of each world")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000'000}));
  app.add_flag("--trace", trace, "print everything that happens");
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
  return tailor::simulation::run(*range, ticks, trace);
}
