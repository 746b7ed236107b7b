#include "model/train/trial.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "base/file.h"
#include "base/hash.h"
#include "base/logging.h"
#include "model/data/dataset.h"
#include "model/data/loader.h"
#include "model/kernels/linear.h"
#include "model/net/decoder.h"
#include "model/pretrained/safetensors.h"
#include "model/shape/count.h"
#include "model/train/checkpoint.h"
#include "model/train/clouds.h"
#include "model/train/evaluate.h"
#include "model/train/optimizer.h"
#include "model/train/schedule.h"
#include "model/train/step.h"

namespace tailor::train {
namespace {

using protocol::EndClass;
using protocol::EndReport;
using protocol::TrialSpec;

// Sequences of one forward pass without gradients, when the spec does not say.
constexpr std::int64_t kEvaluationTokens = 4096;

EndReport ended(EndClass end, std::string message, std::int64_t step) {
  EndReport report;
  report.end = end;
  report.message = std::move(message);
  report.step = step;
  return report;
}

// The class of a failure of data or of the machine, from its code.
EndClass data_class(const Status& status) {
  switch (status.code()) {
    case Code::kResourceExhausted:
    case Code::kUnavailable:
      return EndClass::kInfrastructure;
    default:
      return EndClass::kData;
  }
}

// Numbers of a run that follow from its spec.
struct Plan {
  std::int64_t time = 0;        // T
  std::int64_t rows = 0;        // sequences of one step
  std::int64_t micro_rows = 0;  // of one forward
  std::int64_t evaluation_rows = 0;
  std::int64_t steps = 0;
};

Plan plan_of(const TrialSpec& spec) {
  Plan plan;
  plan.time = spec.data.sequence_length;
  plan.rows = spec.train.batch_tokens / plan.time;
  plan.micro_rows = spec.train.micro_batch_tokens / plan.time;
  plan.evaluation_rows = plan.micro_rows > 0
                             ? plan.micro_rows
                             : std::max<std::int64_t>(1, kEvaluationTokens / plan.time);
  plan.steps = (spec.train.tokens + spec.train.batch_tokens - 1) / spec.train.batch_tokens;
  return plan;
}

// config.json beside exported weights, in the form of Hugging Face's; hourglass stacks add their
// own key.
std::string config_json(const shape::Architecture& a, std::int64_t sequence_length) {
  using nlohmann::ordered_json;
  const bool olmo2 = a.family == shape::Family::kOlmo2;
  ordered_json config = {
      {"architectures", {olmo2 ? "Olmo2ForCausalLM" : "LlamaForCausalLM"}},
      {"model_type", olmo2 ? "olmo2" : "llama"},
      {"hidden_size", a.d_model},
      {"intermediate_size", a.widths.front().front()},
      {"num_hidden_layers", a.layers()},
      {"num_attention_heads", a.heads},
      {"num_key_value_heads", a.kv_heads},
      {"head_dim", a.head_dim},
      {"vocab_size", a.vocab_size},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"max_position_embeddings", sequence_length},
      {"rms_norm_eps", a.norm_eps},
      {"rope_theta", a.rope_theta},
      {"tie_word_embeddings", a.tie_embeddings},
      {"torch_dtype", "float32"},
  };
  const bool uniform = std::all_of(a.widths.begin(), a.widths.end(),
                                   [&](const auto& layer) { return layer == a.widths.front(); });
  const bool conventional_norm =
      a.ffn_norm == (olmo2 ? shape::FfnNorm::kPerSubPost : shape::FfnNorm::kPerSub);
  if (a.ffn_kind != shape::FfnKind::kSwiglu || !uniform || !conventional_norm ||
      a.ffn_outer_residual) {
    // Not a network that other programs know: the whole architecture, for ours.
    config["tailor"] = ordered_json::parse(shape::canonical_json(a));
  }
  return config.dump(2) + "\n";
}

// One run: its parts and the way from start to end. Built once, used once.
class Trial {
 public:
  Trial(const TrialSpec& spec, at::Device device, const TrialHost& host, const TrialPaths& paths,
        TrialObserver& observer, const Clock& clock, const data::Dataset& train,
        const data::Dataset& validation, const data::TrainLoader& loader,
        const data::EvaluationLoader& evaluation)
      : spec_(spec),
        host_(host),
        paths_(paths),
        observer_(observer),
        clock_(clock),
        loader_(loader),
        evaluation_(evaluation),
        plan_(plan_of(spec)),
        data_hash_(sha_of(train, validation)),
        identity_(trial_identity(spec, data_hash_)),
        decoder_(spec.architecture, device, spec.train.precision == protocol::Precision::kBf16),
        optimizer_(decoder_.parameters(), spec.train.optimizer),
        step_(decoder_, optimizer_, plan_.micro_rows) {}

  EndReport run() {
    if (auto end = start()) return *end;
    if (auto end = train()) return *end;
    return finish();
  }

 private:
  static std::string sha_of(const data::Dataset& train, const data::Dataset& validation);

  // Each returns the end of the trial if this part ended it.
  std::optional<EndReport> start();
  std::optional<EndReport> train();
  EndReport finish();

  std::optional<EndReport> after_step(const at::Tensor& numbers);
  std::optional<EndReport> read_numbers();
  std::optional<EndReport> evaluate_now();
  std::optional<EndReport> checkpoint(bool required);
  EndReport stopped(const std::string& why);
  EndReport not_finite(std::int64_t step, double loss, double norm);
  Status export_weights();

  std::optional<EndReport> say(ProgressReport report) {
    const Status status = observer_.report(std::move(report));
    if (status) return std::nullopt;
    return ended(EndClass::kInfrastructure, "a report could not be written: " + status.message(),
                 done_);
  }
  ShouldStop stop_asked() {
    return [this] {
      if (!stop_why_) stop_why_ = observer_.stop_reason();
      return stop_why_.has_value();
    };
  }
  // An error of an evaluation or a measurement, as an end.
  EndReport failed(const Status& status) {
    if (status.code() == Code::kCancelled && stop_why_) return stopped(*stop_why_);
    return ended(data_class(status), status.message(), done_);
  }
  std::int64_t tokens_done() const { return done_ * spec_.train.batch_tokens; }
  void fill_batch(std::int64_t step, at::Tensor& tokens, at::Tensor& targets, Status& status) {
    tokens = at::empty({plan_.rows, plan_.time}, at::kLong);
    targets = at::empty({plan_.rows, plan_.time}, at::kLong);
    const auto span_of = [](at::Tensor& x) {
      return std::span<std::int64_t>(x.mutable_data_ptr<std::int64_t>(),
                                     static_cast<std::size_t>(x.numel()));
    };
    status = loader_.batch<std::int64_t>(static_cast<std::uint64_t>(step),
                                         static_cast<std::uint64_t>(plan_.rows), span_of(tokens),
                                         span_of(targets));
  }

  const TrialSpec& spec_;
  const TrialHost& host_;
  const TrialPaths& paths_;
  TrialObserver& observer_;
  const Clock& clock_;
  const data::TrainLoader& loader_;
  const data::EvaluationLoader& evaluation_;
  const Plan plan_;
  const std::string data_hash_;
  const std::string identity_;
  net::Decoder decoder_;
  AdamW optimizer_;
  TrainStep step_;

  std::int64_t done_ = 0;    // optimiser steps done
  std::int64_t saved_ = -1;  // step of the newest checkpoint, -1 = none
  std::string saved_path_;
  MonotonicMs saved_ms_ = 0;  // when it was written
  double loss_ = 0;           // of the last step whose numbers were read
  double norm_ = 0;
  std::vector<at::Tensor> unread_;  // numbers of the steps before `done_`, oldest first
  std::optional<std::string> stop_why_;
  // Speed: time spent in steps only.
  double trained_ms_ = 0;
  std::int64_t trained_tokens_ = 0;
  double window_ms_ = 0;
  std::int64_t window_tokens_ = 0;
};

std::string Trial::sha_of(const data::Dataset& train, const data::Dataset& validation) {
  return sha256_hex(train.content_hash() + "\n" + validation.content_hash());
}

std::optional<EndReport> Trial::start() {
  std::vector<std::string> folders{paths_.checkpoints};
  folders.insert(folders.end(), spec_.resume_from.begin(), spec_.resume_from.end());
  const auto skipped = [](const std::string& path, const Status& reason) {
    log_warn("trainer", "checkpoint skipped", {{"path", path}, {"reason", reason.to_string()}});
  };
  const std::optional<CheckpointInfo> found = newest_checkpoint(folders, identity_, skipped);
  if (found) {
    const Status loaded = load_checkpoint(*found, decoder_, optimizer_);
    if (!loaded) return ended(EndClass::kData, loaded.message(), 0);
    done_ = found->state.step;
    loss_ = found->state.train_loss;
    saved_path_ = found->path;
    // A checkpoint of an earlier attempt is not in this attempt's folder yet.
    if (found->path.starts_with(paths_.checkpoints + "/")) saved_ = done_;
    log_info("trainer", "resumed", {{"step", std::to_string(done_)}, {"path", found->path}});
  } else {
    decoder_.initialise(spec_.seed, spec_.train.init_std);
  }
  saved_ms_ = clock_.now_ms();
  if (spec_.train.precision == protocol::Precision::kBf16 && decoder_.device().is_cpu() &&
      !kernels::cpu_multiplies_bf16()) {
    log_info("trainer", "bf16 values are multiplied in fp32: this CPU is faster so");
  }

  const shape::Counts counts = shape::count_parameters(spec_.architecture);
  protocol::StartedReport report;
  report.pid = host_.pid;
  report.host = host_.host;
  report.device = host_.device_name;
  report.version = host_.version;
  report.data_hash = data_hash_;
  report.resumed_step = done_;
  report.resumed_from = found ? found->path : "";
  report.parameters_body = counts.body;
  report.parameters_total = counts.total;
  report.steps_total = plan_.steps;
  return say(std::move(report));
}

std::optional<EndReport> Trial::train() {
  at::Tensor tokens;
  at::Tensor targets;
  while (done_ < plan_.steps) {
    if (stop_asked()()) return stopped(*stop_why_);
    const MonotonicMs begin_ms = clock_.now_ms();
    Status filled;
    fill_batch(done_, tokens, targets, filled);
    if (!filled) return ended(data_class(filled), filled.message(), done_);
    const double lr =
        learning_rate(spec_.train.schedule, spec_.train.optimizer.lr, done_, plan_.steps);
    const at::Tensor numbers = step_.run(tokens, targets, lr);
    if (auto end = after_step(numbers)) return end;
    const auto took_ms = static_cast<double>(clock_.now_ms() - begin_ms);
    trained_ms_ += took_ms;
    window_ms_ += took_ms;
    trained_tokens_ += spec_.train.batch_tokens;
    window_tokens_ += spec_.train.batch_tokens;

    const bool last = done_ == plan_.steps;
    if (last || done_ % spec_.train.log_every_steps == 0) {
      if (auto end = read_numbers()) return end;
      protocol::MetricReport metric;
      metric.step = done_;
      metric.tokens = tokens_done();
      metric.values = {{"train_loss", loss_}, {"lr", lr}, {"grad_norm", norm_}};
      if (window_ms_ > 0) {
        metric.values["tokens_per_s"] = static_cast<double>(window_tokens_) * 1000.0 / window_ms_;
      }
      window_ms_ = 0;
      window_tokens_ = 0;
      if (auto end = say(std::move(metric))) return end;
    }
    const std::int64_t every = spec_.train.evaluate_every_tokens;
    const std::int64_t before = tokens_done() - spec_.train.batch_tokens;
    if (!last && every > 0 && tokens_done() / every > before / every) {
      if (auto end = evaluate_now()) return end;
    }
    if (!last && spec_.train.checkpoint_every_ms > 0 &&
        clock_.now_ms() - saved_ms_ >= spec_.train.checkpoint_every_ms) {
      if (auto end = checkpoint(/*required=*/false)) return end;
    }
  }
  return std::nullopt;
}

std::optional<EndReport> Trial::after_step(const at::Tensor& numbers) {
  ++done_;
  unread_.push_back(numbers);
  // On a GPU, reading waits for it: only when somebody wants the numbers.
  if (numbers.device().is_cpu()) return read_numbers();
  return std::nullopt;
}

std::optional<EndReport> Trial::read_numbers() {
  const std::int64_t first = done_ - static_cast<std::int64_t>(unread_.size());
  for (std::size_t i = 0; i < unread_.size(); ++i) {
    const at::Tensor pair = unread_[i].to(at::kCPU);
    const double* values = pair.const_data_ptr<double>();
    if (!std::isfinite(values[0]) || !std::isfinite(values[1])) {
      return not_finite(first + static_cast<std::int64_t>(i), values[0], values[1]);
    }
    loss_ = values[0];
    norm_ = values[1];
  }
  unread_.clear();
  return std::nullopt;
}

EndReport Trial::not_finite(std::int64_t step, double loss, double norm) {
  // The optimiser has skipped this step and all later ones: the weights are those that made the
  // number.
  at::Tensor tokens;
  at::Tensor targets;
  Status filled;
  fill_batch(step, tokens, targets, filled);
  const std::string what = filled ? find_nonfinite(decoder_, tokens, targets) : "unknown";
  EndReport report = ended(
      EndClass::kNan,
      fmt::format(
          "step {}: loss {}, gradient norm {}; first not finite: {}. Last good checkpoint: {}. "
          "Lower train.optimizer.lr or lengthen the warm-up.",
          step + 1, loss, norm, what, saved_path_.empty() ? "none" : saved_path_),
      step + 1);
  report.values = {{"train_loss", loss}, {"grad_norm", norm}};
  return report;
}

std::optional<EndReport> Trial::evaluate_now() {
  const auto result = evaluate(decoder_, evaluation_, plan_.evaluation_rows, stop_asked());
  if (!result) return failed(result.error());
  protocol::MetricReport metric;
  metric.step = done_;
  metric.tokens = tokens_done();
  metric.values = {{"validation_loss", result->loss}, {"perplexity", result->perplexity}};
  return say(std::move(metric));
}

std::optional<EndReport> Trial::checkpoint(bool required) {
  if (auto end = read_numbers()) return end;  // never save what a bad step made
  if (saved_ == done_) return std::nullopt;
  CheckpointState state;
  state.step = done_;
  state.tokens = tokens_done();
  state.next_sample = static_cast<std::uint64_t>(done_ * plan_.rows);
  state.train_loss = loss_;
  state.identity = identity_;
  const auto saved = save_checkpoint(paths_.checkpoints, state, decoder_, optimizer_);
  saved_ms_ = clock_.now_ms();
  if (!saved) {
    if (required) return ended(EndClass::kInfrastructure, saved.error().message(), done_);
    log_warn("trainer", "checkpoint failed; training goes on",
             {{"reason", saved.error().to_string()}});
    return std::nullopt;
  }
  saved_ = done_;
  saved_path_ = saved->path;
  protocol::CheckpointReport report;
  report.step = done_;
  report.path = saved->path;
  report.sha256 = saved->manifest_sha256;
  report.bytes = saved->bytes;
  return say(std::move(report));
}

EndReport Trial::stopped(const std::string& why) {
  const std::optional<EndReport> failure = checkpoint(/*required=*/true);
  if (failure && failure->end == EndClass::kNan) return *failure;
  EndReport report =
      ended(EndClass::kStopped,
            failure ? fmt::format("{} at step {}; no checkpoint could be saved: {}", why, done_,
                                  failure->message)
                    : fmt::format("{} at step {}; checkpoint {}", why, done_, saved_path_),
            done_);
  report.values = {{"train_loss", loss_}};
  return report;
}

Status Trial::export_weights() {
  std::error_code failure;
  std::filesystem::create_directories(paths_.artifacts, failure);
  if (failure) return errno_status(failure.value(), "create", paths_.artifacts);
  const at::Tensor weights = decoder_.parameters().flat().to(at::kCPU);
  const std::string path = paths_.artifacts + "/model.safetensors";
  const std::string temporary = path + ".partial";
  TAILOR_RETURN_IF_ERROR(status_of(pretrained::write_safetensors(
      temporary, decoder_.parameters().describe(weights, ""), {{"format", "pt"}})));
  std::filesystem::rename(temporary, path, failure);
  if (failure) return errno_status(failure.value(), "rename", temporary);
  return write_file_atomic(paths_.artifacts + "/config.json",
                           config_json(spec_.architecture, plan_.time));
}

EndReport Trial::finish() {
  if (auto end = checkpoint(/*required=*/true)) return *end;
  const auto result = evaluate(decoder_, evaluation_, plan_.evaluation_rows, stop_asked());
  if (!result) return failed(result.error());
  protocol::MetricReport metric;
  metric.step = done_;
  metric.tokens = tokens_done();
  metric.values = {{"validation_loss", result->loss}, {"perplexity", result->perplexity}};
  if (auto end = say(std::move(metric))) return *end;
  if (const Status status = export_weights(); !status) {
    return ended(EndClass::kInfrastructure,
                 "the weights could not be exported: " + status.message(), done_);
  }
  if (spec_.geometry.enabled) {
    const auto work =
        measure_trial(decoder_, evaluation_, spec_, plan_.evaluation_rows, stop_asked());
    if (!work) return failed(work.error());
    const Status written = write_file_atomic(paths_.artifacts + "/work_profile.json",
                                             work_profile_json(*work, spec_, done_));
    if (!written) return ended(EndClass::kInfrastructure, written.message(), done_);
    if (auto end = say(to_report(work->profile, done_))) return *end;
  }
  EndReport report =
      ended(EndClass::kCompleted,
            fmt::format("trained {} tokens in {} steps", tokens_done(), done_), done_);
  report.values = {
      {"validation_loss", result->loss},
      {"perplexity", result->perplexity},
      {"train_loss", loss_},
      {"parameters", static_cast<double>(shape::count_parameters(spec_.architecture).total)}};
  if (trained_ms_ > 0) {
    report.values["tokens_per_s"] = static_cast<double>(trained_tokens_) * 1000.0 / trained_ms_;
  }
  return report;
}

}  // namespace

Status validate_trial(const TrialSpec& spec) {
  TAILOR_RETURN_IF_ERROR(shape::validate(spec.architecture).with_context("architecture"));
  const auto require = [](bool condition, std::string_view field, const auto& value,
                          std::string_view allowed) {
    if (condition) return Status::ok();
    return Status(Code::kInvalidArgument, fmt::format("{} is {}; {}", field, value, allowed));
  };
  const protocol::TrainSpec& train = spec.train;
  const protocol::OptimizerSpec& adam = train.optimizer;
  const std::int64_t time = spec.data.sequence_length;
  const auto positive = [](double x) { return std::isfinite(x) && x > 0; };
  const auto share = [](double x) { return x >= 0 && x < 1; };
  constexpr std::string_view kCount = "a whole number >= 1 is needed";
  constexpr std::string_view kPositive = "a finite number > 0 is needed";
  TAILOR_RETURN_IF_ERROR(require(time >= 1, "data.sequence_length", time, kCount));
  TAILOR_RETURN_IF_ERROR(require(train.tokens >= 1, "train.tokens", train.tokens, kCount));
  TAILOR_RETURN_IF_ERROR(require(
      train.batch_tokens >= time && train.batch_tokens % time == 0, "train.batch_tokens",
      train.batch_tokens, fmt::format("a multiple of data.sequence_length ({}) is needed", time)));
  TAILOR_RETURN_IF_ERROR(require(
      train.micro_batch_tokens >= 0 && train.micro_batch_tokens % time == 0,
      "train.micro_batch_tokens", train.micro_batch_tokens,
      fmt::format("0 (the whole batch) or a multiple of data.sequence_length ({}) is needed",
                  time)));
  TAILOR_RETURN_IF_ERROR(require(positive(adam.lr), "train.optimizer.lr", adam.lr, kPositive));
  TAILOR_RETURN_IF_ERROR(
      require(share(adam.beta1), "train.optimizer.beta1", adam.beta1, "[0, 1) is allowed"));
  TAILOR_RETURN_IF_ERROR(
      require(share(adam.beta2), "train.optimizer.beta2", adam.beta2, "[0, 1) is allowed"));
  TAILOR_RETURN_IF_ERROR(require(positive(adam.eps), "train.optimizer.eps", adam.eps, kPositive));
  TAILOR_RETURN_IF_ERROR(require(std::isfinite(adam.weight_decay) && adam.weight_decay >= 0,
                                 "train.optimizer.weight_decay", adam.weight_decay,
                                 "0 or more is allowed"));
  TAILOR_RETURN_IF_ERROR(require(std::isfinite(adam.clip) && adam.clip >= 0, "train.optimizer.clip",
                                 adam.clip, "0 (off) or more is allowed"));
  TAILOR_RETURN_IF_ERROR(require(share(train.schedule.warmup_fraction),
                                 "train.schedule.warmup_fraction", train.schedule.warmup_fraction,
                                 "[0, 1) is allowed"));
  TAILOR_RETURN_IF_ERROR(
      require(train.schedule.final_fraction >= 0 && train.schedule.final_fraction <= 1,
              "train.schedule.final_fraction", train.schedule.final_fraction, "[0, 1] is allowed"));
  TAILOR_RETURN_IF_ERROR(
      require(train.log_every_steps >= 1, "train.log_every_steps", train.log_every_steps, kCount));
  TAILOR_RETURN_IF_ERROR(require(train.validation_tokens >= 0, "train.validation_tokens",
                                 train.validation_tokens, "0 (all) or more is allowed"));
  TAILOR_RETURN_IF_ERROR(require(std::isfinite(train.init_std) && train.init_std >= 0,
                                 "train.init_std", train.init_std, "0 or more is allowed"));
  TAILOR_RETURN_IF_ERROR(require(spec.threads >= 1, "threads", spec.threads, kCount));
  if (spec.geometry.enabled) {
    TAILOR_RETURN_IF_ERROR(
        require(spec.geometry.tokens >= 1, "geometry.tokens", spec.geometry.tokens, kCount));
    TAILOR_RETURN_IF_ERROR(require(spec.geometry.subsamples >= 1, "geometry.subsamples",
                                   spec.geometry.subsamples, kCount));
    TAILOR_RETURN_IF_ERROR(require(spec.geometry.rho > 0 && spec.geometry.rho < 1, "geometry.rho",
                                   spec.geometry.rho, "(0, 1) is allowed"));
    for (const std::int32_t layer : spec.geometry.layers) {
      TAILOR_RETURN_IF_ERROR(
          require(layer >= 0 && layer < spec.architecture.layers(), "geometry.layers", layer,
                  fmt::format("0 to {} is allowed", spec.architecture.layers() - 1)));
    }
  }
  return Status::ok();
}

EndReport run_trial(const TrialSpec& spec, at::Device device, const TrialHost& host,
                    const TrialPaths& paths, TrialObserver& observer, const Clock& clock) {
  if (const Status status = validate_trial(spec); !status) {
    return ended(EndClass::kUser, status.message(), 0);
  }
  at::set_num_threads(spec.threads);
  data::DatasetOptions options;
  options.vocab_size = static_cast<std::uint32_t>(spec.architecture.vocab_size);
  const auto data_failed = [&](const Status& status, std::string_view which) {
    return ended(data_class(status), fmt::format("data.{}: {}", which, status.message()), 0);
  };
  const auto train = data::Dataset::open_glob(spec.data.train, options);
  if (!train) return data_failed(train.error(), "train");
  const auto validation = data::Dataset::open_glob(spec.data.validation, options);
  if (!validation) return data_failed(validation.error(), "validation");
  if (const Status status = data::check_same_tokenizer(*train, *validation); !status) {
    return data_failed(status, "validation");
  }
  const auto loader = data::TrainLoader::create(*train, spec.data.sequence_length, spec.seed);
  if (!loader) return data_failed(loader.error(), "train");
  const auto evaluation =
      data::EvaluationLoader::create(*validation, spec.data.sequence_length,
                                     static_cast<std::uint64_t>(spec.train.validation_tokens));
  if (!evaluation) return data_failed(evaluation.error(), "validation");
  Trial trial(spec, device, host, paths, observer, clock, *train, *validation, *loader,
              *evaluation);
  return trial.run();
}

}  // namespace tailor::train
