#include "model/diagnose/run.h"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "geometry/cloud.h"
#include "geometry/npy.h"
#include "geometry/work_profile.h"
#include "model/diagnose/analysis.h"
#include "model/diagnose/forward.h"
#include "model/diagnose/measurement.h"
#include "model/diagnose/pieces.h"
#include "model/diagnose/report.h"
#include "storage/table_file.h"

namespace tailor::diagnose {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

ordered_json settings_json(const Settings& s) {
  ordered_json kinds = ordered_json::array();
  for (const Perturbation kind : s.probes.kinds) kinds.push_back(perturbation_name(kind));
  return {{"tokens", s.tokens},
          {"subsamples", s.subsamples},
          {"tokens_per_sequence", s.tokens_per_sequence},
          {"length", s.length},
          {"rho", s.rho},
          {"perturbations", std::move(kinds)},
          {"eps", s.probes.eps},
          {"draws", s.probes.draws},
          {"subset_sizes", s.probes.subset_sizes},
          {"subsets", s.probes.subsets},
          {"probe_sequences", s.probe_sequences},
          {"probe_length", s.probe_length},
          {"scored", s.scored},
          {"seed", s.seed},
          {"permutations", s.permutations}};
}

std::string ids_sha256(const Sequences& sequences) {
  Sha256 hash;
  for (const auto* list : {&sequences.clouds, &sequences.probes}) {
    for (const auto& ids : *list) hash.update(ids.data(), ids.size() * sizeof(ids[0]));
    hash.update("|");
  }
  return hash.hex();
}

/// Appends float32 rows to files, each opened for one write: as many layers as a model has.
Status append_floats(const std::string& path, std::span<const float> values, bool first) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), first ? "wb" : "ab"), std::fclose);
  if (file == nullptr) return errno_status(errno, "open", path);
  if (std::fwrite(values.data(), sizeof(float), values.size(), file.get()) != values.size() ||
      std::fflush(file.get()) != 0) {
    return errno_status(errno, "write", path);
  }
  return Status::ok();
}

class Run {
 public:
  Run(ProbeNetwork& network, const Sequences& sequences, const Settings& settings,
      const std::string& folder, const ShowProgress& progress)
      : network_(network),
        sequences_(sequences),
        settings_(settings),
        layer_flops_(2 * network.layer_parameters()),
        head_flops_(2 * network.head_parameters()),
        folder_(folder),
        progress_(progress) {}

  Result<ordered_json> run(const ordered_json& about) {
    TAILOR_RETURN_IF_ERROR(settings_.validate());
    if (sequences_.clouds.empty() || sequences_.probes.empty()) {
      return error(Code::kFailedPrecondition,
                   "the data has too few whole sequences: give more data, or a smaller --length");
    }
    ordered_json identity = about;
    identity["settings"] = settings_json(settings_);
    identity["tokens_sha256"] = ids_sha256(sequences_);
    identity["pieces"] = 1;  // the version of what a piece holds
    TAILOR_ASSIGN_OR_RETURN(const PieceStore pieces,
                            PieceStore::open(folder_ + "/pieces", identity));
    pieces_ = &pieces;
    plan();
    TAILOR_RETURN_IF_ERROR(probe());
    TAILOR_RETURN_IF_ERROR(measure());
    return finish(about, identity);
  }

 private:
  int depth() const { return static_cast<int>(network_.depth()); }
  std::int64_t probe_time() const { return settings_.probe_length - 1; }  // the last has no target
  std::string layer_name(int layer) const { return fmt::format("layer_{:03}", layer); }
  std::string cloud_path(int layer, const char* side) const {
    return fmt::format("{}/pieces/clouds/layer_{:03}_{}.f32", folder_, layer, side);
  }
  std::string pass_name(std::size_t pass) const { return fmt::format("probes_{:04}", pass); }

  void say(std::string_view what) const {
    if (progress_) progress_(done_, total_, what);
  }

  // What there is to do, in floating-point operations.
  void plan() {
    results_.probes = plan_probes(depth(), settings_.probes);
    const auto count = static_cast<std::int64_t>(sequences_.probes.size());
    of_pass_ = probes_per_pass(count * probe_time(), network_.width());
    const double rows = static_cast<double>(count * probe_time());
    for (const Probe& probe : results_.probes) {
      total_ += rows * layer_flops_ * (depth() - probe.layers.front() - 1);
    }
    const auto passes = static_cast<double>((results_.probes.size() + of_pass_ - 1) / of_pass_);
    total_ += passes * rows * layer_flops_ * depth();
    total_ += static_cast<double>(results_.probes.size()) * scored_rows() * head_flops_;
    clouds_flops_ = layer_flops_ * depth() * static_cast<double>(sequences_.clouds.size()) *
                    static_cast<double>(settings_.length);
    geometry::WorkOptions work;
    work.tokens = work.linear_tokens = settings_.tokens;
    work.subsamples = 1;
    layer_work_ =
        geometry::work_cost(settings_.subsamples + std::size(kScales) - 1, settings_.tokens,
                            static_cast<std::size_t>(network_.width()), work);
    total_ += clouds_flops_ + layer_work_ * depth();
  }
  double scored_rows() const {
    return static_cast<double>(sequences_.probes.size()) * static_cast<double>(settings_.scored);
  }

  Status probe() {
    ScoredTokens tokens;
    std::vector<std::int64_t> ids, targets;
    for (const auto& sequence : sequences_.probes) {
      ids.insert(ids.end(), sequence.begin(), sequence.end() - 1);
      targets.insert(targets.end(), sequence.begin() + 1, sequence.end());
    }
    const auto count = static_cast<std::int64_t>(sequences_.probes.size());
    const auto on_device = [&](const std::vector<std::int64_t>& values) {
      return at::tensor(values, at::kLong).view({count, probe_time()}).to(network_.device());
    };
    tokens.tokens_gt = on_device(ids);
    tokens.targets_gt = on_device(targets);
    tokens.scored = settings_.scored;
    results_.scored_tokens = settings_.scored;

    const std::span<const Probe> probes = results_.probes;
    const std::size_t passes = (probes.size() + of_pass_ - 1) / of_pass_;
    for (std::size_t pass = 0; pass < passes; ++pass) {
      const auto part =
          probes.subspan(pass * of_pass_, std::min(of_pass_, probes.size() - pass * of_pass_));
      double flops = static_cast<double>(part.size()) * scored_rows() * head_flops_ +
                     static_cast<double>(count * probe_time()) * layer_flops_ * depth();
      for (const Probe& probe : part) {
        flops += static_cast<double>(count * probe_time()) * layer_flops_ *
                 (depth() - probe.layers.front() - 1);
      }
      const double before = done_;
      const std::string what = fmt::format("probes, pass {} of {}", pass + 1, passes);
      auto piece = pieces_->find(pass_name(pass));
      if (!piece || !take_losses(*piece, part.size())) {
        say(what);
        // Rows count alike, whether a layer's or the head's; the end of the pass sets it right.
        double rows_done = 0;
        double rows_all = static_cast<double>(count * probe_time()) *
                          (static_cast<double>(depth()) + static_cast<double>(part.size()));
        for (const Probe& probe : part) {
          rows_all +=
              static_cast<double>(count * probe_time()) * (depth() - probe.layers.front() - 1);
        }
        TAILOR_ASSIGN_OR_RETURN(
            const ProbeLosses losses,
            run_probes(network_, tokens, part, settings_.seed, [&](std::int64_t rows) {
              rows_done += static_cast<double>(rows);
              done_ = before + flops * std::min(1.0, rows_done / rows_all);
              say(what);
            }));
        const ordered_json kept = {{"clean", losses.clean}, {"losses", losses.probes}};
        TAILOR_RETURN_IF_ERROR(pieces_->put(pass_name(pass), kept));
        piece = pieces_->find(pass_name(pass));
        if (!piece || !take_losses(*piece, part.size())) {
          return Status(Code::kDataLoss, fmt::format("{}: a piece that was just written cannot be "
                                                     "read back",
                                                     pieces_->folder()));
        }
      }
      done_ = before + flops;
    }
    return Status::ok();
  }

  // null stands for what was not finite.
  static double loss_of(const json& value) {
    return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  }
  bool take_losses(const json& piece, std::size_t count) {
    const auto clean = piece.find("clean");
    const auto losses = piece.find("losses");
    if (clean == piece.end() || losses == piece.end() || losses->size() != count ||
        clean->size() != sequences_.probes.size()) {
      return false;
    }
    std::vector<std::vector<double>> taken;
    for (const json& one : *losses) {
      if (one.size() != sequences_.probes.size()) return false;
      std::vector<double>& values = taken.emplace_back();
      for (const json& value : one) values.push_back(loss_of(value));
    }
    // Every pass has the clean loss; that of the first is the one that counts.
    if (results_.clean.empty()) {
      for (const json& value : *clean) results_.clean.push_back(loss_of(value));
    }
    for (auto& values : taken) results_.losses.push_back(std::move(values));
    return true;
  }

  std::vector<std::vector<std::int64_t>> offsets() const {
    std::vector<std::vector<std::int64_t>> all;
    const auto usable = static_cast<std::size_t>(settings_.length - 1);
    for (std::size_t s = 0; s < sequences_.clouds.size(); ++s) {
      Rng rng = Rng::split(settings_.seed, fmt::format("cloud offsets {}", s));
      std::vector<std::int64_t> places(usable);
      for (std::size_t i = 0; i < usable; ++i) places[i] = static_cast<std::int64_t>(i) + 1;
      for (std::size_t i = 0; i < settings_.tokens_per_sequence; ++i) {
        std::swap(places[i], places[i + rng.below(usable - i)]);
      }
      places.resize(settings_.tokens_per_sequence);
      std::sort(places.begin(), places.end());
      all.push_back(std::move(places));
    }
    return all;
  }

  std::size_t cloud_rows() const {
    return sequences_.clouds.size() * settings_.tokens_per_sequence;
  }
  std::uintmax_t cloud_bytes() const {
    return cloud_rows() * static_cast<std::size_t>(network_.width()) * sizeof(float);
  }
  bool clouds_are_there() const {
    for (int layer = 0; layer < depth(); ++layer) {
      for (const char* side : {"before", "after"}) {
        std::error_code failure;
        if (fs::file_size(cloud_path(layer, side), failure) != cloud_bytes() || failure) {
          return false;
        }
      }
    }
    return true;
  }

  // Takes the clouds, and marks the rows where some layer has a zero vector.
  Status take_clouds() {
    std::error_code failure;
    fs::create_directories(folder_ + "/pieces/clouds", failure);
    if (failure) return errno_status(failure.value(), "create", folder_ + "/pieces/clouds");
    const auto width = static_cast<std::size_t>(network_.width());
    zero_.assign(cloud_rows(), false);
    std::vector<std::size_t> taken(static_cast<std::size_t>(depth()), 0);
    const double before_clouds = done_;
    const auto mark = [&](std::span<const float> rows, std::size_t first) {
      for (std::size_t i = 0; i * width < rows.size(); ++i) {
        double squares = 0;
        for (const float value : rows.subspan(i * width, width)) {
          squares += static_cast<double>(value) * value;
        }
        if (std::sqrt(squares) < geometry::kZeroNorm) zero_[first + i] = true;
      }
    };
    const CloudSink sink = [&](std::int64_t layer, std::span<const float> before,
                               std::span<const float> after) -> Status {
      std::size_t& first = taken[static_cast<std::size_t>(layer)];
      mark(before, first);
      mark(after, first);
      const auto number = static_cast<int>(layer);
      TAILOR_RETURN_IF_ERROR(append_floats(cloud_path(number, "before"), before, first == 0));
      TAILOR_RETURN_IF_ERROR(append_floats(cloud_path(number, "after"), after, first == 0));
      first += before.size() / width;
      return Status::ok();
    };
    TAILOR_RETURN_IF_ERROR(
        take_cloud_rows(network_, sequences_.clouds, offsets(), sink, [&](std::int64_t rows) {
          done_ = std::min(done_ + layer_flops_ * static_cast<double>(rows),
                           before_clouds + clouds_flops_);
          say("clouds");
        }));
    done_ = before_clouds;
    for (int layer = 0; layer < depth(); ++layer) {
      for (const char* side : {"before", "after"}) {
        TAILOR_RETURN_IF_ERROR(sync_file(cloud_path(layer, side)));
      }
    }
    std::vector<std::size_t> zero_rows;
    for (std::size_t row = 0; row < zero_.size(); ++row) {
      if (zero_[row]) zero_rows.push_back(row);
    }
    return pieces_->put("clouds", {{"rows", cloud_rows()}, {"zero", zero_rows}});
  }

  bool take_zero_rows(const json& piece) {
    const auto rows = piece.find("rows");
    const auto zero = piece.find("zero");
    if (rows == piece.end() || zero == piece.end() || *rows != json(cloud_rows())) return false;
    zero_.assign(cloud_rows(), false);
    for (const json& row : *zero) {
      if (!row.is_number_unsigned() || row.get<std::size_t>() >= zero_.size()) return false;
      zero_[row.get<std::size_t>()] = true;
    }
    return true;
  }

  Status measure() {
    std::vector<std::optional<LayerMeasurement>> found;
    bool all = true;
    for (int layer = 0; layer < depth(); ++layer) {
      const auto piece = pieces_->find(layer_name(layer));
      auto measured = piece ? measurement_from_json(*piece)
                            : Result<LayerMeasurement>(error(Code::kNotFound, ""));
      found.push_back(measured ? std::optional(std::move(*measured)) : std::nullopt);
      all = all && found.back().has_value();
    }
    const auto clouds = pieces_->find("clouds");
    const bool known = clouds && take_zero_rows(*clouds);
    if (!known || ((!all || settings_.keep_clouds) && !clouds_are_there())) {
      TAILOR_RETURN_IF_ERROR(take_clouds());
    }
    done_ += clouds_flops_;
    TAILOR_ASSIGN_OR_RETURN(sampling_, sample_rows(cloud_rows(), settings_.tokens_per_sequence,
                                                   settings_.tokens, settings_.subsamples, zero_));
    MeasurementOptions options;
    options.rho = settings_.rho;
    options.seed = settings_.seed;
    options.threads = settings_.threads;
    for (int layer = 0; layer < depth(); ++layer) {
      auto& measured = found[static_cast<std::size_t>(layer)];
      if (!measured) {
        say(fmt::format("geometry, layer {} of {}", layer + 1, depth()));
        TAILOR_ASSIGN_OR_RETURN(const std::vector<float> before, read_cloud(layer, "before"));
        TAILOR_ASSIGN_OR_RETURN(const std::vector<float> after, read_cloud(layer, "after"));
        TAILOR_ASSIGN_OR_RETURN(measured, measure_layer(layer, before, after,
                                                        static_cast<std::size_t>(network_.width()),
                                                        sampling_, options));
        TAILOR_RETURN_IF_ERROR(pieces_->put(layer_name(layer), measurement_json(*measured)));
      }
      layers_.push_back(std::move(*measured));
      done_ += layer_work_;
    }
    return Status::ok();
  }

  Result<std::vector<float>> read_cloud(int layer, const char* side) const {
    TAILOR_ASSIGN_OR_RETURN(const std::string bytes,
                            read_file(cloud_path(layer, side), 1ull << 40));
    std::vector<float> values(bytes.size() / sizeof(float));
    if (bytes.size() != cloud_bytes()) {
      return error(Code::kDataLoss, cloud_path(layer, side) + " was cut meanwhile; run again");
    }
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  // FOLDER/clouds/layer_NNN_before.npy, for `tailor geometry` and other programs, and which rows
  // are which subsample.
  Status export_clouds() const {
    std::error_code failure;
    fs::create_directories(folder_ + "/clouds", failure);
    if (failure) return errno_status(failure.value(), "create", folder_ + "/clouds");
    for (int layer = 0; layer < depth(); ++layer) {
      for (const char* side : {"before", "after"}) {
        TAILOR_ASSIGN_OR_RETURN(const std::vector<float> values, read_cloud(layer, side));
        geometry::NpyArray array;
        array.type = geometry::NpyType::kF4;
        array.shape = {cloud_rows(), static_cast<std::size_t>(network_.width())};
        array.bytes.assign(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof(float));
        TAILOR_RETURN_IF_ERROR(geometry::write_npy(
            fmt::format("{}/clouds/layer_{:03}_{}.npy", folder_, layer, side), array));
      }
    }
    const ordered_json positions = {{"offsets", offsets()}, {"subsamples", sampling_.subsamples}};
    return write_file_atomic(folder_ + "/clouds/positions.json", positions.dump() + "\n");
  }

  Result<ordered_json> finish(const ordered_json& about, const ordered_json& identity) {
    say("analysis");
    TAILOR_ASSIGN_OR_RETURN(const Sensitivity sensitivity,
                            Sensitivity::create(results_, depth(), settings_.probes));
    const ordered_json found =
        analyse(layers_, sampling_, sensitivity, {settings_.seed, settings_.permutations});
    ordered_json out = {{"format", found["format"]}, {"version", found["version"]}};
    for (const auto& [key, value] : about.items()) out[key] = value;
    out["settings"] = identity["settings"];
    out["tokens_sha256"] = identity["tokens_sha256"];
    out["settings_sha256"] = pieces_->hash();
    for (const auto& [key, value] : found.items()) out[key] = value;

    constexpr auto kReplace = ordered_json::error_handler_t::replace;  // of paths that are no UTF-8
    TAILOR_RETURN_IF_ERROR(
        write_file_atomic(folder_ + "/diagnosis.json", out.dump(2, ' ', false, kReplace) + "\n"));
    TAILOR_RETURN_IF_ERROR(
        storage::write_table_file(folder_ + "/diagnosis.db", tables_of(out, layers_, results_)));
    if (settings_.keep_clouds) TAILOR_RETURN_IF_ERROR(export_clouds());
    TAILOR_RETURN_IF_ERROR(write_file_atomic(folder_ + "/report.html", report_html(out)));
    std::error_code ignored;
    fs::remove_all(folder_ + "/pieces/clouds", ignored);
    done_ = total_;
    say("done");
    return out;
  }

  ProbeNetwork& network_;
  const Sequences& sequences_;
  const Settings& settings_;
  const double layer_flops_, head_flops_;
  const std::string folder_;
  const ShowProgress& progress_;
  const PieceStore* pieces_ = nullptr;

  std::size_t of_pass_ = 1;
  double done_ = 0, total_ = 0, clouds_flops_ = 0, layer_work_ = 0;
  ProbeResults results_;
  std::vector<bool> zero_;
  Sampling sampling_;
  std::vector<LayerMeasurement> layers_;
};

}  // namespace

Status Settings::validate() const {
  const auto wrong = [](std::string message) {
    return Status(Code::kInvalidArgument, std::move(message));
  };
  TAILOR_RETURN_IF_ERROR(probes.validate());
  if (tokens < 2 || tokens > 100'000) {
    return wrong(fmt::format("{} tokens a subsample; allowed: 2 to 100000", tokens));
  }
  if (subsamples < 1 || subsamples > 1000) {
    return wrong(fmt::format("{} subsamples; allowed: 1 to 1000", subsamples));
  }
  if (length < 2) return wrong("a sequence for clouds has at least 2 tokens");
  if (tokens_per_sequence < 1 || static_cast<std::int64_t>(tokens_per_sequence) >= length) {
    return wrong(
        fmt::format("{} tokens of a sequence of {}; allowed: 1 to {} (the first is never "
                    "taken)",
                    tokens_per_sequence, length, length - 1));
  }
  if (probe_sequences < 1) return wrong("at least 1 sequence is probed");
  if (probe_length < 2 || probe_length > length) {
    return wrong(fmt::format("probed sequences of {} tokens; allowed: 2 to {}, the length of all",
                             probe_length, length));
  }
  if (scored < 1 || scored >= probe_length) {
    return wrong(fmt::format("{} scored tokens of {}; allowed: 1 to {}", scored, probe_length,
                             probe_length - 1));
  }
  if (!(rho > 0 && rho < 1)) return wrong(fmt::format("rho is {}; allowed: within 0 and 1", rho));
  if (threads < 1) return wrong("at least 1 thread");
  return Status::ok();
}

std::size_t Settings::cloud_sequences() const {
  return subsamples * ((tokens + tokens_per_sequence - 1) / tokens_per_sequence);
}

Result<ordered_json> diagnose(ProbeNetwork& network, const Sequences& sequences,
                              const Settings& settings, const ordered_json& about,
                              const std::string& folder, const ShowProgress& progress) {
  return Run(network, sequences, settings, folder, progress).run(about);
}

}  // namespace tailor::diagnose
