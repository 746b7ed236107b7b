// Are reported standard errors true? Each case draws the same experiment many times
// (tests/geometry/error_simulation.h) and prints reported over true error, of every statistic in
// every geometry and of what is derived: smoothed work, widths, integer widths, front-load index.
//
//   geometry_errors_bench [--draws 200] [--threads 1]
//
// Exit code 1 when a ratio of a value, smoothed value or width, in a case with its sequences given,
// is outside 0.85 to 1.15. Integer widths and the front-load index are printed beside them: of a
// grid that is coarser than the error the jackknife is on the high side (jackknife.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/geometry/error_simulation.h"

namespace tailor::geometry {
namespace {

struct Case {
  std::size_t sequences, tokens_of_sequence;
  double intra_class;
  bool given;
};

// n = 64, R = 8. 512 tokens make eight subsamples; 272 made eight that overlapped and make four
// that do not.
constexpr Case kCases[] = {
    {512, 1, 0, true},    {64, 8, 0, true},    {64, 8, 0.05, true},  {64, 8, 0.3, true},
    {16, 32, 0.05, true}, {16, 32, 0.3, true}, {272, 1, 0, true},    {34, 8, 0, true},
    {34, 8, 0.05, true},  {34, 8, 0.3, true},  {64, 8, 0.05, false}, {64, 8, 0.3, false},
    {16, 32, 0.3, false},
};
constexpr const char* kParts[] = {"", " smoothed", " widths", " integers", " front load"};
constexpr std::size_t kJudged = 3;  // of kParts

int run(std::size_t draws, int threads) {
  double lowest[std::size(kParts)], highest[std::size(kParts)];
  std::fill(std::begin(lowest), std::end(lowest), 1.0);
  std::fill(std::begin(highest), std::end(highest), 1.0);
  for (const Case& one : kCases) {
    testing::ErrorSimulation simulation;
    simulation.sequences = one.sequences;
    simulation.tokens_of_sequence = one.tokens_of_sequence;
    simulation.intra_class = one.intra_class;
    simulation.give_sequences = one.given;
    simulation.draws = draws;
    simulation.work.threads = threads;
    std::size_t subsamples = 0;
    const auto all = simulate_errors(simulation, &subsamples);
    fmt::print("\n{} tokens, {} a sequence, intra-class correlation {}, R' = {}{}\n",
               one.sequences * one.tokens_of_sequence, one.tokens_of_sequence, one.intra_class,
               subsamples, one.given ? "" : ", sequences not given");
    fmt::print("{:<24}{:>8}{:>10}{:>8}{:>10}{:>12}\n", "", "value", "smoothed", "widths",
               "integers", "front load");
    for (const Geometry geometry : kGeometries) {
      for (const Statistic& statistic : statistics()) {
        const std::string name = fmt::format("{} {}", geometry_name(geometry), statistic.name);
        double ratios[std::size(kParts)];
        for (std::size_t i = 0; i < std::size(kParts); ++i) {
          ratios[i] = all.at(name + kParts[i]).ratio();
          if (one.given) {
            lowest[i] = std::min(lowest[i], ratios[i]);
            highest[i] = std::max(highest[i], ratios[i]);
          }
        }
        fmt::print("{:<24}{:>8.2f}{:>10.2f}{:>8.2f}{:>10.2f}{:>12.2f}\n", name, ratios[0],
                   ratios[1], ratios[2], ratios[3], ratios[4]);
      }
    }
    std::fflush(stdout);
  }
  fmt::print("\nwith the sequences given:");
  bool within = true;
  for (std::size_t i = 0; i < std::size(kParts); ++i) {
    fmt::print("{}{} {:.2f} to {:.2f}", i == 0 ? "" : ",", i == 0 ? " values" : kParts[i],
               lowest[i], highest[i]);
    within &= i >= kJudged || (lowest[i] >= 0.85 && highest[i] <= 1.15);
  }
  fmt::print("\n");
  return within ? 0 : 1;
}

}  // namespace
}  // namespace tailor::geometry

int main(int argc, char** argv) {
  std::size_t draws = 200;
  int threads = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (value < 1 || (name != "--draws" && name != "--threads")) {
      fmt::print(stderr, "geometry_errors_bench [--draws 200] [--threads 1]\n");
      return 2;
    }
    if (name == "--draws") draws = static_cast<std::size_t>(value);
    if (name == "--threads") threads = value;
  }
  return tailor::geometry::run(draws, threads);
}
