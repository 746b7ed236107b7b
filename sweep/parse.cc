// The sweep file, section by section. Every mistake is noted in the document with its position; the
// first one is the answer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/config.h"
#include "base/hash.h"
#include "base/text.h"
#include "sweep/candidate.h"
#include "sweep/compare_keys.h"
#include "sweep/constraint_names.h"
#include "sweep/expression.h"
#include "sweep/keys.h"
#include "sweep/references.h"
#include "sweep/retry_rules.h"
#include "sweep/spec.h"
#include "sweep/table_reader.h"
#include "sweep/widths.h"

namespace tailor::sweep {
namespace {

constexpr std::int64_t kParametersMax = 1'000'000'000'000;
constexpr std::size_t kSeedsMax = 1'000;
constexpr std::int64_t kSlotsOfNodeMax = 256;
constexpr std::int64_t kNodesMax = 4'096;
constexpr std::int64_t kPriorityMax = 1'000'000;
constexpr std::size_t kLabelBytesMax = 64;
constexpr std::size_t kLabelsMax = 16;
constexpr std::int64_t kLimitMsMax = std::int64_t{3'650} * 86'400'000;

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near);
}

class Parser {
 public:
  Parser(ConfigDocument& document, std::string base_dir, Origin origin)
      : document_(document),
        root_(document.root()),
        base_dir_(std::move(base_dir)),
        origin_(origin) {}

  Result<Spec> run() {
    TAILOR_RETURN_IF_ERROR(top());
    TAILOR_RETURN_IF_ERROR(data());
    TAILOR_RETURN_IF_ERROR(architecture());
    TAILOR_RETURN_IF_ERROR(train());
    TAILOR_RETURN_IF_ERROR(budget());
    TAILOR_RETURN_IF_ERROR(candidates());
    TAILOR_RETURN_IF_ERROR(scaling());
    TAILOR_RETURN_IF_ERROR(calibrate());
    TAILOR_RETURN_IF_ERROR(check_baseline());
    TAILOR_RETURN_IF_ERROR(compare());
    TAILOR_RETURN_IF_ERROR(space());
    TAILOR_RETURN_IF_ERROR(search());
    TAILOR_RETURN_IF_ERROR(early_stopping());
    TAILOR_RETURN_IF_ERROR(seeds());
    TAILOR_RETURN_IF_ERROR(evaluate());
    TAILOR_RETURN_IF_ERROR(resources());
    TAILOR_RETURN_IF_ERROR(limits());
    TAILOR_RETURN_IF_ERROR(retry());
    TAILOR_RETURN_IF_ERROR(references());
    TAILOR_RETURN_IF_ERROR(check_named());
    return std::move(spec_);
  }

 private:
  struct PlacedAxis {
    ConfigPosition at;
    ConfigValue value;
    Axis axis;
  };

  Status missing(ConfigTable& table, std::string_view what) {
    table.fail(fmt::format("{} is missing", what));
    return document_.status();
  }

  Status top() {
    const auto name = root_.value("name");
    spec_.description = root_.string("description").value_or("");
    const auto objectives = root_.value("objectives");
    spec_.baseline = root_.string("baseline").value_or("");
    for (const char* section : {"data", "architecture", "budget", "candidate", "scaling",
                                "calibrate", "compare", "space", "search", "early_stopping",
                                "train", "seeds", "evaluate", "resources", "limits", "retry"}) {
      (void)root_.value(section);  // known; read in its turn
    }
    TAILOR_RETURN_IF_ERROR(root_.finish());
    if (!name) return missing(root_, "`name`");
    if (const auto text = name->as_string()) {
      spec_.name = *text;
      check_sweep_name(*name);
    }
    spec_.objectives = {"validation_loss"};
    if (objectives) read_objectives(*objectives);
    return document_.status();
  }

  /// Names stand in command lines and paths, and must not look like an id ("s3")
  /// or a word with a meaning.
  void check_sweep_name(const ConfigValue& value) {
    const std::string& name = spec_.name;
    const bool characters = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '_' || c == '.';
    });
    if (name.empty() || name.size() > 100 || !characters || name.front() == '-' ||
        name.front() == '.') {
      value.fail(
          fmt::format("`name` is \"{}\"; allowed: 1 to 100 letters, digits, '-', '_' and '.', not "
                      "starting with '-' or '.'",
                      name));
    } else if (origin_ == Origin::kSubmitted && reads_like_id(name)) {
      value.fail(fmt::format(
          "`name` is \"{}\", which reads like an id (s3 is a sweep, t41 a trial, t41.2 an "
          "attempt, w2 a worker) or the word for the newest sweep (last), so that `tailor "
          "cancel {}` could hit something else; allowed: any other name, such as \"run-{}\"",
          name, name, name));
    }
  }

  void read_objectives(const ConfigValue& value) {
    spec_.objectives.clear();
    for (const ConfigValue& item : value.as_array()) {
      const auto objective = item.as_string();
      if (!objective) return;
      if (*objective != "validation_loss") {
        static constexpr std::string_view kKnown[] = {"validation_loss"};
        return item.fail(fmt::format("`{}` is \"{}\"{}; allowed: validation_loss", item.path(),
                                     *objective, did_you_mean(*objective, kKnown)));
      }
      spec_.objectives.push_back(*objective);
    }
    if (spec_.objectives.size() != 1) {
      value.fail("`objectives` must name one objective; allowed: [\"validation_loss\"]");
    }
  }

  /// Every pattern of a comma-separated list made absolute. Patterns are what the file writes,
  /// never the folder's name; ".." stays, because only the system knows where it leads after a
  /// link.
  std::string absolute(const std::string& patterns) const {
    std::string out;
    for (std::string_view pattern : split_patterns(patterns)) {
      if (!out.empty()) out += ',';
      if (!pattern.starts_with('/') && !base_dir_.empty()) {
        while (pattern.starts_with("./")) pattern.remove_prefix(2);
        out += escape_pattern(base_dir_);
        if (!out.ends_with('/')) out += '/';
      }
      out += pattern;
    }
    return out;
  }

  Status data() {
    auto table = root_.table("data");
    TAILOR_RETURN_IF_ERROR(document_.status());
    if (!table) return missing(root_, "[data]");
    const auto train = table->value("train");
    const auto validation = table->value("validation");
    const auto length = table->integer_in("sequence_length", 1, 1 << 24);
    TAILOR_RETURN_IF_ERROR(table->finish());
    if (!train) return missing(*table, "`data.train`");
    if (!validation) return missing(*table, "`data.validation`");
    if (!length) return missing(*table, "`data.sequence_length`");
    for (const auto& [value, out] :
         {std::pair(&*train, &spec_.data.train), std::pair(&*validation, &spec_.data.validation)}) {
      const auto path = value->as_string();
      if (!path) continue;
      for (const std::string_view pattern : split_patterns(*path)) {
        if (!pattern.empty()) continue;
        value->fail(
            fmt::format("`{}` has an empty path; allowed: paths and patterns separated by commas",
                        value->path()));
      }
      *out = absolute(*path);
    }
    spec_.data.sequence_length = static_cast<std::int32_t>(*length);
    return document_.status();
  }

  Status architecture() {
    auto table = root_.table("architecture");
    TAILOR_RETURN_IF_ERROR(document_.status());
    if (!table) return missing(root_, "[architecture]");
    read_architecture(*table, &spec_.architecture);
    TAILOR_RETURN_IF_ERROR(table->finish());
    if (spec_.architecture.contains("widths")) {
      table->value("widths")->fail(
          "`architecture.widths` are those of one candidate; allowed: `widths` in a [[candidate]]");
    } else if (asks_for_geometry(spec_.architecture)) {
      table->fail(
          "`architecture.schedule.kind` is \"geometry\", and then there is nothing to measure "
          "first; allowed: that schedule in a [[candidate]]");
    }
    return document_.status();
  }

  Status train() {
    auto table = root_.table("train");
    TAILOR_RETURN_IF_ERROR(document_.status());
    if (!table) return missing(root_, "[train]");
    std::set<std::string_view> seen;
    const auto set = [&](std::string_view path, const AxisValue& value, const ConfigValue& where) {
      if (!seen.insert(path).second) return where.fail(fmt::format("`{}` is set twice", path));
      const Status status = set_train(path, value, spec_.data.sequence_length, &spec_.train,
                                      &spec_.tokens_per_parameter);
      if (!status.is_ok()) where.fail(status.message());
    };
    read_keys(*table, "train.", train_keys(), [&](const Key& key, const ConfigValue& value) {
      for (const auto& [path, read] : read_values(key, value)) set(path, read, value);
    });
    TAILOR_RETURN_IF_ERROR(table->finish());
    if (spec_.train.optimizer.lr_mode == protocol::LrMode::kStepLaw &&
        seen.contains("train.optimizer.lr")) {
      table->fail(
          "`train.optimizer.lr` is given, but `lr_mode` = \"step_law\" sets it; leave one out");
    }
    const Status status =
        finish_train(spec_.data.sequence_length, spec_.tokens_per_parameter, &spec_.train);
    if (!status.is_ok()) table->fail(status.message());
    return document_.status();
  }

  Status budget() {
    auto table = root_.table("budget");
    if (!table) return document_.status();
    Budget budget;
    const auto parameters = table->value("parameters");
    const auto counts = table->one_of("counts", {"body", "body+norms", "total"});
    const auto solve_value = table->value("solve_for");
    const auto solve_for = table->one_of("solve_for", {"d_h", "layers", "d_model"});
    budget.width_multiple =
        static_cast<std::int32_t>(table->integer_in("width_multiple", 1, 4'096).value_or(1));
    budget.tolerance = table->integer_in("tolerance", 0, kParametersMax).value_or(0);
    const auto attention_value = table->value("attention");
    const auto attention = table->one_of("attention", {"fixed", "free"});
    TAILOR_RETURN_IF_ERROR(table->finish());
    if (!parameters) return missing(*table, "`budget.parameters`");
    read_parameters(*parameters, budget);
    if (counts) budget.counts = shape::parse_budget_counts(*counts).value();
    if (solve_for == "layers") budget.solve_for = SolveFor::kLayers;
    if (solve_for == "d_model") budget.solve_for = SolveFor::kModelWidth;
    budget.fix_attention = attention == "fixed";
    if (budget.fix_attention && budget.solve_for != SolveFor::kHiddenWidth) {
      attention_value->fail(
          fmt::format("`budget.attention` = \"fixed\" contradicts solve_for = \"{}\", which "
                      "changes attention; allowed: \"free\", or solve_for = \"d_h\"",
                      *solve_for));
    }
    spec_.budget = budget;
    return document_.status();
  }

  void read_parameters(const ConfigValue& value, Budget& budget) {
    if (value.kind() == ConfigValue::Kind::kString) {
      if (*value.as_string() == "of each size") {
        budget.of_each_size = true;
        return;
      }
      if (*value.as_string() != "same as baseline") {
        return value.fail(
            fmt::format("`budget.parameters` is \"{}\"; allowed: an integer, \"same as "
                        "baseline\" or, with [[scaling.size]], \"of each size\"",
                        *value.as_string()));
      }
      if (spec_.baseline.empty()) {
        value.fail(
            "`budget.parameters` is \"same as baseline\" but there is no `baseline` in this file");
      }
      return;
    }
    const auto parameters = value.as_integer();
    if (!parameters) return;
    if (*parameters < 1 || *parameters > kParametersMax) {
      return value.fail(fmt::format("`budget.parameters` is {}; allowed: 1 to 1e12", *parameters));
    }
    budget.parameters = *parameters;
  }

  Status candidates() {
    std::set<std::string> names;
    for (const ConfigValue& item : root_.array("candidate")) {
      auto table = item.as_table();
      if (!table) return document_.status();
      const auto name = table->value("name");
      NamedCandidate candidate;
      read_point(*table, "", architecture_keys(), &candidate.overrides);
      read_point(*table, "", train_keys(), &candidate.overrides);
      read_point(*table, "", budget_keys(), &candidate.overrides);
      TAILOR_RETURN_IF_ERROR(table->finish());
      if (!name) return missing(*table, "`name` of this [[candidate]]");
      candidate.name = name->as_string().value_or("");
      TAILOR_RETURN_IF_ERROR(document_.status());
      const bool printable = escape_controls(candidate.name) == candidate.name;
      if (trim(candidate.name).empty() || candidate.name.size() > 200 || !printable) {
        name->fail("a candidate's `name` must have 1 to 200 printable characters");
      } else if (!names.insert(candidate.name).second) {
        name->fail(fmt::format("two candidates are named \"{}\"; allowed: each name once",
                               candidate.name));
      }
      TAILOR_RETURN_IF_ERROR(document_.status());
      candidate_names_.push_back(*name);
      spec_.candidates.push_back(std::move(candidate));
    }
    return document_.status();
  }

  /// The pairs of [scaling] become named candidates.
  Status scaling() {
    TAILOR_ASSIGN_OR_RETURN(ScalingFile file, read_scaling(root_));
    TAILOR_RETURN_IF_ERROR(document_.status());
    if (file.families.empty()) return Status::ok();
    for (const ScalingEntry& entry : file.families) spec_.scaling.families.push_back(entry.name);
    for (const ScalingEntry& entry : file.sizes) spec_.scaling.sizes.push_back(entry.name);
    spec_.scaling.baseline = file.baseline;
    if (spec_.budget && spec_.budget->fix_attention) {
      root_.table("budget")
          ->value("attention")
          ->fail(
              "`budget.attention` = \"fixed\" keeps one size of attention, but [scaling] has "
              "several "
              "sizes; allowed: \"free\"");
      return document_.status();
    }
    std::set<std::string> names;
    for (const NamedCandidate& candidate : spec_.candidates) names.insert(candidate.name);
    for (const ScalingEntry& size : file.sizes) {
      std::optional<std::int64_t> parameters;
      TAILOR_RETURN_IF_ERROR(size_budget(file, size, &parameters));
      for (const ScalingEntry& family : file.families) {
        NamedCandidate candidate{scaling_candidate_name(family.name, size.name), size.point};
        for (const auto& [path, value] : family.point) {
          if (candidate.overrides.emplace(path, value).second) continue;
          family.where.fail(
              fmt::format("`{}` is set by family \"{}\" and by size \"{}\"; allowed: "
                          "by one of them",
                          path, family.name, size.name));
          return document_.status();
        }
        if (parameters) candidate.overrides["budget.parameters"] = *parameters;
        if (!names.insert(candidate.name).second) {
          family.where.fail(fmt::format("two candidates are named \"{}\"", candidate.name));
          return document_.status();
        }
        candidate_names_.push_back(family.where);
        spec_.candidates.push_back(std::move(candidate));
      }
    }
    return document_.status();
  }

  /// With budget.parameters = "of each size": the size's own, or what the baseline family has there
  /// as its keys say. Unset otherwise, unless the size sets `budget.parameters`.
  Status size_budget(const ScalingFile& file, const ScalingEntry& size,
                     std::optional<std::int64_t>* parameters) {
    if (!spec_.budget || !spec_.budget->of_each_size || size.point.contains("budget.parameters")) {
      return Status::ok();
    }
    Point point = size.point;
    for (const ScalingEntry& family : file.families) {
      if (family.name != file.baseline) continue;
      for (const auto& [path, value] : family.point) point.emplace(path, value);
    }
    const auto counted = parameters_as_given(spec_, point);
    if (!counted) {
      size.where.fail(
          fmt::format("size \"{}\" has no `budget.parameters`, and the baseline family "
                      "\"{}\" gives none: it {}",
                      size.name, file.baseline, counted.error().message()));
      return document_.status();
    }
    *parameters = *counted;
    return Status::ok();
  }

  /// Every layer of [calibrate] at every factor of its width becomes a named candidate: the base
  /// but for that width, with the base's own tokens and rate, whatever rule these follow from.
  Status calibrate() {
    TAILOR_ASSIGN_OR_RETURN(const std::optional<CalibrateFile> file, read_calibrate(root_));
    TAILOR_RETURN_IF_ERROR(document_.status());
    if (!file) return Status::ok();
    const std::string& wanted = file->base.empty() ? spec_.baseline : file->base;
    const auto found =
        std::find_if(spec_.candidates.begin(), spec_.candidates.end(),
                     [&](const NamedCandidate& candidate) { return candidate.name == wanted; });
    if (found == spec_.candidates.end()) {
      file->where.fail(
          wanted.empty()
              ? "[calibrate] needs a base: `calibrate.candidate`, or the file's `baseline`"
              : fmt::format("[calibrate] varies \"{}\", which is no [[candidate]]", wanted));
      return document_.status();
    }
    if (spec_.budget) {
      file->where.fail(
          "[calibrate] varies the width of one layer with all others as they are, which no "
          "[budget] "
          "allows; leave [budget] out and give `ffn.d_h`");
      return document_.status();
    }
    const NamedCandidate base = *found;
    const auto resolved = resolve(spec_, base.name, base.overrides);
    if (!resolved || resolved->waiting) {
      file->where.fail(
          fmt::format("[calibrate] cannot vary \"{}\": it {}", base.name,
                      resolved ? "waits for a measurement itself" : resolved.error().message()));
      return document_.status();
    }
    std::vector<std::int32_t> layers = file->layers;
    if (layers.empty()) {
      for (std::int32_t l = 0; l < resolved->architecture.layers(); ++l) layers.push_back(l);
    }
    if (layers.size() * file->factors.size() > kCalibrationsMax) {
      file->where.fail(fmt::format("[calibrate] makes {} candidates; allowed: {}",
                                   layers.size() * file->factors.size(), kCalibrationsMax));
      return document_.status();
    }
    for (const std::int32_t layer : layers) {
      for (const double factor : file->factors) {
        TAILOR_RETURN_IF_ERROR(add_calibration(*file, base, *resolved, layer, factor));
      }
    }
    return document_.status();
  }

  Status add_calibration(const CalibrateFile& file, const NamedCandidate& base,
                         const Candidate& resolved, std::int32_t layer, double factor) {
    auto widths = resolved.architecture.widths;
    if (layer >= static_cast<std::int32_t>(widths.size())) {
      file.where.fail(fmt::format("`calibrate.layers` has {}, but \"{}\" has layers 0 to {}", layer,
                                  base.name, widths.size() - 1));
      return document_.status();
    }
    bool changed = false;
    for (std::int32_t& width : widths[static_cast<std::size_t>(layer)]) {
      const auto scaled = static_cast<std::int32_t>(std::max(1l, std::lround(width * factor)));
      changed = changed || scaled != width;
      width = scaled;
    }
    NamedCandidate candidate{calibration_name(layer, factor), base.overrides};
    const auto taken =
        std::find_if(spec_.candidates.begin(), spec_.candidates.end(),
                     [&](const NamedCandidate& other) { return other.name == candidate.name; });
    if (!changed || taken != spec_.candidates.end()) {
      file.where.fail(
          changed ? fmt::format("two candidates are named \"{}\"", candidate.name)
                  : fmt::format("{} times the width of layer {} is that width", factor, layer));
      return document_.status();
    }
    // The widths say all of these.
    std::erase_if(candidate.overrides, [](const auto& entry) {
      const std::string& path = entry.first;
      return path == "layers" || path == "ffn.k" || path == "ffn.d_h" || path == "d_h_ratio" ||
             path.starts_with("schedule.");
    });
    candidate.overrides["widths"] = widths_to_text(widths);
    candidate.overrides["train.tokens"] = resolved.train.tokens;
    if (resolved.train.optimizer.lr_mode == protocol::LrMode::kStepLaw) {
      candidate.overrides["train.optimizer.lr_mode"] = "fixed";
      candidate.overrides["train.optimizer.lr"] = resolved.train.optimizer.lr;
    }
    candidate_names_.push_back(file.where);
    spec_.candidates.push_back(std::move(candidate));
    return document_.status();
  }

  Status compare() {
    TAILOR_ASSIGN_OR_RETURN(spec_.compare, read_compare(root_));
    TAILOR_RETURN_IF_ERROR(document_.status());
    const std::string& primary = spec_.compare.primary;
    if (primary.empty()) return Status::ok();
    const ConfigValue where = *root_.table("compare")->value("primary");
    if (primary == spec_.baseline) {
      where.fail(
          fmt::format("`compare.primary` is \"{}\", which is the `baseline`; allowed: a "
                      "candidate to compare with it",
                      primary));
    } else if (spec_.baseline.empty()) {
      where.fail("`compare.primary` needs a `baseline` to compare it with");
    } else {
      std::vector<std::string_view> known;
      for (const NamedCandidate& candidate : spec_.candidates) known.push_back(candidate.name);
      if (std::find(known.begin(), known.end(), primary) == known.end()) {
        where.fail(
            fmt::format("`compare.primary` is \"{}\"{}, which is no [[candidate]]; it is "
                        "named before any result is known, so points of a [space] cannot be",
                        primary, did_you_mean(primary, known)));
      }
    }
    return document_.status();
  }

  Status check_baseline() {
    std::set<std::string> names;
    for (const NamedCandidate& candidate : spec_.candidates) names.insert(candidate.name);
    if (!spec_.baseline.empty() && !names.contains(spec_.baseline)) {
      const std::vector<std::string_view> known(names.begin(), names.end());
      root_.value("baseline")
          ->fail(
              known.empty()
                  ? fmt::format("`baseline` is \"{}\", but there is no [[candidate]] of that name",
                                spec_.baseline)
                  : fmt::format("`baseline` is \"{}\"{}; allowed: {}", spec_.baseline,
                                did_you_mean(spec_.baseline, known), fmt::join(known, ", ")));
    }
    return document_.status();
  }

  Status space() {
    auto table = root_.table("space");
    TAILOR_RETURN_IF_ERROR(document_.status());
    if (!table) {
      if (spec_.candidates.empty()) {
        root_.fail(
            "there is nothing to train: this file has no [[candidate]], no [scaling] and no "
            "[space]");
      }
      return document_.status();
    }
    const auto constraints = table->value("constraints");
    const KeySink sink = [this](const Key& key, const ConfigValue& value) {
      read_axis(key, value);
    };
    read_keys(*table, "", architecture_keys(), sink);
    read_keys(*table, "", train_keys(), sink);
    read_keys(*table, "", budget_keys(), sink);
    TAILOR_RETURN_IF_ERROR(table->finish());
    if (constraints) {
      for (const ConfigValue& item : constraints->as_array()) read_constraint(item);
      TAILOR_RETURN_IF_ERROR(document_.status());
    }
    // People expect the order of the file: the last axis varies fastest.
    std::stable_sort(axes_.begin(), axes_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.at.line, a.at.column) < std::pair(b.at.line, b.at.column);
    });
    std::set<std::string> paths;
    for (PlacedAxis& placed : axes_) {
      if (!paths.insert(placed.axis.path).second) {
        placed.value.fail(fmt::format("`{}` stands twice in [space]", placed.axis.path));
      }
      check_conditions(placed);
      spec_.space.push_back(placed.axis);
    }
    if (spec_.space.empty())
      table->fail("[space] has no axis; allowed: any key of [architecture] or train.*");
    return document_.status();
  }

  /// A condition names an axis that stands earlier, and values that it has. REQUIRES: those axes
  /// are
  /// in the spec already.
  void check_conditions(const PlacedAxis& placed) {
    for (const AxisCondition& condition : placed.axis.when) {
      const auto parent =
          std::find_if(spec_.space.begin(), spec_.space.end(),
                       [&](const Axis& axis) { return axis.path == condition.path; });
      if (parent == spec_.space.end()) {
        return placed.value.fail(fmt::format(
            "`space.{}` has a value only `when` `{}` has another, but that is no axis of "
            "[space] that stands before it",
            placed.axis.path, condition.path));
      }
      for (const AxisValue& value : condition.values) {
        const bool known =
            parent->values.empty() ||
            std::find(parent->values.begin(), parent->values.end(), value) != parent->values.end();
        if (known) continue;
        return placed.value.fail(fmt::format("`space.{}`: `{}` is never {}", placed.axis.path,
                                             condition.path, to_text(value)));
      }
    }
  }

  /// when = { "schedule.kind" = ["cosine", "linear"] }
  bool read_conditions(ConfigTable& table, Axis& axis) {
    auto when = table.table("when");
    if (!when) return document_.status().is_ok();
    for (const auto& [path, value] : when->items()) {
      const Key* key = find_key(path);
      if (key == nullptr) {
        value.fail(fmt::format("`{}`: there is no key `{}`", value.path(), path));
        return false;
      }
      AxisCondition condition{path, {}};
      const bool many = value.kind() == ConfigValue::Kind::kArray;
      for (const ConfigValue& item : many ? value.as_array() : std::vector<ConfigValue>{value}) {
        auto read = read_value(*key, item);
        if (!read) return false;
        condition.values.push_back(std::move(*read));
      }
      axis.when.push_back(std::move(condition));
    }
    return true;
  }

  void read_axis(const Key& key, const ConfigValue& value) {
    if (key.kind == KeyKind::kBetas) {
      return value.fail(fmt::format(
          "`space.{}` cannot vary as a pair; allowed: train.optimizer.beta1 and beta2", key.path));
    }
    if (key.kind == KeyKind::kWidths) {
      return value.fail("`space.widths` cannot vary; allowed: `widths` in a [[candidate]]");
    }
    Axis axis;
    axis.path = std::string(key.path);
    // A list with a condition stands in a table: { values = [...], when = { ... } }.
    std::optional<ConfigValue> values;
    if (value.kind() == ConfigValue::Kind::kArray) values = value;
    if (value.kind() == ConfigValue::Kind::kTable) {
      auto table = *value.as_table();
      values = table.value("values");
      if (values && (!read_conditions(table, axis) || !table.finish().is_ok())) return;
    }
    if (values) {
      for (const ConfigValue& item : values->as_array()) {
        auto read = read_value(key, item);
        if (!read || !check_recipe(key, *read, item)) return;
        if (asks_for_geometry({{axis.path, *read}})) {
          return item.fail(
              "a schedule that is cut from a measurement cannot be an axis of [space]; allowed: "
              "schedule.kind = \"geometry\" in a [[candidate]]");
        }
        axis.values.push_back(std::move(*read));
      }
      if (axis.values.empty()) {
        return value.fail(fmt::format(
            "`{}` has no values; allowed: a list, or {{min, max, step, log}}", key.path));
      }
    } else if (value.kind() == ConfigValue::Kind::kTable) {
      if (!read_range(key, value, axis)) return;
    } else {
      return value.fail(
          fmt::format("`space.{}` must be a list of values or a range {{min, max, step, log}}; a "
                      "single value belongs into [architecture] or [train]",
                      key.path));
    }
    if (solved_from_budget(key, axis, value)) return;
    axes_.push_back({value.position(), value, std::move(axis)});
  }

  /// Whether a value of the recipe can be read ("0.5M tokens");
  /// architecture keys were checked before.
  bool check_recipe(const Key& key, const AxisValue& value, const ConfigValue& where) {
    if (!key.path.starts_with("train.")) return true;
    protocol::TrainSpec scratch = spec_.train;
    double per_parameter = 0;
    const Status status =
        set_train(key.path, value, spec_.data.sequence_length, &scratch, &per_parameter);
    if (!status.is_ok()) where.fail(status.message());
    return status.is_ok();
  }

  bool read_range(const Key& key, const ConfigValue& value, Axis& axis) {
    if (key.kind != KeyKind::kInteger && key.kind != KeyKind::kNumber) {
      value.fail(
          fmt::format("`space.{}` cannot have a range; allowed: a list of values", key.path));
      return false;
    }
    axis.is_integer = key.kind == KeyKind::kInteger;
    auto table = *value.as_table();
    const auto min = table.value("min"), max = table.value("max"), step = table.value("step");
    axis.log = table.boolean("log").value_or(false);
    if (!read_conditions(table, axis)) return false;
    if (!table.finish().is_ok()) return false;
    if (!min || !max) {
      value.fail(fmt::format("`space.{}` needs `min` and `max`", key.path));
      return false;
    }
    for (const auto& [given, out] : {std::pair(&*min, &axis.min), std::pair(&*max, &axis.max)}) {
      const auto read = read_value(key, *given);
      if (!read) return false;
      *out = std::visit(
          [](const auto& v) {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>)
              return static_cast<double>(v);
            return 0.0;
          },
          *read);
    }
    if (axis.min > axis.max) {
      value.fail(
          fmt::format("`space.{}` has min {:g} above max {:g}", key.path, axis.min, axis.max));
      return false;
    }
    if (step) {
      double number = 0;
      if (axis.is_integer) {
        number = static_cast<double>(step->as_integer().value_or(0));
      } else {
        number = step->as_float().value_or(0);
      }
      if (!document_.status().is_ok()) return false;
      if (!(number > 0)) {
        step->fail(fmt::format("`{}` is {:g}; allowed: above 0", step->path(), number));
        return false;
      }
      axis.step = number;
    } else if (axis.is_integer) {
      axis.step = 1;
    }
    if (axis.log && axis.min <= 0) {
      min->fail(fmt::format("`{}` must be above 0 with log = true", min->path()));
      return false;
    }
    return true;
  }

  /// The size that the budget solves for is no free axis: a range of hidden widths becomes a bound.
  bool solved_from_budget(const Key& key, const Axis& axis, const ConfigValue& value) {
    if (!spec_.budget) return false;
    const bool hidden = key.path == "ffn.d_h" || key.path == "d_h_ratio";
    const SolveFor solve_for = spec_.budget->solve_for;
    const bool solved = (solve_for == SolveFor::kHiddenWidth && hidden) ||
                        (solve_for == SolveFor::kLayers && key.path == "layers") ||
                        (solve_for == SolveFor::kModelWidth && key.path == "d_model");
    if (!solved) return false;
    if (!axis.values.empty()) {
      value.fail(fmt::format(
          "`space.{}` is solved from the budget; allowed: a range {{min, max}} as its bounds, "
          "or another `budget.solve_for`",
          key.path));
      return true;
    }
    const std::string_view name = key.path == "ffn.d_h" ? "d_h" : key.path;
    spec_.constraints.push_back(fmt::format("{} <= {} <= {}", axis.min, name, axis.max));
    return true;
  }

  void read_constraint(const ConfigValue& value) {
    const auto text = value.as_string();
    if (!text) return;
    const auto expression = Expression::parse(*text);
    if (!expression)
      return value.fail(fmt::format("`{}`: {}", value.path(), expression.error().message()));
    for (const Expression::Name& name : expression->names()) {
      const auto known = constraint_names();
      if (std::find(known.begin(), known.end(), name.name) != known.end()) continue;
      return value.fail(fmt::format(
          "`{}`: \"{}\" at character {}: unknown name `{}`{}; allowed: {}", value.path(), *text,
          name.column, name.name, did_you_mean(name.name, known), fmt::join(known, ", ")));
    }
    spec_.constraints.push_back(*text);
  }

  Status search() {
    auto table = root_.table("search");
    TAILOR_RETURN_IF_ERROR(document_.status());
    if (table) {
      const auto algorithm = table->one_of(
          "algorithm", {"grid", "random", "sobol", "tpe", "gp", "evolution", "nsga2"});
      const auto trials = table->integer_in("trials", 0, 1'000'000'000);
      const auto seed = table->integer_in("seed", 0, std::numeric_limits<std::int64_t>::max());
      TAILOR_RETURN_IF_ERROR(table->finish());
      if (spec_.space.empty()) {
        table->fail("[search] stands without a [space] to search");
        return document_.status();
      }
      spec_.search.algorithm = algorithm.value_or("grid");
      spec_.search.trials = static_cast<std::uint64_t>(trials.value_or(0));
      spec_.search.seed = static_cast<std::uint64_t>(seed.value_or(1));
    }
    if (spec_.search.algorithm != "grid") {
      if (spec_.search.trials == 0)
        return missing(*table, "`search.trials` (candidates to draw, at least 1)");
      return Status::ok();
    }
    for (const PlacedAxis& placed : axes_) {
      if (placed.axis.grid_size() > 0) continue;
      placed.value.fail(fmt::format(
          "`space.{}` is continuous and cannot be in a grid; allowed: a `step`, a list, "
          "or another search.algorithm (\"random\", \"tpe\", \"gp\")",
          placed.axis.path));
    }
    return document_.status();
  }

  Status early_stopping() {
    auto table = root_.table("early_stopping");
    if (!table) return document_.status();
    (void)table->one_of("kind", {"none"});
    return table->finish();
  }

  Status seeds() {
    auto table = root_.table("seeds");
    TAILOR_RETURN_IF_ERROR(document_.status());
    if (!table) {
      spec_.seeds = {1};
      return Status::ok();
    }
    const auto count = table->integer_in("count", 1, kSeedsMax);
    const auto list = table->value("list");
    TAILOR_RETURN_IF_ERROR(table->finish());
    if (count.has_value() == list.has_value()) {
      table->fail("[seeds] needs `count` or `list`, one of them");
      return document_.status();
    }
    for (std::int64_t seed = 1; count && seed <= *count; ++seed) {
      spec_.seeds.push_back(static_cast<std::uint64_t>(seed));
    }
    if (list) read_seed_list(*list);
    return document_.status();
  }

  void read_seed_list(const ConfigValue& list) {
    std::set<std::int64_t> seen;
    for (const ConfigValue& item : list.as_array()) {
      const auto seed = item.as_integer();
      if (!seed) return;
      if (*seed < 0)
        return item.fail(fmt::format("`{}` is {}; allowed: 0 and above", item.path(), *seed));
      if (!seen.insert(*seed).second) {
        return item.fail(fmt::format("`seeds.list` has {} twice; allowed: each seed once", *seed));
      }
      spec_.seeds.push_back(static_cast<std::uint64_t>(*seed));
    }
    if (spec_.seeds.empty() || spec_.seeds.size() > kSeedsMax) {
      list.fail(fmt::format("`seeds.list` has {} seeds; allowed: 1 to {}", spec_.seeds.size(),
                            kSeedsMax));
    }
  }

  Status evaluate() {
    auto table = root_.table("evaluate");
    if (!table) return document_.status();
    const auto perplexity = table->value("perplexity");
    auto geometry = table->table("geometry");
    TAILOR_RETURN_IF_ERROR(table->finish());
    if (perplexity) {
      if (const auto on = perplexity->as_boolean(); on && !*on) {
        perplexity->fail(
            "`evaluate.perplexity` is false, but the objective is measured by it; allowed: true");
      }
    }
    if (geometry) read_geometry(*geometry);
    return document_.status();
  }

  void read_geometry(ConfigTable& table) {
    protocol::GeometrySpec& out = spec_.geometry;
    out.enabled = true;
    const auto layers = table.value("layers");
    out.tokens =
        static_cast<std::int32_t>(table.integer_in("tokens", 2, 65'536).value_or(out.tokens));
    out.subsamples = static_cast<std::int32_t>(
        table.integer_in("subsamples", 1, 1'024).value_or(out.subsamples));
    out.rho = table.number_in("rho", 1e-6, 0.999999).value_or(out.rho);
    if (const auto each = table.value("sub_blocks")) {
      out.sub_blocks = each->as_boolean().value_or(false);
    }
    if (const auto dimension = table.value("dimension")) {
      out.dimension = dimension->as_boolean().value_or(false);
    }
    // What a schedule needs is measured anyway; this says how.
    if (table.one_of("of", {"all", "references"}) == "references") out.enabled = false;
    if (!table.finish().is_ok() || !layers) return;
    if (layers->kind() == ConfigValue::Kind::kString) {
      if (*layers->as_string() != "all") {
        layers->fail(fmt::format("`{}` is \"{}\"; allowed: \"all\" or a list of layers from 0",
                                 layers->path(), *layers->as_string()));
      }
      return;
    }
    std::set<std::int64_t> seen;
    for (const ConfigValue& item : layers->as_array()) {
      const auto layer = item.as_integer();
      if (!layer) return;
      if (*layer < 0 || *layer > 4'095 || !seen.insert(*layer).second) {
        return item.fail(
            fmt::format("`{}` is {}; allowed: 0 to 4095, each once", item.path(), *layer));
      }
      out.layers.push_back(static_cast<std::int32_t>(*layer));
    }
    if (out.layers.empty()) {
      layers->fail(
          "`evaluate.geometry.layers` is empty; allowed: \"all\" or a list of layers from 0");
    }
  }

  Status resources() {
    auto table = root_.table("resources");
    if (!table) return document_.status();
    ResourceSpec& out = spec_.resources;
    const auto number = [&](std::string_view key, std::int64_t low, std::int64_t high,
                            std::int32_t fallback) {
      return static_cast<std::int32_t>(table->integer_in(key, low, high).value_or(fallback));
    };
    out.gpus = number("gpus", 0, kSlotsOfNodeMax, 0);
    const auto cpus = table->integer_in("cpus", 0, kSlotsOfNodeMax);
    if (out.gpus > 0 && cpus.value_or(0) > 0) {
      table->value("cpus")->fail(
          "`resources.cpus` and `resources.gpus` exclude each other: a trial takes slots of one "
          "kind, and a GPU comes with its share of the CPU");
    }
    out.cpus =
        out.gpus > 0 ? 0 : static_cast<std::int32_t>(std::max<std::int64_t>(1, cpus.value_or(1)));
    out.nodes = number("nodes", 1, kNodesMax, 1);
    out.nodes_min = number("nodes_min", 1, out.nodes, out.nodes);
    out.gpu_memory_bytes = table->parsed("gpu_memory", parse_bytes).value_or(0);
    if (out.gpu_memory_bytes > 0 && out.gpus == 0) {
      table->value("gpu_memory")->fail("`resources.gpu_memory` needs `resources.gpus` above 0");
    }
    out.memory_bytes = table->parsed("memory", parse_bytes).value_or(0);
    out.labels = labels(*table);
    out.parallel = number("parallel", 0, 1'000'000, 0);
    out.priority = number("priority", -kPriorityMax, kPriorityMax, 0);
    out.preemptible = table->boolean("preemptible").value_or(true);
    return table->finish();
  }

  /// resources.labels: ascending, each once.
  std::vector<std::string> labels(ConfigTable& table) {
    std::set<std::string> found;
    if (!table.has("labels")) return {};
    for (const ConfigValue& item : table.array("labels")) {
      const auto text = item.as_string();
      if (!text) return {};
      const bool plain = !text->empty() && text->size() <= kLabelBytesMax &&
                         text->find_first_of(" \t\r\n,\"") == std::string::npos;
      if (!plain) {
        item.fail(
            fmt::format("`{}` is no label; allowed: 1 to {} characters without blanks, "
                        "commas and quotes, as \"big\" or \"rack=3\"",
                        item.path(), kLabelBytesMax));
        return {};
      }
      found.insert(*text);
    }
    if (found.size() > kLabelsMax) {
      table.value("labels")->fail(fmt::format("`resources.labels` has {} labels; allowed: up to {}",
                                              found.size(), kLabelsMax));
    }
    return {found.begin(), found.end()};
  }

  Status limits() {
    auto table = root_.table("limits");
    if (!table) return document_.status();
    const auto time = [&](std::string_view key) {
      const auto ms = table->parsed(key, parse_duration_ms);
      if (ms && (*ms < 1'000 || *ms > kLimitMsMax)) {
        table->value(key)->fail(
            fmt::format("`limits.{}` is {} ms; allowed: 1 s to 3650 days", key, *ms));
      }
      return ms.value_or(0);
    };
    spec_.limits = {time("progress"), time("attempt"), time("trial")};
    return table->finish();
  }

  Status retry() {
    auto table = root_.table("retry");
    for (const RetryRule& rule : retry_rules()) {
      std::int32_t& limit = spec_.retry[rule.end] = rule.limit;
      if (!table) continue;
      limit = static_cast<std::int32_t>(
          table->integer_in(protocol::end_class_name(rule.end), 0, 1'000'000).value_or(limit));
    }
    return table ? table->finish() : document_.status();
  }

  Status references() {
    const auto wrong = insert_references(spec_);
    if (!wrong) return Status::ok();
    candidate_names_[wrong->candidate].fail(fmt::format(
        "candidate \"{}\": {}", spec_.candidates[wrong->candidate].name, wrong->status.message()));
    return document_.status();
  }

  /// A named candidate is meant to run: one that cannot is a mistake in the file.
  Status check_named() {
    for (std::size_t i = 0; i < spec_.candidates.size(); ++i) {
      const NamedCandidate& named = spec_.candidates[i];
      const auto candidate = resolve(spec_, named.name, named.overrides);
      if (candidate) continue;
      // What an inserted one lacks, the file's own have checked.
      candidate_names_[std::min(i, candidate_names_.size() - 1)].fail(
          fmt::format("candidate \"{}\" {}", named.name, candidate.error().message()));
      return document_.status();
    }
    return Status::ok();
  }

  ConfigDocument& document_;
  ConfigTable root_;
  const std::string base_dir_;
  const Origin origin_;
  Spec spec_;
  std::vector<ConfigValue> candidate_names_;
  std::vector<PlacedAxis> axes_;
};

}  // namespace

bool reads_like_id(std::string_view name) {
  std::string small(name);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (small == "last") return true;
  const auto all_digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  std::string_view rest = small;
  if (rest.empty() || std::string_view("stwa").find(rest.front()) == std::string_view::npos) {
    return all_digits(rest);
  }
  rest.remove_prefix(1);
  const std::size_t dot = rest.find('.');
  return all_digits(rest.substr(0, dot)) &&
         (dot == std::string_view::npos || all_digits(rest.substr(dot + 1)));
}

Result<Spec> parse(std::string_view toml, const std::string& file, const std::string& base_dir,
                   Origin origin) {
  if (toml.size() > kSweepFileBytesMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} has {} bytes; at most {} are allowed in a sweep file", file,
                             toml.size(), kSweepFileBytesMax));
  }
  TAILOR_ASSIGN_OR_RETURN(ConfigDocument document, ConfigDocument::parse(toml, file));
  return Parser(document, base_dir, origin).run();
}

std::string spec_hash(std::string_view toml, const std::string& base_dir) {
  Sha256 hash;
  // The length keeps "a" + "bc" apart from "ab" + "c".
  hash.update(fmt::format("{}\n{}\n", base_dir.size(), base_dir));
  hash.update(toml);
  return hash.hex();
}

}  // namespace tailor::sweep
