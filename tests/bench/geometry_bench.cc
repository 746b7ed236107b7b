// geometry_bench: processor time of one operation of geometry/ on inputs from .npy files, as one
// line of JSON. tests/bench/geometry.py runs it beside other tools; it is of use by hand, too.
//
//   geometry_bench CASE FILE... [KEY=VALUE...]
//     distances CLOUD            geometry=raw|spherical|hyperbolic
//     h1 DISTANCES
//     w2 DIAGRAM DIAGRAM         order=2 ground=inf|2
//     gw DISTANCES DISTANCES     start=identity|all
//     profile BEFORE AFTER       clouds of one layer, or of many: [layers, positions, dimension]
//                                tokens=256 linear_tokens=2048 subsamples=8 threads=1
//   Every case: repeat=1, and out=FILE for what was computed (h1: the diagram,
//   distances: the matrix).
//
// Reading the files is not timed. `processor_s` and `wall_s` have one entry a repetition;
// `thread_max_s` is the processor time of the busiest thread where that is known.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "geometry/diagram_distance.h"
#include "geometry/distance.h"
#include "geometry/gromov_wasserstein.h"
#include "geometry/npy.h"
#include "geometry/rips.h"
#include "geometry/work_profile.h"

namespace tailor::geometry {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& message) {
  std::cerr << "geometry_bench: " << message << "\n";
  std::exit(1);
}

template <typename T>
T value_of(Result<T> result) {
  if (!result) fail(result.error().message());
  return std::move(*result);
}

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Largest resident size of this program so far. (getrusage would count what started it, too.)
double peak_memory_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return 0;
}

// The command line, taken apart.
struct Request {
  std::string name;
  std::vector<std::string> files;
  std::map<std::string, std::string> options;

  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto it = options.find(key);
    return it == options.end() ? otherwise : it->second;
  }
  std::size_t number(const std::string& key, std::size_t otherwise) const {
    const auto it = options.find(key);
    if (it == options.end()) return otherwise;
    char* end = nullptr;
    const unsigned long long value = std::strtoull(it->second.c_str(), &end, 10);
    if (it->second.empty() || *end != '\0')
      fail(fmt::format("{}={} is no number", key, it->second));
    return static_cast<std::size_t>(value);
  }
  const std::string& file(std::size_t index) const {
    if (index >= files.size()) fail(fmt::format("{}: {} files are too few", name, files.size()));
    return files[index];
  }
};

// Runs `body` as often as asked and notes its times.
// The result of the last call stays with the body.
void time_calls(const Request& request, json& report, const std::function<void()>& body) {
  for (std::size_t r = 0; r < request.number("repeat", 1); ++r) {
    const double processor = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    const double wall = seconds_of(CLOCK_MONOTONIC);
    const double own = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    body();
    const double used = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - processor;
    const double used_here = seconds_of(CLOCK_THREAD_CPUTIME_ID) - own;
    report["processor_s"].push_back(used);
    report["wall_s"].push_back(seconds_of(CLOCK_MONOTONIC) - wall);
    // With two threads the other one used the rest.
    const std::size_t threads = request.number("threads", 1);
    if (threads <= 2) report["thread_max_s"].push_back(std::max(used_here, used - used_here));
  }
}

void save(const Request& request, std::span<const double> values, std::vector<std::size_t> shape) {
  const std::string path = request.text("out", "");
  if (path.empty()) return;
  const Status status = write_npy(path, values, shape);
  if (!status.is_ok()) fail(status.message());
}

DistanceMatrix read_distances(const std::string& path) {
  const NpyArray array = value_of(read_npy(path));
  if (array.shape.size() != 2) fail(path + ": not a matrix");
  return value_of(DistanceMatrix::from_square(array.to_doubles(), array.shape[0]));
}

Diagram read_diagram(const std::string& path) {
  const Cloud rows = value_of(read_npy_cloud(path));
  if (rows.dimension != 2) fail(path + ": a diagram has two columns");
  Diagram diagram;
  for (std::size_t i = 0; i < rows.count; ++i) {
    diagram.push_back({rows.values[2 * i], rows.values[2 * i + 1]});
  }
  return diagram;
}

void bench_distances(const Request& request, json& report) {
  const Cloud cloud = value_of(read_npy_cloud(request.file(0)));
  DistanceOptions options;
  options.geometry = value_of(parse_geometry(request.text("geometry", "raw")));
  options.threads = static_cast<int>(request.number("threads", 1));
  DistanceMatrix matrix;
  time_calls(request, report,
             [&] { matrix = value_of(pairwise_distances(cloud.view(), options)); });
  report["enclosing_radius"] = matrix.enclosing_radius();
  save(request, matrix.values(), {matrix.count(), matrix.count()});
}

void bench_h1(const Request& request, json& report) {
  const DistanceMatrix matrix = read_distances(request.file(0));
  RipsSummary summary;
  time_calls(request, report, [&] { summary = value_of(rips_persistence(matrix)); });
  report["bars"] = summary.bars.size();
  report["edges"] = summary.edges;
  report["columns"] = summary.columns;
  report["living_max"] = summary.living_max;
  std::vector<double> flat;
  for (const Bar& bar : summary.bars) flat.insert(flat.end(), {bar.birth, bar.death});
  save(request, flat, {summary.bars.size(), 2});
}

void bench_w2(const Request& request, json& report) {
  const Diagram a = read_diagram(request.file(0)), b = read_diagram(request.file(1));
  DiagramDistanceOptions options;
  options.order = static_cast<double>(request.number("order", 2));
  options.ground = value_of(parse_ground_norm(request.text("ground", "inf")));
  DiagramDistance result;
  time_calls(request, report, [&] { result = value_of(diagram_distance(a, b, options)); });
  report["distance"] = result.distance;
  report["lower_bound"] = result.lower_bound;
  report["gap"] = result.gap;
  report["pairs"] = result.pairs;
  report["rounds"] = result.rounds;
}

void bench_gw(const Request& request, json& report) {
  const DistanceMatrix a = read_distances(request.file(0)), b = read_distances(request.file(1));
  const std::string start = request.text("start", "all");
  GromovOptions options;
  options.random_starts = 0;
  if (start == "identity") {
    options.identity_only = true;
  } else if (start != "all") {
    fail("start is identity or all");
  }
  GromovResult result;
  time_calls(request, report, [&] { result = value_of(gromov_wasserstein(a, b, options)); });
  report["energy"] = result.energy;
  report["identity_energy"] = result.identity_energy;
  report["start"] = result.start;
}

void bench_profile(const Request& request, json& report) {
  const auto read = [](const std::string& path) {
    NpyArray array = value_of(read_npy(path));
    if (array.shape.size() == 2) array.shape.insert(array.shape.begin(), 1);
    if (array.shape.size() != 3) fail(path + ": not [positions, dimension] or layers of these");
    return array;
  };
  const NpyArray before = read(request.file(0)), after = read(request.file(1));
  if (before.shape != after.shape) fail("the clouds before and after have different shapes");
  const auto floats = [](const NpyArray& array) {
    std::vector<float> values;
    for (const double x : array.to_doubles()) values.push_back(static_cast<float>(x));
    return values;
  };
  const std::vector<float> x = floats(before), y = floats(after);
  const std::size_t layer_size = before.shape[1] * before.shape[2];
  std::vector<LayerClouds> layers;
  for (std::size_t l = 0; l < before.shape[0]; ++l) {
    layers.push_back({.layer = static_cast<int>(l),
                      .before = std::span(x).subspan(l * layer_size, layer_size),
                      .after = std::span(y).subspan(l * layer_size, layer_size),
                      .dimension = before.shape[2]});
  }
  WorkOptions options;
  options.tokens = request.number("tokens", options.tokens);
  options.linear_tokens = request.number("linear_tokens", options.linear_tokens);
  options.subsamples = request.number("subsamples", options.subsamples);
  options.threads = static_cast<int>(request.number("threads", 1));
  const std::string only = request.text("statistic", "");
  if (!only.empty()) options.statistics = {only};
  WorkProfile profile;
  time_calls(request, report, [&] { profile = value_of(measure_work(layers, options)); });
  for (const WorkEntry& entry : profile.entries) {
    report["entries"].push_back(
        {{"layer", entry.layer},
         {"geometry", geometry_name(entry.geometry)},
         {"statistic", entry.statistic},
         {"value", entry.value},
         {"standard_error", entry.standard_error ? json(*entry.standard_error) : json()}});
  }
  report["rho"] = profile.rho;
  report["tokens"] = profile.tokens;
  report["positions"] = profile.positions;
}

int run(int argc, char** argv) {
  const std::map<std::string_view, void (*)(const Request&, json&)> cases = {
      {"distances", bench_distances}, {"h1", bench_h1}, {"w2", bench_w2}, {"gw", bench_gw},
      {"profile", bench_profile},
  };
  Request request;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    if (i == 1) {
      request.name = argument;
    } else if (equals != std::string::npos) {
      request.options[argument.substr(0, equals)] = argument.substr(equals + 1);
    } else {
      request.files.push_back(argument);
    }
  }
  const auto found = cases.find(request.name);
  if (found == cases.end()) fail("first argument: distances, h1, w2, gw or profile");
  json report = {{"case", request.name}};
  found->second(request, report);
  report["memory_mib"] = peak_memory_mib();
  std::cout << report.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace tailor::geometry

int main(int argc, char** argv) { return tailor::geometry::run(argc, argv); }
