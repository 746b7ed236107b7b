// search_bench: how good the suggestions of coordinator/search are, and what one costs.
//
//   search_bench run --algorithms tpe,gp --problems branin,shape --seeds 20 --trials 200
//                                one line of JSON a run, as `search.py peers` writes them
//   search_bench speed           milliseconds of one suggestion: TPE at 1,000 and 10,000 trials, GP
//   at 500
//   search_bench values          the problems at fixed points, to be compared with `search.py
//   values`
//
// `best` after n trials is the true value of the trial whose observed value is the lowest so far.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "coordinator/search/suggest.h"

namespace tailor::search {
namespace {

using sweep::Axis;
using sweep::AxisValue;
using sweep::Point;

double number(const Point& point, const char* path) {
  const AxisValue& value = point.at(path);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return std::get<double>(value);
}
std::string text(const Point& point, const char* path) {
  return std::get<std::string>(point.at(path));
}

Axis real(std::string path, double min, double max, bool log = false) {
  Axis axis;
  axis.path = std::move(path);
  axis.min = min;
  axis.max = max;
  axis.log = log;
  return axis;
}
Axis stepped(std::string path, double min, double max, double step, bool integer = true) {
  Axis axis = real(std::move(path), min, max);
  axis.step = step;
  axis.is_integer = integer;
  return axis;
}
Axis list(std::string path, std::vector<AxisValue> values) {
  Axis axis;
  axis.path = std::move(path);
  axis.values = std::move(values);
  return axis;
}
Axis when(Axis axis, std::string path, std::vector<AxisValue> values) {
  axis.when.push_back({std::move(path), std::move(values)});
  return axis;
}
std::vector<AxisValue> words(std::initializer_list<const char*> all) {
  std::vector<AxisValue> out;
  for (const char* word : all) out.emplace_back(std::string(word));
  return out;
}

double branin(const Point& p) {
  const double x = number(p, "x"), y = number(p, "y"), pi = std::numbers::pi;
  const double b = 5.1 / (4 * pi * pi), c = 5 / pi, t = 1 / (8 * pi);
  return std::pow(y - b * x * x + c * x - 6, 2) + 10 * (1 - t) * std::cos(x) + 10;
}

double hartmann6(const Point& p) {
  static constexpr double kA[4][6] = {{10, 3, 17, 3.5, 1.7, 8},
                                      {0.05, 10, 17, 0.1, 8, 14},
                                      {3, 3.5, 1.7, 10, 17, 8},
                                      {17, 8, 0.05, 10, 0.1, 14}};
  static constexpr double kP[4][6] = {{1312, 1696, 5569, 124, 8283, 5886},
                                      {2329, 4135, 8307, 3736, 1004, 9991},
                                      {2348, 1451, 3522, 2883, 3047, 6650},
                                      {4047, 8828, 8732, 5743, 1091, 381}};
  static constexpr double kC[4] = {1.0, 1.2, 3.0, 3.2};
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    double inner = 0;
    for (int j = 0; j < 6; ++j) {
      inner += kA[i][j] * std::pow(number(p, fmt::format("x{}", j).c_str()) - kP[i][j] / 1e4, 2);
    }
    sum += kC[i] * std::exp(-inner);
  }
  return -sum;
}

double mixed(const Point& p) {
  const double rate = std::log10(number(p, "rate"));
  const double depth = 0.02 * std::abs(number(p, "depth") - 5);
  const std::string kind = text(p, "kind");
  if (kind == "adam") {
    return 0.1 + 0.15 * std::pow(rate + 3, 2) + depth + 2 * std::pow(number(p, "beta") - 0.9, 2);
  }
  if (kind == "sgd") {
    return 0.15 + 0.25 * std::pow(rate + 1, 2) + depth + std::pow(number(p, "momentum") - 0.85, 2) +
           0.03 * std::abs(number(p, "nesterov") - 1);
  }
  return 0.3 + 0.2 * std::pow(rate + 2, 2) + depth;
}

double constrained(const Point& p) {
  const double x = number(p, "x"), y = number(p, "y"), z = number(p, "z");
  return std::pow(x - 0.5, 2) + std::pow(y - 0.3, 2) + std::pow(z - 0.2, 2) +
         0.05 * std::cos(12 * x) * std::cos(9 * y);
}

double shape_ratio(const Point& p) {
  const double d = number(p, "d_model"), layers = number(p, "layers");
  return (84'934'656 - 4 * layers * d * d) / (3 * d * d * layers * number(p, "k"));
}

/// Trends of the papers at one exact budget: the ratio is solved, not chosen.
double shape(const Point& p) {
  const double ratio = shape_ratio(p), k = number(p, "k");
  const double below = std::max(0.0, std::log(0.45 / ratio));
  const double aspect = std::log(number(p, "d_model") / number(p, "layers") / 170);
  double loss = 3.43 + 0.05 * std::pow(below, 1.5) + 0.010 * std::pow(std::log(ratio / 0.45), 2);
  loss += 0.012 * aspect * aspect - 0.03 * (1 - std::exp(-(k - 1) / 2.5));
  const std::string taper = text(p, "taper");
  if (taper != "uniform") {
    const double best = taper == "cosine" ? 0.006 : taper == "linear" ? 0.004 : 0.005;
    loss -= best * (1 - std::pow((number(p, "high") - 1.5) / 0.5, 2));
  }
  return loss;
}

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

double noise(std::uint64_t seed, std::uint64_t trial) {
  double total = -6;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const std::uint64_t key = (seed * 1'000'003 + trial * 101 + i + 1) * 0x9E3779B97F4A7C15ull;
    total += static_cast<double>(mix(key) >> 11) * 0x1.0p-53;
  }
  return total;
}

struct Problem {
  std::string name;
  std::function<double(const Point&)> value;
  std::vector<Axis> axes;
  LookAt look = {};
  double noise_sd = 0;
  Point example = {};
};

LookAt rule(std::function<bool(const Point&)> keeps, std::string reason) {
  return [keeps = std::move(keeps), reason = std::move(reason)](const Point& point) {
    Look out;
    out.feasible = keeps(point);
    if (!out.feasible) out.reason = reason;
    return out;
  };
}

std::vector<Problem> problems() {
  std::vector<Problem> out;
  out.push_back({"branin", branin, {real("x", -5, 10), real("y", 0, 15)}});
  out.back().example = {{"x", 1.25}, {"y", 7.5}};
  out.push_back({"hartmann6", hartmann6, {}});
  for (int i = 0; i < 6; ++i) {
    out.back().axes.push_back(real(fmt::format("x{}", i), 0, 1));
    out.back().example.emplace(fmt::format("x{}", i), 0.1 * (i + 1));
  }
  out.push_back(
      {"mixed",
       mixed,
       {list("kind", words({"adam", "sgd", "other"})), real("rate", 1e-5, 1, true),
        stepped("depth", 1, 12, 1), when(real("beta", 0.5, 0.999), "kind", words({"adam"})),
        when(real("momentum", 0, 1), "kind", words({"sgd"})),
        when(stepped("nesterov", 0, 1, 1), "kind", words({"sgd"}))}});
  out.back().example = {{"kind", std::string("sgd")},
                        {"rate", 0.02},
                        {"depth", std::int64_t{3}},
                        {"momentum", 0.4},
                        {"nesterov", std::int64_t{0}}};
  out.push_back(
      {"constrained",
       constrained,
       {real("x", 0, 1), real("y", 0, 1), real("z", 0, 1)},
       rule(
           [](const Point& p) { return number(p, "x") + number(p, "y") + number(p, "z") <= 0.669; },
           "the sum is above 0.669")});
  out.back().example = {{"x", 0.1}, {"y", 0.2}, {"z", 0.3}};
  std::vector<AxisValue> ks;
  for (const std::int64_t k : {1, 2, 3, 4, 6, 8, 12, 16}) ks.emplace_back(k);
  out.push_back({"shape",
                 shape,
                 {list("k", ks), stepped("layers", 4, 32, 1), stepped("d_model", 256, 1024, 64),
                  list("taper", words({"uniform", "cosine", "linear", "sigmoid"})),
                  when(stepped("high", 1.1, 1.9, 0.1, false), "taper",
                       words({"cosine", "linear", "sigmoid"}))},
                 rule(
                     [](const Point& p) {
                       const double ratio = shape_ratio(p);
                       return ratio >= 0.05 && ratio <= 8;
                     },
                     "the ratio is out of range"),
                 0.002});
  out.back().example = {{"k", std::int64_t{4}},
                        {"layers", std::int64_t{10}},
                        {"d_model", std::int64_t{640}},
                        {"taper", std::string("linear")},
                        {"high", 1.3}};
  return out;
}

void run(const Problem& problem, const std::string& algorithm, std::uint64_t seed,
         std::size_t trials) {
  const auto space = std::make_shared<const Space>(problem.axes, problem.look);
  Settings settings;
  settings.algorithm = algorithm;
  settings.trials = trials;
  History history(space);
  std::vector<double> truth;
  double seen = std::numeric_limits<double>::infinity(), best = seen, spent = 0;
  std::size_t infeasible = 0;
  for (std::size_t i = 0; i < trials; ++i) {
    const double began = process_cpu_seconds();
    const auto next = suggest(history, *space, settings, seed, 1);
    spent += process_cpu_seconds() - began;
    if (!next || next->points.empty()) break;
    const Suggestion& given = next->points.front();
    if (problem.look && !problem.look(given.point).feasible) ++infeasible;
    const double exact = problem.value(given.point);
    const double value = exact + problem.noise_sd * noise(seed, i);
    if (value < seen) {
      seen = value;
      best = exact;
    }
    truth.push_back(best);
    history.add({given.point, given.hash, {{1, Fate::kCompleted, {value}}}});
  }
  std::cout << nlohmann::json{{"peer", "tailor-" + algorithm},
                              {"problem", problem.name},
                              {"seed", seed},
                              {"best", truth},
                              {"infeasible", infeasible},
                              {"seconds", spent}}
                   .dump()
            << std::endl;
}

/// Milliseconds of one suggestion over a history of `trials` outcomes of the shape problem.
void speed(const std::string& algorithm, std::size_t trials) {
  const std::vector<Problem> all = problems();
  const Problem& problem = all.back();
  const auto space = std::make_shared<const Space>(problem.axes, problem.look);
  History history(space);
  Settings settings;
  settings.algorithm = algorithm;
  settings.trials = trials + 1'000;
  settings.duplicates = Duplicates::kReplicate;
  Rng rng(1);
  while (history.size() < trials) {
    const Point point = space->decode(*space->draw_feasible(rng));
    history.add({point, {}, {{1, Fate::kCompleted, {problem.value(point)}}}});
  }
  constexpr int kRounds = 10;
  double least = std::numeric_limits<double>::infinity(), sum = 0;
  for (int i = 0; i < kRounds; ++i) {
    const double began = process_cpu_seconds();
    (void)suggest(history, *space, settings, static_cast<std::uint64_t>(i), 1);
    const double ms = 1e3 * (process_cpu_seconds() - began);
    least = std::min(least, ms);
    sum += ms;
  }
  std::cout << fmt::format(
      "{} at {} trials: {:.2f} ms at best, {:.2f} ms on average ({} rounds, CPU)\n", algorithm,
      trials, least, sum / kRounds, kRounds);
}

int main_inside(const std::vector<std::string>& arguments) {
  std::map<std::string, std::string> options = {{"--algorithms", "tpe,gp"},
                                                {"--problems", ""},
                                                {"--seeds", "20"},
                                                {"--first-seed", "1"},
                                                {"--trials", "200"}};
  const std::string mode = arguments.empty() ? "" : arguments[0];
  for (std::size_t i = 1; i + 1 < arguments.size(); i += 2)
    options[arguments[i]] = arguments[i + 1];
  const std::vector<Problem> all = problems();
  if (mode == "values") {
    for (const Problem& problem : all) {
      std::cout << fmt::format("{} {:.12g}\n", problem.name, problem.value(problem.example));
    }
    std::cout << fmt::format("noise {:.12g}\n", noise(3, 17));
    return 0;
  }
  if (mode == "speed") {
    speed("tpe", 1'000);
    speed("tpe", 10'000);
    speed("gp", 500);
    return 0;
  }
  if (mode != "run") {
    std::cerr << "search_bench: give run, speed or values\n";
    return 2;
  }
  const auto first = std::stoull(options["--first-seed"]);
  const std::string names = options["--algorithms"], wanted = options["--problems"];
  for (std::uint64_t seed = first; seed < first + std::stoull(options["--seeds"]); ++seed) {
    for (const Problem& problem : all) {
      if (!wanted.empty() && wanted.find(problem.name) == std::string::npos) continue;
      for (const std::string_view name : split(names, ',')) {
        run(problem, std::string(name), seed, std::stoull(options["--trials"]));
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace tailor::search

int main(int argc, char** argv) {
  return tailor::search::main_inside(std::vector<std::string>(argv + 1, argv + argc));
}
