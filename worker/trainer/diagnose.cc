#include "worker/trainer/diagnose.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "model/diagnose/forward.h"
#include "model/diagnose/streamed_network.h"
#include "protocol/report.h"
#include "worker/trainer/device.h"
#include "worker/trainer/diagnose_data.h"
#include "worker/trainer/open_model.h"

namespace tailor::trainer {
namespace {

using nlohmann::ordered_json;
using protocol::TrainerExit;

constexpr double kMemoryBytes = 20e9;      // a 7B model in bf16 fits
constexpr double kWorkingBytes = 2e9;      // activations of a pass, distances, reports
constexpr double kCloudStreamBytes = 2e9;  // see take_cloud_rows

/// A bar on stderr: rewritten on a terminal, else a line every ten seconds.
class DiagnosisProgress {
 public:
  ~DiagnosisProgress() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
  }
  void show(double done, double total, std::string_view what) {
    const MonotonicMs now_ms = clock_.now_ms();
    if (first_done_ < 0) first_done_ = done;
    if (now_ms - shown_ms_ < (is_terminal_ ? 200 : 10'000)) return;
    shown_ms_ = now_ms;
    const double share = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 0;
    const double seconds = static_cast<double>(now_ms - start_ms_) / 1000;
    std::string left;
    // What was taken over from an earlier run says nothing of this one's speed.
    if (done > first_done_) {
      left = fmt::format(", about {:.0f} s left", seconds * (total - done) / (done - first_done_));
    }
    constexpr int kWidth = 24;
    const int full = static_cast<int>(share * kWidth);
    fmt::print(stderr, "{}[{}{}] {:.0f} %  {}{}{}", drawn_ ? "\r\033[K" : "",
               std::string(static_cast<std::size_t>(full), '#'),
               std::string(static_cast<std::size_t>(kWidth - full), '.'), share * 100, what, left,
               is_terminal_ ? "" : "\n");
    std::fflush(stderr);
    drawn_ = is_terminal_;
  }
  double seconds() const { return static_cast<double>(clock_.now_ms() - start_ms_) / 1000; }

 private:
  SystemClock clock_;
  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  MonotonicMs start_ms_ = clock_.now_ms();
  MonotonicMs shown_ms_ = start_ms_;
  double first_done_ = -1;
  bool drawn_ = false;
};

/// Tells two models apart without reading all of them: names, shapes, types, and the first and
/// last row of every tensor.
Result<std::string> fingerprint(const pretrained::TensorSource& source) {
  Sha256 hash;
  std::vector<float> row;
  for (const pretrained::SourceTensor& tensor : source.tensors()) {
    hash.update(fmt::format("{} {}", tensor.name, tensor.type));
    for (const std::int64_t size : tensor.shape) hash.update(fmt::format(" {}", size));
    const std::int64_t columns = tensor.columns();
    if (columns == 0 || tensor.elements() == 0) continue;
    row.resize(static_cast<std::size_t>(columns));
    for (const std::int64_t first : {std::int64_t{0}, tensor.elements() - columns}) {
      TAILOR_RETURN_IF_ERROR(source.read(tensor.name, first, row));
      hash.update(row.data(), row.size() * sizeof(float));
    }
  }
  return hash.hex();
}

double memory_for_weights(const DiagnoseOptions& options, std::int64_t width) {
  double bytes = options.memory_gb * 1e9;
  if (bytes <= 0) bytes = std::min(kMemoryBytes, 0.8 * available_memory().bytes);
  const diagnose::Settings& s = options.settings;
  const std::int64_t rows = s.probe_sequences * (s.probe_length - 1);
  const double stream = static_cast<double>(rows) * static_cast<double>(width) * 4;
  const double probes = stream * static_cast<double>(diagnose::probes_per_pass(rows, width) + 2);
  const double clouds = std::min(kCloudStreamBytes, static_cast<double>(s.cloud_sequences()) *
                                                        static_cast<double>(s.length) *
                                                        static_cast<double>(width) * 4);
  return bytes - kWorkingBytes - std::max(probes, clouds);
}

TrainerExit exit_of_diagnosis(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return TrainerExit::kCompleted;
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kPermissionDenied:
    case Code::kUnimplemented:
    case Code::kFailedPrecondition:
      return TrainerExit::kUsage;
    case Code::kDataLoss:
      return TrainerExit::kData;
    case Code::kResourceExhausted:
      return TrainerExit::kOom;
    case Code::kOutOfRange:  // a loss or a stream that is not finite
      return TrainerExit::kNan;
    default:
      return TrainerExit::kInfrastructure;
  }
}

std::string estimate_text(const ordered_json& estimate) {
  if (estimate["value"].is_null()) return "-";
  const std::string error = estimate["standard_error"].is_null()
                                ? "?"
                                : fmt::format("{:.2g}", estimate["standard_error"].get<double>());
  return fmt::format("{:.3g} +- {}", estimate["value"].get<double>(), error);
}

void print_summary(const ordered_json& out, const std::string& folder) {
  fmt::print("clean loss {} nats a token, {} layers\n", estimate_text(out["clean_loss"]),
             out["layers"].size());
  fmt::print("{:<12}{:<12}{:>20}{:>20}{:>12}{:>20}{:>12}\n", "profile", "statistic", "front-load",
             "Spearman with", "p (shift)", "given depth", "p (shift)");
  fmt::print("{:<24}{:>20}{:>20}\n", "", "(1/3 = even)", "sensitivity");
  for (const ordered_json& row : out["correlations"]) {
    if (row["perturbation"] != out["settings"]["perturbations"][0]) continue;
    std::string front = "";
    for (const ordered_json& work : out["work"]) {
      if (work["geometry"] == row["profile"] && work["statistic"] == row["statistic"]) {
        front = estimate_text(work["front_load"]);
      }
    }
    const ordered_json& c = row["spearman"];
    const auto p = [](const ordered_json& of) {
      return of.contains("p_shift") ? fmt::format("{:.2g}", of["p_shift"].get<double>())
                                    : std::string("-");
    };
    const bool partial = c.contains("partial");
    fmt::print("{:<12}{:<12}{:>20}{:>20}{:>12}{:>20}{:>12}\n", row["profile"].get<std::string>(),
               row["statistic"].get<std::string>(), front, estimate_text(c), p(c),
               partial ? estimate_text(c["partial"]) : "-", partial ? p(c["partial"]) : "-");
  }
  const ordered_json& additive = out["additivity"]["locally_additive"];
  fmt::print("locally additive: {}\n",
             additive.is_null()
                 ? "cannot be said: " + out["additivity"]["reason"].get<std::string>()
                 : std::string(additive.get<bool>() ? "yes" : "no"));
  fmt::print("{0}/report.html, {0}/diagnosis.json, {0}/diagnosis.db\n", folder);
}

}  // namespace

void add_diagnose_options(CLI::App& command, DiagnoseOptions& options) {
  command.footer(
      "Examples:\n"
      "  tailor-trainer diagnose --model SmolLM2-135M.gguf --data book.txt --out smollm\n"
      "  tailor-trainer diagnose --model trials/t41/2 --out t41     (its validation data)\n"
      "  tailor-trainer diagnose --model Llama-3.1-8B --data 'docs-*.tokens' --dtype bf16 "
      "--threads 16\n"
      "Run it again with the same options and it goes on where it was killed. Exit codes: 0 ok, 2 "
      "usage or bad input, 3 damaged files, 4 out of memory, 5 not finite, 7 other.");
  diagnose::Settings& s = options.settings;
  command
      .add_option("--model", options.model,
                  "trial directory, one of its checkpoints, folder with config.json, or .gguf")
      ->required();
  command.add_option("--data", options.data,
                     "texts, token shards (*.tokens) or ids (*.npy) (of a trial: its validation "
                     "shards)");
  command.add_option("--out", options.out, "folder of the results (diagnosis)");
  command.add_option("--tokenizer", options.tokenizer,
                     "\"bytes\", tokenizer.json, .model, .gguf or a folder (the model's own)");
  command.add_option("--length", s.length, "tokens of a sequence that clouds are taken from (128)");
  command.add_option("--tokens", s.tokens, "tokens of a subsample (256)");
  command.add_option("--subsamples", s.subsamples, "disjoint subsamples of whole sequences (8)");
  command.add_option("--tokens-per-sequence", s.tokens_per_sequence,
                     "that clouds take of each sequence (4)");
  command.add_option("--rho", s.rho, "radius of the hyperbolic geometry (tanh 1)");
  command
      .add_option("--perturbation", options.perturbations,
                  "relative, absolute, attenuation, ablation; the first is used for subsets too "
                  "(relative)")
      ->delimiter(',');
  command.add_option("--eps", s.probes.eps, "sizes of the perturbation (0.05,0.1,0.2)")
      ->delimiter(',');
  command.add_option("--draws", s.probes.draws, "of the noise (4)");
  command
      .add_option("--subset-sizes", s.probes.subset_sizes,
                  "layers perturbed together; 0: all (2,4,8,0)")
      ->delimiter(',');
  command.add_option("--subsets", s.probes.subsets, "random ones of each size (20)");
  command.add_option("--probe-sequences", s.probe_sequences, "sequences that are probed (8)");
  command.add_option("--probe-length", s.probe_length, "tokens of each (64)");
  command.add_option("--scored", s.scored, "the last so many of each are scored (32)");
  command.add_option("--permutations", s.permutations, "for the naive p (10000)");
  command.add_option("--seed", s.seed, "of positions, noise and subsets (0)");
  command
      .add_option("--memory", options.memory_gb,
                  "GB of host memory; layers that do not fit are read again in every pass (20, or "
                  "80 % of what is free)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--dtype", options.dtype, "of the products: f32 or bf16 (f32)")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command.add_option("--device", options.device, "cpu or cuda:N (cpu)");
  command.add_option("--threads", s.threads, "CPU threads (1)")->check(CLI::PositiveNumber);
  command.add_flag("--keep-clouds", s.keep_clouds, "keep the clouds as .npy in OUT/clouds");
  command.add_flag("--json", options.json, "the whole result as one line of JSON on stdout");
}

Result<ordered_json> diagnose_model(const DiagnoseOptions& options,
                                    const diagnose::ShowProgress& progress) {
  diagnose::Settings settings = options.settings;
  settings.probes.seed = settings.seed;
  settings.probes.kinds.clear();
  for (const std::string& name : options.perturbations) {
    TAILOR_ASSIGN_OR_RETURN(const auto kind, diagnose::parse_perturbation(name));
    settings.probes.kinds.push_back(kind);
  }
  TAILOR_RETURN_IF_ERROR(settings.validate());
  at::set_num_threads(settings.threads);
  TAILOR_ASSIGN_OR_RETURN(const OpenDevice device, open_device(options.device));
  TAILOR_ASSIGN_OR_RETURN(const ModelFiles model, open_model_files(options.model));

  std::vector<std::string> files = options.data;
  if (files.empty() && !model.validation_shards.empty()) files = {model.validation_shards};
  if (files.empty()) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} says nothing of its data: name some with --data", options.model));
  }
  ordered_json data = ordered_json::object();
  TAILOR_ASSIGN_OR_RETURN(const diagnose::Sequences sequences,
                          choose_sequences(files, model, options.tokenizer, settings, data));

  diagnose::StreamOptions stream;
  stream.device = device.device;
  stream.bf16 = options.dtype == "bf16";
  stream.weight_bytes = memory_for_weights(options, model.form.d_model);
  const diagnose::WeightBytes bytes = diagnose::weight_bytes(model.form, stream.bf16);
  TAILOR_ASSIGN_OR_RETURN(const auto network,
                          diagnose::make_streamed_network(model.form, *model.source, stream));
  if (bytes.all > stream.weight_bytes) {
    fmt::print(stderr,
               "note: {:.1f} GB of weights, {:.1f} GB of room: some layers are read again in every "
               "pass\n",
               bytes.all / 1e9, stream.weight_bytes / 1e9);
  }
  TAILOR_ASSIGN_OR_RETURN(const std::string print, fingerprint(*model.source));
  const ordered_json about = {
      {"model",
       {{"name", std::filesystem::path(absolute_path(options.model)).filename().string()},
        {"layers", model.form.depth()},
        {"width", model.form.d_model},
        {"vocabulary", model.form.vocab_size},
        {"parameters", bytes.parameters},
        {"fingerprint", print},
        {"dtype", options.dtype},
        {"device", device.device.is_cpu() ? "cpu" : device.name}}},
      {"data", std::move(data)}};
  return diagnose::diagnose(*network, sequences, settings, about, options.out, progress);
}

int run_diagnose(const DiagnoseOptions& options) {
  const auto refuse = [](TrainerExit code, std::string_view message) {
    fmt::print(stderr, "tailor-trainer diagnose: {}\n", message);
    return static_cast<int>(code);
  };
  try {
    Result<ordered_json> out = error(Code::kUnknown, "");
    double seconds = 0;
    {
      DiagnosisProgress progress;
      out = diagnose_model(options, [&](double done, double total, std::string_view what) {
        progress.show(done, total, what);
      });
      seconds = progress.seconds();
    }
    if (!out) return refuse(exit_of_diagnosis(out.error()), out.error().message());
    fmt::print(stderr, "{:.0f} s, {:.0f} s of processor time\n", seconds, process_cpu_seconds());
    if (options.json) {
      fmt::print("{}\n", out->dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    } else {
      print_summary(*out, options.out);
    }
    if (std::fflush(stdout) != 0)
      return refuse(TrainerExit::kInfrastructure, "cannot write stdout");
    return 0;
  } catch (const c10::OutOfMemoryError& failure) {
    return refuse(TrainerExit::kOom, failure.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return refuse(TrainerExit::kOom, "out of memory; take fewer or shorter sequences");
  } catch (const std::exception& failure) {
    return refuse(TrainerExit::kInfrastructure, failure.what());
  }
}

}  // namespace tailor::trainer
