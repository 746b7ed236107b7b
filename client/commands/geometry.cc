// tailor geometry: the measurements of geometry/ on .npy files made anywhere. No coordinator.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "base/file.h"
#include "client/commands/geometry_input.h"
#include "client/format.h"
#include "client/table.h"
#include "geometry/diagram_distance.h"
#include "geometry/gromov_wasserstein.h"
#include "geometry/intrinsic_dimension.h"
#include "geometry/jackknife.h"
#include "geometry/kernels.h"
#include "geometry/npy.h"
#include "geometry/statistics/table.h"
#include "geometry/work_profile.h"
#include "geometry/work_profile_json.h"

namespace tailor::client {
namespace geometry_tools {
namespace {

// What matching diagrams holds for a bar, at most: some twenty pairs on either side and what the
// solver keeps of each.
constexpr double kMatchingBytes = 6000;

// Distances have to be measured before anything else: n^2 d / 2 differences, squares and sums.
double distance_seconds(std::size_t points, std::size_t dimension, int threads) {
  const double n = static_cast<double>(points);
  return 1.5 * n * n * static_cast<double>(dimension) / kDenseRate / threads;
}

// More points than the algorithms can number are refused before anything is read.
void require_points(const geometry::CloudFile& file, std::size_t most) {
  if (file.points > most) {
    throw Failure(Exit::kUsage, fmt::format("{}: {} points are more than {}; take a subsample",
                                            file.path, file.points, most));
  }
}

// The name of the geometry as results carry it, and rho where it has a meaning.
void add_metric(Json& json, const MetricOptions& options) {
  json["geometry"] = options.distances ? "distances" : options.geometry;
  json["rho"] = !options.distances && options.geometry == "hyperbolic" ? Json(options.rho) : Json();
}

// One cloud's matrix, or the matrix itself.
struct Measured {
  geometry::DistanceMatrix matrix;
  std::size_t dropped = 0;  // zero vectors
};

// Zero vectors have no direction: they are left out where angles count. In the raw geometry the
// origin is a point like any other.
Measured measure_one(const Printer& out, geometry::CloudFile& from, const MetricOptions& options,
                     geometry::DistanceOptions distance) {
  note_geometry_unused(out, options);
  Measured result;
  if (options.distances) {
    result.matrix = read_distances(from, out);
  } else {
    geometry::Cloud cloud = require_input(geometry::read_cloud(from));
    note_looks_like_distances(out, cloud, from.path);
    if (distance.geometry != geometry::Geometry::kRaw) {
      const std::size_t before = cloud.count;
      geometry::remove_points(cloud, geometry::zero_points(cloud));
      result.dropped = before - cloud.count;
    }
    const Progress progress("distances",
                            distance_seconds(cloud.count, cloud.dimension, options.threads),
                            geometry::distance_memory_bytes(cloud.count, cloud.dimension));
    distance.spacing = from.file.spacing();
    result.matrix = require_input(geometry::pairwise_distances(cloud.view(), distance), from.path);
  }
  note_duplicates(out, result.matrix, from.path);
  return result;
}

// ---- persistence

struct PersistenceOptions {
  MetricOptions metric;
  std::string file, output;
  double threshold = std::numeric_limits<double>::infinity();
  double floor = 0;
  std::optional<double> memory_gib;
};

void run_persistence(const Context& context, const PersistenceOptions& options) {
  const Printer out = context.printer();
  geometry::DistanceOptions distance = options.metric.checked();
  const Device device(options.metric.device, out);
  distance.accelerator = device.get();
  // The hyperbolic diagram is the spherical one with its values mapped. A threshold is meant in
  // hyperbolic units, so then the mapped matrix itself is reduced.
  const bool mapped = !options.metric.distances && std::isinf(options.threshold) &&
                      distance.geometry == geometry::Geometry::kHyperbolic;
  if (mapped) distance.geometry = geometry::Geometry::kSpherical;
  geometry::CloudFile file =
      require_input(geometry::open_cloud(options.file, options.metric.distances));
  require_points(file, geometry::kRipsPointsMax);
  MemoryPlan plan(fmt::format("persistence of {} points", file.points), options.memory_gib,
                  options.metric.threads);
  plan_distances(plan, file);
  plan.pass("edges and classes", geometry::rips_memory_bytes(file.points));
  plan.check();
  const Measured x = measure_one(out, file, options.metric, distance);
  const std::size_t n = x.matrix.count();

  geometry::RipsSummary summary;
  {
    const Progress progress(fmt::format("persistence of {} points", n),
                            geometry::rips_cost(n) / kTopologyRate, plan.total());
    summary = require_input(
        geometry::rips_persistence(x.matrix, {.threshold = options.threshold,
                                              .persistence_floor = mapped ? 0 : options.floor,
                                              .memory_bytes_max = plan.room(),
                                              .accelerator = device.get()}),
        options.file);
  }
  double radius = x.matrix.enclosing_radius();
  geometry::Diagram bars = std::move(summary.bars);
  if (mapped) {
    if (!(options.floor >= 0)) throw Failure(Exit::kUsage, "--floor must not be negative");
    bars = geometry::hyperbolic_diagram(bars, options.metric.rho);
    std::erase_if(
        bars, [&](const geometry::Bar& bar) { return !(bar.death - bar.birth > options.floor); });
    radius = geometry::hyperbolic_from_angle(radius, options.metric.rho);
  }
  if (!options.output.empty()) {
    std::vector<double> values;
    for (const geometry::Bar& bar : bars) values.insert(values.end(), {bar.birth, bar.death});
    const std::array<std::size_t, 2> shape = {bars.size(), 2};
    require_input(geometry::write_npy(options.output, values, shape));
  }
  if (out.json()) {
    Json json;
    json["pairs"] = Json::array();
    for (const geometry::Bar& bar : bars) json["pairs"].push_back({bar.birth, bar.death});
    add_metric(json, options.metric);
    json["points"] = n;
    json["dropped"] = x.dropped;
    json["duplicates"] = x.matrix.duplicates();
    json["threshold"] = std::min(options.threshold, radius);
    json["enclosing_radius"] = radius;
    json["truncated"] = summary.truncated;
    json["persistence_floor"] = options.floor;
    json["edges"] = summary.edges;
    json["born"] = summary.born;
    return out.document(json);
  }
  std::vector<std::vector<std::string>> rows;
  for (const geometry::Bar& bar : bars) {
    rows.push_back({fmt::format("{}", bar.birth), fmt::format("{}", bar.death)});
  }
  out.table({{"BIRTH", Align::kRight}, {"DEATH", Align::kRight}}, rows);
  out.note(fmt::format("{} classes of {} points up to {:.6g}{}{}", bars.size(), n,
                       std::min(options.threshold, radius),
                       x.dropped > 0 ? fmt::format("; {} zero vectors left out", x.dropped) : "",
                       summary.truncated ? "; some were alive at the threshold" : ""));
}

void add_persistence(CLI::App& group, Context& context) {
  auto options = std::make_shared<PersistenceOptions>();
  CLI::App* command = add_command(
      group, "persistence",
      "Degree-1 Vietoris-Rips persistence (loops) of a cloud [points, coordinates] or a distance "
      "matrix. An edge enters at its length; coefficients Z/2; no class outlives the enclosing "
      "radius.",
      "  tailor geometry persistence X.npy --geometry spherical\n"
      "  tailor geometry persistence X.npy --geometry hyperbolic --rho 0.9 --output diagram.npy\n"
      "  tailor geometry persistence D.npy --distances --json");
  command->add_option("X.npy", options->file, "a cloud, or with --distances a matrix")->required();
  add_metric_options(command, options->metric);
  command->add_option("--threshold", options->threshold,
                      "longest edge (default: the enclosing radius, which loses nothing)");
  command->add_option("--floor", options->floor,
                      "leave out classes that live this long or shorter (default 0; ours)");
  add_memory_option(command, options->memory_gib);
  command->add_option("--output", options->output,
                      "write the diagram to this .npy, rows (birth, death)");
  command->callback([&context, options] {
    run_within_memory("persistence", [&] { run_persistence(context, *options); });
  });
}

// ---- wasserstein

struct WassersteinOptions {
  std::string a, b;
  double order = 2;
  std::string ground = "2";
  std::optional<double> memory_gib;
};

void run_wasserstein(const Context& context, const WassersteinOptions& options) {
  const Printer out = context.printer();
  geometry::DiagramDistanceOptions distance;
  distance.order = options.order;
  distance.ground = require_input(geometry::parse_ground_norm(options.ground));
  geometry::DiagramFile file_a = require_input(geometry::open_diagram(options.a)),
                        file_b = require_input(geometry::open_diagram(options.b));
  MemoryPlan plan(
      fmt::format("the distance of diagrams of {} and {} bars", file_a.bars, file_b.bars),
      options.memory_gib, 1);
  plan.pass("bars and the pairs between them",
            kMatchingBytes * static_cast<double>(file_a.bars + file_b.bars));
  plan.check();
  const geometry::Diagram a = require_input(geometry::read_diagram(file_a));
  const geometry::Diagram b = require_input(geometry::read_diagram(file_b));
  const double points = static_cast<double>(a.size() + b.size());
  geometry::DiagramDistance result;
  {
    // A few rounds over some twenty pairs a point.
    const Progress progress(fmt::format("matching {} with {} points", a.size(), b.size()),
                            5e-7 * points * std::log2(points + 2));
    result = require_input(geometry::diagram_distance(a, b, distance),
                           fmt::format("{}, {}", options.a, options.b));
  }
  const auto endless = [](const geometry::Diagram& bars) {
    return std::count_if(bars.begin(), bars.end(),
                         [](const geometry::Bar& bar) { return std::isinf(bar.death); });
  };
  if (!std::isfinite(result.distance) && endless(a) == endless(b)) {
    throw Failure(
        Exit::kUsage,
        fmt::format("{}, {}: the distance is larger than float64 can hold; scale both down",
                    options.a, options.b));
  }
  if (out.json()) {
    Json json;
    json["distance"] = json_number(result.distance);
    json["order"] = distance.order;
    json["ground"] = geometry::ground_norm_name(distance.ground);
    json["lower_bound"] = json_number(result.lower_bound);
    json["gap"] = json_number(result.gap);
    json["points"] = {a.size(), b.size()};
    json["matched"] = result.matched;
    return out.document(json);
  }
  out.line(fmt::format("{}", result.distance));
}

void add_wasserstein(CLI::App& group, Context& context) {
  auto options = std::make_shared<WassersteinOptions>();
  CLI::App* command = add_command(
      group, "wasserstein",
      "Exact Wasserstein distance between two persistence diagrams, arrays of rows (birth, death).",
      "  tailor geometry wasserstein A.npy B.npy\n"
      "  tailor geometry wasserstein A.npy B.npy --order 1 --ground inf --json    as GUDHI and "
      "Hera by "
      "default");
  command->add_option("A.npy", options->a, "a diagram")->required();
  command->add_option("B.npy", options->b, "another")->required();
  command->add_option("--order", options->order, "q, from 1 to 64 (default 2; ours)");
  command->add_option("--ground", options->ground, "ground norm, 2 or inf (default 2; ours)");
  add_memory_option(command, options->memory_gib);
  command->callback([&context, options] {
    run_within_memory("wasserstein", [&] { run_wasserstein(context, *options); });
  });
}

// ---- gw

struct GwOptions {
  MetricOptions metric;
  std::string x, y;
  geometry::GromovOptions gromov = {.restarts = 24};
  std::optional<double> memory_gib;
};

void run_gw(const Context& context, const GwOptions& options) {
  const Printer out = context.printer();
  geometry::DistanceOptions distance = options.metric.checked();
  const Device device(options.metric.device, out);
  distance.accelerator = device.get();
  note_geometry_unused(out, options.metric);
  geometry::CloudFile file_x =
      require_input(geometry::open_cloud(options.x, options.metric.distances));
  geometry::CloudFile file_y =
      require_input(geometry::open_cloud(options.y, options.metric.distances));
  require_points(file_x, geometry::kEdgePointsMax);
  require_points(file_y, geometry::kEdgePointsMax);
  geometry::GromovOptions gromov = options.gromov;
  gromov.threads = options.metric.threads;
  gromov.accelerator = device.get();
  MemoryPlan plan(fmt::format("gw of {} and {} points", file_x.points, file_y.points),
                  options.memory_gib, options.metric.threads);
  for (const geometry::CloudFile* file : {&file_x, &file_y}) plan_distances(plan, *file);
  if (!options.metric.distances) {
    double measuring = 0;
    for (const geometry::CloudFile* file : {&file_x, &file_y}) {
      const double n = static_cast<double>(file->points);
      measuring += 16 * n * static_cast<double>(file->dimension + geometry::kLanes);
    }
    plan.pass("both clouds while they are measured", measuring);
  }
  plan.pass("matching from all starts",
            geometry::gromov_memory_bytes(std::max(file_x.points, file_y.points), gromov));
  plan.check();
  geometry::DistanceMatrix a, b;
  std::size_t dropped = 0;
  if (options.metric.distances) {
    a = read_distances(file_x, out);
    b = read_distances(file_y, out);
  } else {
    geometry::Cloud x = require_input(geometry::read_cloud(file_x));
    geometry::Cloud y = require_input(geometry::read_cloud(file_y));
    note_looks_like_distances(out, x, options.x);
    if (distance.geometry != geometry::Geometry::kRaw) {
      std::vector<bool> drop_x = geometry::zero_points(x), drop_y = geometry::zero_points(y);
      const std::size_t before = x.count + y.count;
      if (x.count == y.count) {
        // Point i of both is one token: it goes from both or from neither.
        for (std::size_t i = 0; i < drop_x.size(); ++i) {
          drop_x[i] = drop_y[i] = drop_x[i] || drop_y[i];
          dropped += drop_x[i] ? 1 : 0;
        }
      }
      const bool paired = x.count == y.count;
      geometry::remove_points(x, drop_x);
      geometry::remove_points(y, drop_y);
      if (!paired) dropped = before - x.count - y.count;
    }
    const Progress progress("distances",
                            distance_seconds(x.count, x.dimension, options.metric.threads) +
                                distance_seconds(y.count, y.dimension, options.metric.threads),
                            geometry::distance_memory_bytes(x.count, x.dimension) +
                                geometry::distance_memory_bytes(y.count, y.dimension));
    distance.spacing = file_x.file.spacing();
    a = require_input(geometry::pairwise_distances(x.view(), distance), options.x);
    distance.spacing = file_y.file.spacing();
    b = require_input(geometry::pairwise_distances(y.view(), distance), options.y);
  }
  if (!options.metric.distances) {  // in a graph's matrix 0 may stand for "no edge"
    note_duplicates(out, a, options.x);
    note_duplicates(out, b, options.y);
  }
  const double n = static_cast<double>(std::max(a.count(), b.count()));
  const int starts = options.gromov.random_starts + 3 +
                     (n <= geometry::kRestartedMax ? options.gromov.restarts : 0);
  geometry::GromovResult result;
  {
    const Progress progress(
        fmt::format("matching {} points from {} starts", n, starts),
        4.0 * n * n * n * starts / kDenseRate / std::min(starts, options.metric.threads),
        plan.total());
    result = require_input(geometry::gromov_wasserstein(a, b, gromov),
                           fmt::format("{}, {}", options.x, options.y));
  }
  // E is a square: it leaves the range of float64 before its root does.
  const bool beyond = std::isinf(result.energy) || std::isinf(result.identity_energy) ||
                      (result.energy == 0 && result.value > 0);
  if (beyond) {
    out.note(
        "tailor: energies (E, in squared distances) leave the range of float64 and are given as "
        "null or 0; the value, their root, is right");
  }
  if (!std::isfinite(result.value)) {
    throw Failure(Exit::kUsage,
                  fmt::format("{}, {}: the value is larger than float64 can hold; scale both down",
                              options.x, options.y));
  }
  const auto energy_json = [](double energy) {
    return std::isfinite(energy) ? Json(energy) : Json();
  };
  std::string note;
  if (!result.certified) {
    note = fmt::format(
        "not certified: the best of {} starts, an upper bound; sqrt(min E) is at least {:.6g}{}",
        result.runs.size(), std::sqrt(result.lower_bound),
        result.no_copy ? ", and above 0: no relabelling makes the two matrices equal"
                       : ". More --starts or --restarts may lower the value");
    out.note("tailor: " + note);
  }
  if (out.json()) {
    Json json;
    json["value"] = result.value;
    json["energy"] = energy_json(result.energy);
    json["lower_bound"] = energy_json(result.lower_bound);
    json["identity"] = energy_json(result.identity_energy);
    json["start"] = result.start;
    json["certified"] = result.certified;
    json["note"] = note.empty() ? Json() : Json(note);
    json["lower_bounds"] = {{"norm", energy_json(result.norm_lower_bound)},
                            {"second", energy_json(result.second_lower_bound)},
                            {"third", energy_json(result.third_lower_bound)}};
    add_metric(json, options.metric);
    json["points"] = {a.count(), b.count()};
    json["dropped"] = dropped;
    json["duplicates"] = {a.duplicates(), b.duplicates()};
    json["seed"] = gromov.seed;
    json["starts"] = Json::array();
    for (const geometry::GromovRun& run : result.runs) {
      json["starts"].push_back({{"start", run.start},
                                {"start_energy", energy_json(run.start_energy)},
                                {"energy", energy_json(run.energy)},
                                {"iterations", run.iterations},
                                {"swaps", run.swaps}});
    }
    json["permutation"] = result.permutation;
    return out.document(json);
  }
  std::vector<std::vector<std::string>> rows = {
      {"value, sqrt(E)", fmt::format("{}", result.value)},
      {"energy E", fmt::format("{}", result.energy)},
      {"E of the identity", fmt::format("{}", result.identity_energy)},
      {"lower bound of E", fmt::format("{}", result.lower_bound)},
      {"certified optimal", result.certified ? "yes" : "no"},
      {"start that won", result.start},
      {"starts tried", fmt::format("{}", result.runs.size())}};
  if (dropped > 0) rows.push_back({"zero vectors left out", fmt::format("{}", dropped)});
  out.table({{"GROMOV-WASSERSTEIN"}, {"", Align::kRight}}, rows);
}

void add_gw(CLI::App& group, Context& context) {
  auto options = std::make_shared<GwOptions>();
  CLI::App* command = add_command(
      group, "gw",
      "Gromov-Wasserstein distance between two clouds of equally many points, or two distance "
      "matrices: value = sqrt(min E), E = mean (A_ik - B_p(i)p(k))^2 over matchings p. Bounds and "
      "the identity's E are in units of E.",
      "  tailor geometry gw X.npy Y.npy --geometry spherical\n"
      "  tailor geometry gw A.npy B.npy --distances --starts 32 --seed 7 --json");
  command->add_option("X.npy", options->x, "a cloud, or with --distances a matrix")->required();
  command->add_option("Y.npy", options->y, "another of as many points")->required();
  add_metric_options(command, options->metric);
  command
      ->add_option("--starts", options->gromov.random_starts,
                   "random starts beside identity, distance profiles and product (default 8; ours)")
      ->check(CLI::Range(0, 100000));
  command
      ->add_option(
          "--restarts", options->gromov.restarts,
          "further starts near the best while the value is not certified; above 256 points "
          "only where no bound tells the sides apart (default 24; ours)")
      ->check(CLI::Range(0, 100000));
  command->add_option("--seed", options->gromov.seed,
                      "of the random starts and the restarts (default 0; ours)");
  command
      ->add_option("--iterations", options->gromov.iterations_max,
                   "most steps a start (default 200; ours)")
      ->check(CLI::Range(1, 1000000));
  add_memory_option(command, options->memory_gib);
  command->callback(
      [&context, options] { run_within_memory("gw", [&] { run_gw(context, *options); }); });
}

// ---- dimension

struct DimensionFlags {
  MetricOptions metric;
  std::string file;
  geometry::DimensionOptions dimension;
  std::optional<double> memory_gib;
};

Json dimension_json(const geometry::DimensionEstimate& estimate) {
  Json json;
  json["two_nn"] = json_number(estimate.two_nn);
  json["two_nn_fit"] = json_number(estimate.two_nn_fit);
  json["levina_bickel"] = json_number(estimate.levina_bickel);
  json["two_nn_biased"] = json_number(estimate.two_nn_biased);
  json["two_nn_fit_shifted"] = json_number(estimate.two_nn_fit_shifted);
  json["levina_bickel_unbiased"] = json_number(estimate.levina_bickel_unbiased);
  json["levina_bickel_mean"] = json_number(estimate.levina_bickel_mean);
  json["levina_bickel_mean_unbiased"] = json_number(estimate.levina_bickel_mean_unbiased);
  json["points"] = estimate.points;
  json["crowded"] = estimate.crowded;
  return json;
}

void run_dimension(const Context& context, const DimensionFlags& options) {
  const Printer out = context.printer();
  geometry::DistanceOptions distance = options.metric.checked();
  const Device device(options.metric.device, out);
  distance.accelerator = device.get();
  geometry::CloudFile file =
      require_input(geometry::open_cloud(options.file, options.metric.distances));
  MemoryPlan plan(fmt::format("the dimension of {} points", file.points), options.memory_gib,
                  options.metric.threads);
  plan_distances(plan, file);
  plan.pass("neighbours", geometry::dimension_memory_bytes(file.points, options.dimension));
  plan.check();
  const Measured x = measure_one(out, file, options.metric, distance);
  std::vector<geometry::DimensionEstimate> scales;
  {
    const double n = static_cast<double>(x.matrix.count());
    const Progress progress(fmt::format("neighbours of {} points", n), 4 * n * n / kDenseRate * 4);
    scales = require_input(
        geometry::dimension_by_scale(x.matrix, options.dimension),
        x.dropped == 0 ? options.file
                       : fmt::format("{} ({} zero vectors, which have no direction, left out)",
                                     options.file, x.dropped));
  }
  const geometry::DimensionEstimate& whole = scales.front();
  if (100 * whole.crowded > whole.points) {
    out.note(fmt::format(
        "tailor: {}: {} of {} points have a neighbour over 100,000 times nearer than "
        "the others: if they are repeats, apart by rounding (of arccos, of float32 kept "
        "as float64), take them out; the estimates below are of that rounding",
        options.file, whole.crowded, whole.points));
  }
  if (out.json()) {
    Json json = dimension_json(whole);
    json["dropped"] = whole.dropped + x.dropped;
    json["duplicates"] = whole.dropped;
    json["zero_vectors"] = x.dropped;
    json["neighbours"] = options.dimension.neighbours;
    add_metric(json, options.metric);
    json["scales"] = Json::array();
    for (const auto& estimate : scales) json["scales"].push_back(dimension_json(estimate));
    return out.document(json);
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& estimate : scales) {
    rows.push_back({fmt::format("{}", estimate.points), fixed(estimate.two_nn, 4),
                    fixed(estimate.two_nn_fit, 4), fixed(estimate.levina_bickel, 4)});
  }
  out.table({{"POINTS", Align::kRight},
             {"TWO-NN", Align::kRight},
             {"TWO-NN FIT", Align::kRight},
             {"LEVINA-BICKEL", Align::kRight}},
            rows);
  if (whole.dropped + x.dropped > 0) {
    out.note(fmt::format("left out: {} duplicates, {} zero vectors", whole.dropped, x.dropped));
  }
}

void add_dimension(CLI::App& group, Context& context) {
  auto options = std::make_shared<DimensionFlags>();
  CLI::App* command =
      add_command(group, "dimension",
                  "Intrinsic dimension of a cloud or a distance matrix by TwoNN and Levina-Bickel, "
                  "at all, half "
                  "and a quarter of its points. Both come out too low above about 8.",
                  "  tailor geometry dimension X.npy\n"
                  "  tailor geometry dimension D.npy --distances --neighbours 10 --json");
  command->add_option("X.npy", options->file, "a cloud, or with --distances a matrix")->required();
  add_metric_options(command, options->metric);
  command->add_option("--neighbours", options->dimension.neighbours,
                      "k of Levina-Bickel, at least 3 (default 20; ours)");
  command->add_option("--discarded", options->dimension.discarded,
                      "share of the largest ratios that the TwoNN fit leaves out (default 0.1, as "
                      "scikit-dimension and dadapy)");
  command->add_option("--min-points", options->dimension.points_min,
                      "refuse fewer distinct points (default 50; ours)");
  command->add_option("--seed", options->dimension.seed,
                      "of the subsets of half and a quarter (default 0; ours)");
  add_memory_option(command, options->memory_gib);
  command->callback([&context, options] {
    run_within_memory("dimension", [&] { run_dimension(context, *options); });
  });
}

// ---- work

struct WorkFlags {
  std::string before, after;
  std::string sequences;            // a file; "" = none
  std::string output;               // a profile to write; "" = none
  std::size_t sequence_length = 0;  // 0 = not given
  geometry::WorkOptions work;
  std::string device = "cpu";
  std::optional<double> memory_gib;
};

// The sequence of every token as the user gives them; empty when nobody says.
std::vector<std::int64_t> sequences_of(const WorkFlags& options, std::size_t points) {
  if (!options.sequences.empty()) {
    return require_input(geometry::read_sequences(options.sequences, points));
  }
  std::vector<std::int64_t> sequences;
  const std::size_t length = options.sequence_length;
  if (length == 0) return sequences;
  if (points % length != 0) {
    throw Failure(Exit::kUsage,
                  fmt::format("--sequence-length {}: {} tokens are no whole number of sequences; "
                              "give --sequences, one number a token, if they differ in length",
                              length, points));
  }
  for (std::size_t i = 0; i < points; ++i) {
    sequences.push_back(static_cast<std::int64_t>(i / length));
  }
  return sequences;
}

// What nobody may overlook about the errors of a profile.
void note_errors(const Printer& out, const geometry::WorkProfile& profile) {
  if (!profile.sequences_given) {
    out.note(
        "tailor: no sequences are given: each token is taken as a sequence of its own. Where "
        "tokens share sequences the errors are too small; give --sequences ids.npy (as "
        "tailor-trainer clouds writes them) or --sequence-length T");
  }
  if (profile.subsamples < profile.subsamples_asked) {
    out.note(
        fmt::format("tailor: {} of {} subsamples: {} tokens of {} sequences hold no more of "
                    "{} that share no sequence{}",
                    profile.subsamples, profile.subsamples_asked, profile.usable, profile.sequences,
                    profile.tokens,
                    profile.subsamples < 2 ? "; gromov and topology have no standard error" : ""));
  }
}

std::string error_text(const std::optional<double>& error) {
  return error ? fmt::format("{:.2g}", *error) : "-";
}

void run_work(const Context& context, const WorkFlags& options) {
  const Printer out = context.printer();
  require_input(options.work.validate());
  const Device device(options.device, out);
  geometry::WorkOptions work = options.work;
  work.accelerator = device.get();
  geometry::StackFile file_before = require_input(geometry::open_stack(options.before)),
                      file_after = require_input(geometry::open_stack(options.after));
  const geometry::Stack &shape = file_before.stack, &other = file_after.stack;
  if (shape.layers != other.layers || shape.points != other.points ||
      shape.dimension != other.dimension) {
    throw Failure(
        Exit::kUsage,
        fmt::format("{} holds {} x {} x {} (layers, points, coordinates) and {} holds {} x "
                    "{} x {}: both must hold the same tokens",
                    options.before, shape.layers, shape.points, shape.dimension, options.after,
                    other.layers, other.points, other.dimension));
  }
  MemoryPlan plan(fmt::format("work of {} layers of {} tokens", shape.layers, shape.points),
                  options.memory_gib, work.threads);
  plan.hold("both files as float32", 8.0 * static_cast<double>(file_before.file.size()));
  const bool has_sequences = !options.sequences.empty() || options.sequence_length > 0;
  if (has_sequences) plan.hold("sequences", 16.0 * static_cast<double>(shape.points));
  plan.pass(fmt::format("subsamples of {} tokens ({} for shift) on {} threads",
                        std::min(work.tokens, shape.points),
                        std::min(work.linear_tokens, shape.points), work.threads),
            geometry::work_memory_bytes(shape.layers, shape.points, shape.dimension, work));
  plan.check();
  const std::vector<std::int64_t> sequences = sequences_of(options, shape.points);
  work.sequences = sequences;
  const geometry::Stack before = require_input(geometry::read_stack(file_before));
  const geometry::Stack after = require_input(geometry::read_stack(file_after));
  if (before.rounded || after.rounded) {
    out.note("tailor: some numbers are no float32 and were rounded to it; activations are float32");
  }
  const std::size_t size = before.points * before.dimension;
  std::vector<geometry::LayerClouds> layers(before.layers);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    layers[l].layer = static_cast<int>(l);
    layers[l].before = std::span<const float>(before.values).subspan(l * size, size);
    layers[l].after = std::span<const float>(after.values).subspan(l * size, size);
    layers[l].dimension = before.dimension;
  }
  geometry::WorkProfile profile;
  {
    const Progress progress(
        fmt::format("work of {} layers", layers.size()),
        geometry::work_cost(layers.size(), before.points, before.dimension, options.work) /
            kWorkRate / options.work.threads,
        plan.total());
    profile = require_input(geometry::measure_work(layers, work),
                            fmt::format("{}, {}", options.before, options.after));
  }
  if (profile.duplicates > 0) {
    out.note(
        fmt::format("tailor: up to {} of {} tokens of a subsample are one with another: equal, or "
                    "closer than float32 can tell",
                    profile.duplicates, profile.tokens));
  }
  note_errors(out, profile);
  if (!options.output.empty()) {
    require_input(
        write_file_atomic(options.output, geometry::work_profile_json(profile) + "\n", false));
  }
  if (out.json()) {
    Json json = geometry::work_measurement_json(profile);
    json["rounded_to_float32"] = before.rounded || after.rounded;
    return out.document(json);
  }
  std::vector<Column> columns;
  if (layers.size() > 1) columns.push_back({"LAYER", Align::kRight});
  columns.push_back({"GEOMETRY"});
  std::vector<std::string> names;
  for (const geometry::Statistic& statistic : geometry::statistics()) {
    const std::string name(statistic.name);
    const auto& chosen = options.work.statistics;
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), name) == chosen.end()) continue;
    names.push_back(name);
    columns.push_back({name + " (SE)", Align::kRight});
  }
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < profile.entries.size(); i += names.size()) {
    const geometry::WorkEntry& first = profile.entries[i];
    std::vector<std::string> row;
    if (layers.size() > 1) row.push_back(std::to_string(first.layer));
    row.emplace_back(geometry::geometry_name(first.geometry));
    for (std::size_t s = 0; s < names.size(); ++s) {
      const geometry::WorkEntry& entry = profile.entries[i + s];
      row.push_back(fmt::format("{:.6g} ({})", entry.value, error_text(entry.standard_error)));
    }
    rows.push_back(std::move(row));
  }
  out.table(columns, rows);
  const std::string dropped =
      profile.dropped > 0 ? fmt::format("; {} tokens with a zero vector left out", profile.dropped)
                          : "";
  out.note(fmt::format("{} subsamples of {} tokens ({} for shift) from {} tokens of {}{}",
                       profile.subsamples, profile.tokens, profile.linear_tokens, profile.usable,
                       profile.sequences_given ? fmt::format("{} sequences", profile.sequences)
                                               : "unknown sequences",
                       dropped));
  std::vector<std::vector<std::string>> shares;
  for (const geometry::FrontLoad& of : geometry::front_loads(profile)) {
    shares.push_back({std::string(geometry::geometry_name(of.geometry)), of.statistic,
                      fmt::format("{:.4f} ({})", of.value, error_text(of.standard_error))});
  }
  if (shares.empty()) return;
  out.table({{"GEOMETRY"}, {"STATISTIC"}, {"FIRST THIRD (SE)", Align::kRight}}, shares);
}

void add_work(CLI::App& group, Context& context) {
  auto options = std::make_shared<WorkFlags>();
  CLI::App* command =
      add_command(group, "work",
                  "What a layer does to its token cloud: every statistic in three geometries, mean "
                  "and standard error over disjoint subsamples of whole sequences. Files: float32 "
                  "[tokens, coordinates] or [layers, tokens, coordinates]; row i of both is the "
                  "same token.",
                  "  tailor geometry work before.npy after.npy --sequences sequences.npy\n"
                  "  tailor geometry work before.npy after.npy --sequence-length 255 --tokens 128 "
                  "--json");
  command->add_option("BEFORE.npy", options->before, "the cloud before the layer")->required();
  command->add_option("AFTER.npy", options->after, "the cloud after it")->required();
  command->add_option("--tokens", options->work.tokens,
                      "tokens a subsample, fewer when there are fewer (default 256; ours)");
  command->add_option("--linear-tokens", options->work.linear_tokens,
                      "the same for shift, which costs little (default 2048; ours)");
  command->add_option("--subsamples", options->work.subsamples,
                      "subsamples; they share no sequence, so there are fewer where tokens are few "
                      "(default 8; ours)");
  CLI::Option* ids = command->add_option(
      "--sequences", options->sequences,
      "a .npy with the sequence of every token, any integers: tokens of one sequence resemble "
      "each other (default: each token a sequence of its own, which is said)");
  command
      ->add_option("--sequence-length", options->sequence_length,
                   "in place of --sequences: so many tokens in a row are one sequence")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 32))
      ->excludes(ids);
  command->add_option("--statistic", options->work.statistics,
                      "only these: shift, gromov, topology (default: all)");
  command->add_option("--output", options->output,
                      "write the whole profile to this file, for `allocate --profile`");
  add_rho_option(command, options->work.rho);
  command->add_option("--seed", options->work.seed, "of the token positions (default 0; ours)");
  add_threads_option(command, options->work.threads);
  add_device_option(command, options->device);
  add_memory_option(command, options->memory_gib);
  command->callback([&context, options] {
    // A smaller --tokens needs no second flag, and neither does a larger one.
    options->work.linear_tokens = std::max(options->work.linear_tokens, options->work.tokens);
    run_within_memory("work", [&] { run_work(context, *options); });
  });
}

}  // namespace
}  // namespace geometry_tools

void add_geometry(CLI::App& app, Context& context) {
  CLI::App* group = add_command(
      app, "geometry", "Measures clouds, distance matrices and diagrams in .npy files.",
      "  tailor geometry work before.npy after.npy        what a layer does to its tokens\n"
      "  tailor geometry persistence X.npy                loops of a cloud\n"
      "  tailor geometry allocate problem.json            widths from measured work, under a "
      "budget");
  group->require_subcommand(1);
  geometry_tools::add_persistence(*group, context);
  geometry_tools::add_wasserstein(*group, context);
  geometry_tools::add_gw(*group, context);
  geometry_tools::add_dimension(*group, context);
  geometry_tools::add_work(*group, context);
  geometry_tools::add_allocate(*group, context);
}

}  // namespace tailor::client
