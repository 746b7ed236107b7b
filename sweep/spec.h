// Spec: a parsed sweep file, as a value. One file, read top to bottom, says everything a sweep does
// (docs/sweep-file.md lists every key; the worked example stands in deploy/sweeps/).
//
// The TOML text itself is what travels and what is stored; client and coordinator parse it with
// this one parser, so there is one schema. Torch-free, I/O-free.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "model/shape/architecture.h"
#include "model/shape/count.h"
#include "protocol/report.h"
#include "protocol/trial_spec.h"

namespace tailor::sweep {

/// A value on an axis of the space.
using AxisValue = std::variant<std::int64_t, double, std::string, bool>;
/// Text form, as in names of candidates: "hourglass", "4", "0.4".
std::string to_text(const AxisValue& value);

/// Assignments "ffn.k" -> 4 that a candidate makes on top of [architecture] and [train].
using Point = std::map<std::string, AxisValue>;
/// "d_model=768 ffn.k=4": the name of a candidate of the space.
std::string point_name(const Point& point);

/// An axis has a value only where the axis `path` has one of `values`.
struct AxisCondition {
  std::string path;
  std::vector<AxisValue> values;
};

/// One free parameter: a list of values, or a range.
struct Axis {
  std::string path;               ///< dotted key of the sweep file, "ffn.k", "train.optimizer.lr"
  std::vector<AxisValue> values;  ///< non-empty for a list
  bool is_integer = false;        ///< for ranges
  double min = 0, max = 0, step = 0;  ///< step 0 = continuous (cannot be in a grid)
  bool log = false;
  std::vector<AxisCondition> when = {};  ///< all must hold; of axes that stand earlier
  /// Number of values on a grid; 0 when continuous.
  std::uint64_t grid_size() const;
  AxisValue at(std::uint64_t index) const;  ///< REQUIRES: index < grid_size()
  AxisValue draw(double uniform) const;     ///< REQUIRES: 0 <= uniform < 1
};

enum class SolveFor { kHiddenWidth, kLayers, kModelWidth };

struct Budget {
  std::optional<std::int64_t> parameters;  ///< nullopt = "same as baseline", or `of_each_size`
  /// parameters = "of each size": every [[scaling.size]] has its own; other candidates have none.
  bool of_each_size = false;
  shape::BudgetCounts counts = shape::BudgetCounts::kBody;
  SolveFor solve_for = SolveFor::kHiddenWidth;
  std::int32_t width_multiple = 1;  ///< hidden units are spread in this unit
  std::int64_t tolerance = 0;       ///< parameters a candidate may be off; 0 = exact
  /// attention = "fixed": the attention parameters of every candidate must equal those of the
  /// baseline (of [architecture] when there is none). Needs solve_for = "d_h".
  bool fix_attention = false;
};

struct NamedCandidate {
  std::string name;
  Point overrides;
  /// Only these seeds are trained; empty = all. An inserted one is trained to be measured.
  std::vector<std::uint64_t> seeds = {};
  /// Not written in the file: a schedule needs its measurement (sweep/references.h).
  bool inserted = false;
  friend bool operator==(const NamedCandidate&, const NamedCandidate&) = default;
};

/// Names of coordinator/search/table.cc.
struct SearchSpec {
  std::string algorithm = "grid";
  /// Candidates to draw from the space, seeds not counted; 0 = all (grid).
  std::uint64_t trials = 0;
  std::uint64_t seed = 1;
};

/// What one trial takes, and what all of them may take. A trial runs one rank in each of its slots,
/// on `nodes` different workers with as many slots each, or, where so many that could take it are
/// not connected, on as many as are, `nodes_min` at least; it is placed whole or not at all.
struct ResourceSpec {
  std::int32_t gpus = 0;  ///< of one node; 0 = it runs on CPU slots
  std::int32_t cpus = 1;  ///< CPU slots of one node; 0 exactly when `gpus` > 0
  std::int32_t nodes = 1;
  std::int32_t nodes_min = 1;          ///< 1 to `nodes`
  std::uint64_t gpu_memory_bytes = 0;  ///< each GPU has at least so much; 0 = any
  std::uint64_t memory_bytes = 0;      ///< of a node's memory, kept for the trial; 0 = not counted
  std::vector<std::string> labels;     ///< each node has all of them; ascending, each once
  std::int32_t parallel = 0;           ///< trials at once, at most; 0 = no limit
  std::int32_t priority = 0;           ///< higher first
  bool preemptible = true;  ///< may be told to save and stop for a trial of higher priority

  std::int32_t slots() const { return gpus > 0 ? gpus : cpus; }  ///< of one node
  std::int32_t ranks() const { return slots() * nodes; }
  friend bool operator==(const ResourceSpec&, const ResourceSpec&) = default;
};

/// What one trial takes, for people: "4 GPUs of at least 20.0 GiB on each of 2 nodes (8 ranks)",
/// "1 CPU slot on each of 1 to 2 nodes (1 to 2 ranks)".
std::string resources_text(const ResourceSpec& resources);

/// Times after which something is ended with class timeout; 0 = no limit.
struct LimitSpec {
  std::int64_t progress_ms = 0;  ///< without a new step
  std::int64_t attempt_ms = 0;   ///< of one attempt
  std::int64_t trial_ms = 0;     ///< of all attempts of a trial together, while they run
  friend bool operator==(const LimitSpec&, const LimitSpec&) = default;
};

/// What is decided before any result is seen: [compare].
struct CompareSpec {
  std::string primary;  ///< the candidate whose p is not adjusted; "" = none
  /// The smallest difference of the objective that matters, in its unit.
  double smallest_effect = 0.02;
  std::optional<double> expected_sd;  ///< of paired differences over seeds, as the user expects it
  friend bool operator==(const CompareSpec&, const CompareSpec&) = default;
};

/// Families x sizes, each pair a named candidate "FAMILY @ SIZE": [scaling].
struct ScalingSpec {
  std::vector<std::string> families;
  std::vector<std::string> sizes;
  std::string baseline;  ///< family; "" exactly when there are none
  friend bool operator==(const ScalingSpec&, const ScalingSpec&) = default;
};
std::string scaling_candidate_name(std::string_view family, std::string_view size);

struct Spec {
  std::string name;
  std::string description;
  std::vector<std::string> objectives;  ///< first is the main one; "validation_loss" minimised
  std::string baseline;                 ///< name of a candidate, "" = none
  protocol::DataSpec data;              ///< patterns, already made absolute
  Point architecture;  ///< every key of [architecture], flattened ("ffn.kind", ...)
  std::optional<Budget> budget;
  std::vector<NamedCandidate> candidates;
  std::vector<Axis> space;  ///< in file order; the last axis varies fastest on the grid
  /// Expressions over paths' last names, "25 <= d_model / layers <= 500".
  std::vector<std::string> constraints;
  SearchSpec search;
  CompareSpec compare;
  ScalingSpec scaling;  ///< its pairs are `candidates`, after those of the file
  protocol::TrainSpec train;
  /// > 0: train.tokens = this x body parameters of the candidate.
  double tokens_per_parameter = 0;
  std::vector<std::uint64_t> seeds;  ///< pair ids, never empty
  protocol::GeometrySpec geometry;
  ResourceSpec resources;
  LimitSpec limits;
  /// Further attempts by class (defaults filled in).
  std::map<protocol::EndClass, std::int32_t> retry;
};

/// A sweep file is read by people; a larger one is a mistake (and would be one
/// row of the database).
inline constexpr std::size_t kSweepFileBytesMax = 4u << 20;

/// What a file is read for: a stored one was accepted once, under the rules of its day.
enum class Origin { kSubmitted, kStored };

/// True for a name that a command line would take for an id or a word with a meaning: digits alone,
/// or after one of the letters s, t, w, a ("t41", "S3", "t41.2"), and "last".
bool reads_like_id(std::string_view name);

/// Parses and validates a sweep file. `base_dir` (absolute) is where relative data paths start; it
/// is a name, never a pattern. A name that reads like an id is refused unless the file is stored
/// already.
/// Errors: kInvalidArgument "FILE:LINE:COLUMN: ..." with what is allowed and, for an unknown key,
/// the nearest known one. Never partly: there is a Spec or an error.
Result<Spec> parse(std::string_view toml, const std::string& file, const std::string& base_dir,
                   Origin origin = Origin::kSubmitted);

/// Identity of a submission: SHA-256 over base_dir and the file's text.
std::string spec_hash(std::string_view toml, const std::string& base_dir);

/// The seeds that a candidate of this name is trained with.
const std::vector<std::uint64_t>& seeds_of(const Spec& spec, std::string_view candidate);

/// Number of grid points (product of axes; saturates at 2^63); 0 when an axis is continuous; 1
/// without axes counts as 0: a sweep without [space] has only its named candidates.
std::uint64_t grid_size(const Spec& spec);
/// Points of [space] that the search will try: the grid or `search.trials` of it. 0 without
/// [space].
std::uint64_t search_size(const Spec& spec);
/// Grid point `index` in mixed radix, last axis fastest. REQUIRES: index < grid_size(spec).
Point grid_point(const Spec& spec, std::uint64_t index);
/// A random point: draw `index` of the stream `seed` (position-addressed, so
/// restarts repeat nothing).
Point random_point(const Spec& spec, std::uint64_t seed, std::uint64_t index);

}  // namespace tailor::sweep
