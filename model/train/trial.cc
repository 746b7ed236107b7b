#include "model/train/trial.h"

#include <ATen/Parallel.h>
#include <ATen/ops/sum.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/file.h"
#include "base/logging.h"
#include "geometry/accelerator.h"
#include "model/kernels/linear.h"
#include "model/net/decoder.h"
#include "model/shape/count.h"
#include "model/train/artifacts.h"
#include "model/train/checkpoint_writer.h"
#include "model/train/clouds.h"
#include "model/train/evaluate.h"
#include "model/train/graphed_step.h"
#include "model/train/optimizer.h"
#include "model/train/recipe.h"
#include "model/train/schedule.h"
#include "model/train/staging.h"
#include "model/train/step.h"
#include "model/train/trial_data.h"

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

// Tokens a second, of steps only.
class Speed {
 public:
  void add(std::int64_t tokens, double ms) {
    tokens_ += tokens;
    ms_ += ms;
  }
  // NaN before any time has passed.
  double tokens_per_s() const {
    return ms_ > 0 ? static_cast<double>(tokens_) * 1000.0 / ms_ : std::nan("");
  }

 private:
  std::int64_t tokens_ = 0;
  double ms_ = 0;
};

// Of all elements, in double.
double sum_of(const at::Tensor& x) { return at::sum(x, at::kDouble).item<double>(); }

// One run: its parts and the way from start to end. Built once, used once.
class Trial {
 public:
  Trial(const TrialSpec& spec, at::Device device, const TrialHost& host, const TrialPaths& paths,
        TrialObserver& observer, const Clock& clock, const TrialData& data, ranks::Group& group)
      : spec_(spec),
        host_(host),
        paths_(paths),
        observer_(observer),
        clock_(clock),
        data_(data),
        group_(group),
        plan_(plan_of(spec)),
        share_(group.share(plan_.rows)),
        identity_(trial_identity(spec, data.hash())),
        decoder_(spec.architecture, device, spec.train.precision == protocol::Precision::kBf16),
        optimizer_(
            decoder_.parameters(), spec.train.optimizer,
            [&](const net::Part& part) {
              return lr_factor(part, spec.train.optimizer, spec.architecture);
            },
            spec.train.nan_skip_limit),
        step_(decoder_, optimizer_, plan_.micro_rows, spec.train.z_loss),
        ranks_(group.size()),
        staging_(device, device.is_cpu() ? 0 : share_.count, plan_.time) {
    if (ranks_ > 1) step_.share(group, spec.train.batch_tokens);
    // A recording would hold sums over ranks, which a lost rank must be able to end.
    if (host.make_graph && ranks_ == 1) graphed_.emplace(step_, host.make_graph());
    if (!group.is_first()) return;
    writer_.emplace(paths.checkpoints, KeepPolicy{spec.train.keep_last, spec.train.keep_best},
                    decoder_, optimizer_);
  }

  EndReport run() {
    if (auto end = start()) return *end;
    if (auto end = train()) return *end;
    return finish();
  }

 private:
  // Each returns the end of the trial if this part ended it.
  std::optional<EndReport> start();
  struct Earlier;
  Earlier earlier() const;
  Status cannot_go_on(const Earlier& before, bool other_data) const;
  Result<std::string> resume_or_initialise();
  std::optional<EndReport> be_as_the_first();
  std::optional<EndReport> train();
  EndReport finish();
  // Measures and says so; what cannot be measured is said too, and the trial is trained all the
  // same.
  std::optional<EndReport> measure();

  std::optional<EndReport> after_step(const at::Tensor& numbers);
  // Numbers of steps and weights are believed only after this; all ranks call it together.
  std::optional<EndReport> read_numbers();
  std::optional<EndReport> report_step(double lr);
  std::optional<EndReport> report_evaluation(const Evaluation& evaluation);
  std::optional<EndReport> evaluate_now();

  // Checkpoints. `start_checkpoint`, which all ranks call together, waits for the one under way,
  // then copies and returns;
  // `take_checkpoint` reports the one that is done, waiting for it if told to. A checkpoint that
  // fails is a warning; `require_checkpoint` makes it an end.
  std::optional<EndReport> start_checkpoint(std::optional<double> validation_loss = std::nullopt);
  std::optional<EndReport> take_checkpoint(bool wait);
  std::optional<EndReport> require_checkpoint();

  EndReport stopped(const std::string& why);
  EndReport not_finite(std::int64_t step, double loss, double norm);

  std::optional<EndReport> say(ProgressReport report) {
    if (!group_.is_first()) return std::nullopt;
    const Status status = observer_.report(std::move(report));
    if (status) return std::nullopt;
    return ended(EndClass::kInfrastructure, "a report could not be written: " + status.message(),
                 done_);
  }
  // Whether a checkpoint is due: rank 0's clock decides for all.
  bool all_save() {
    const std::int64_t every_ms = spec_.train.checkpoint_every_ms;
    if (every_ms <= 0) return false;
    const bool mine = writer_ && !writer_->busy() && clock_.now_ms() - saved_ms_ >= every_ms;
    double due = mine ? 1 : 0;
    group_.sum(std::span(&due, 1));
    return due != 0;
  }
  // Between steps: all ranks stop at the same one.
  bool all_stop() {
    if (!stop_why_) stop_why_ = observer_.stop_reason();
    stop_why_ = group_.agree(stop_why_);
    return stop_why_.has_value();
  }
  ShouldStop stop_asked() {
    return [this] {
      if (!stop_why_) stop_why_ = observer_.stop_reason();
      return stop_why_.has_value();
    };
  }
  // An error of an evaluation or a measurement, as an end.
  EndReport failed(const Status& status) {
    if (status.code() == Code::kCancelled && all_stop()) return stopped(*stop_why_);
    return ended(data_class(status), status.message(), done_);
  }
  std::int64_t tokens_done() const { return done_ * spec_.train.batch_tokens; }
  // The batch of step `done_` on the device;
  // a GPU has it from send_batch already, but for the first.
  Result<Batch> next_batch() {
    if (decoder_.device().is_cpu()) return batch_of(done_);
    if (!staging_.sent()) TAILOR_RETURN_IF_ERROR(send_batch(done_));
    return staging_.take();
  }
  Status send_batch(std::int64_t step) {
    const Result<Batch> batch = batch_of(step);
    if (!batch) return batch.error();
    staging_.host().tokens.copy_(batch->tokens);
    staging_.host().targets.copy_(batch->targets);
    staging_.send();
    return Status::ok();
  }
  Result<Batch> batch_of(std::int64_t step) const {
    return data_.batch(static_cast<std::uint64_t>(step * plan_.rows + share_.begin), share_.count);
  }

  const TrialSpec& spec_;
  const TrialHost& host_;
  const TrialPaths& paths_;
  TrialObserver& observer_;
  const Clock& clock_;
  const TrialData& data_;
  ranks::Group& group_;
  const Plan plan_;
  const ranks::Share share_;  // of the rows of a batch
  const std::string identity_;
  net::Decoder decoder_;
  AdamW optimizer_;
  TrainStep step_;
  const int ranks_;
  std::optional<GraphedStep> graphed_;  // over `step_`, on a GPU
  Staging staging_;
  std::optional<CheckpointWriter> writer_;  // of rank 0

  std::int64_t done_ = 0;       // optimiser steps done
  std::int64_t skipped_ = 0;    // of those, steps left out since they were not finite
  std::int64_t saved_ = -1;     // step of the newest checkpoint, -1 = none
  std::string saved_path_;      // of the newest checkpoint that is known to be good
  Status save_failure_;         // of the last attempt to save
  MonotonicMs saved_ms_ = 0;    // when the last attempt was over
  std::optional<double> best_;  // lowest validation loss so far
  double loss_ = 0;             // of the last step whose numbers were read
  double norm_ = 0;
  StepNumbers unread_{decoder_.device()};  // of the steps before `done_`
  std::optional<std::string> stop_why_;
  Speed speed_;   // of this run
  Speed window_;  // since the last report
};

// Which checkpoints of an earlier run may be gone on from, beside those of this trial.
struct Trial::Earlier {
  std::string identity;       // "" = none
  std::int64_t steps = 0;     // up to here
  std::int64_t of_steps = 0;  // all that it was to have
};

Trial::Earlier Trial::earlier() const {
  if (!paths_.earlier || !paths_.earlier->spec) return {};
  TrialSpec before = *paths_.earlier->spec;
  Earlier out;
  out.identity = trial_identity(before, data_.hash());
  out.of_steps = plan_of(before).steps;
  before.train.tokens = spec_.train.tokens;
  if (trial_identity(before, data_.hash()) == identity_) {
    out.steps =
        common_steps(spec_.train.schedule, spec_.train.optimizer.lr, out.of_steps, plan_.steps);
  }
  return out;
}

// Why nothing that an earlier run left can be gone on from, and what to do.
Status Trial::cannot_go_on(const Earlier& before, bool other_data) const {
  const EarlierRun run = paths_.earlier.value_or(EarlierRun());
  const std::string why =
      !run.spec ? "its checkpoints are of another trial; which fields differ was not recorded"
      : other_data && run.changes.empty()
          ? "the data under data.train or data.validation are not those it was trained on"
      : before.steps == 0 ? "its checkpoints are of another trial"
      : before.steps < std::min(before.of_steps, plan_.steps)
          ? fmt::format(
                "with this schedule the learning rate from step {} on depends on the number "
                "of steps ({}, was {}), and no checkpoint is as early as that",
                before.steps + 1, plan_.steps, before.of_steps)
          : "no checkpoint of it is left";
  return Status(
      Code::kFailedPrecondition,
      fmt::format(
          "this directory holds a {} trial{}{}; it cannot be gone on with: {}. Put back "
          "what was changed, or copy spec.json into a new directory and run that: it trains "
          "from the beginning",
          run.completed ? "completed" : "started",
          run.changes.empty() ? "" : ", and spec.json was changed since: ", run.changes, why));
}

// The path of the checkpoint, "" for a fresh start.
Result<std::string> Trial::resume_or_initialise() {
  std::vector<std::string> folders{paths_.checkpoints};
  folders.insert(folders.end(), spec_.resume_from.begin(), spec_.resume_from.end());
  bool other_here = false;  // a checkpoint of another trial is in this trial's own folder
  const auto skipped = [&](const std::string& path, const Status& reason) {
    log_warn("trainer", "checkpoint skipped", {{"path", path}, {"reason", reason.to_string()}});
    other_here = other_here || (reason.code() == Code::kFailedPrecondition &&
                                path.starts_with(paths_.checkpoints + "/"));
  };
  const Earlier before = earlier();
  const auto usable = [&](const CheckpointState& state) {
    if (state.identity == identity_) return Status::ok();
    if (state.identity != before.identity) {
      return Status(Code::kFailedPrecondition,
                    "it belongs to another trial (shape, recipe, seed or data differ)");
    }
    if (state.step <= before.steps) return Status::ok();
    return Status(Code::kFailedPrecondition,
                  "it is of this trial before spec.json was changed, and beyond the step to which "
                  "both are the same");
  };
  const std::optional<CheckpointInfo> found = newest_checkpoint(folders, usable, skipped);
  const bool completed = paths_.earlier && paths_.earlier->completed;
  if (!found && (other_here || completed)) {
    return error(cannot_go_on(before, other_here));
  }
  if (!found) {
    decoder_.initialise(spec_.seed, [&](const net::Part& part) {
      return initial_scale(part, spec_.train, spec_.architecture);
    });
    return std::string();
  }
  TAILOR_RETURN_IF_ERROR(load_checkpoint(*found, decoder_, optimizer_).with_context("resume"));
  done_ = found->state.step;
  skipped_ = found->state.skipped;
  loss_ = found->state.train_loss;
  best_ = found->state.best_validation_loss;
  saved_path_ = found->path;
  // A checkpoint of an earlier attempt is not in this attempt's folder yet.
  if (found->path.starts_with(paths_.checkpoints + "/")) saved_ = done_;
  log_info("trainer", "resumed", {{"step", std::to_string(done_)}, {"path", found->path}});
  return found->path;
}

// Other ranks take over what rank 0 has: no other needs to see its checkpoints.
std::optional<EndReport> Trial::be_as_the_first() {
  const std::vector<std::string> identities = group_.gather(identity_);
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    if (identities[rank] == identities[0]) continue;
    return ended(
        EndClass::kData,
        fmt::format("rank {} would train something else than rank 0: it has other data under "
                    "data.train or data.validation, or multiplies bf16 on another kind of "
                    "CPU",
                    rank),
        0);
  }
  const double first = group_.is_first() ? 1 : 0;
  std::vector<double> state = {first * static_cast<double>(done_),
                               first * static_cast<double>(skipped_), first * loss_,
                               first * (best_ ? 1 : 0), first * best_.value_or(0)};
  group_.sum(state);
  group_.copy_from_first(decoder_.parameters().flat().detach());
  group_.copy_from_first(optimizer_.first_moment());
  group_.copy_from_first(optimizer_.second_moment());
  // Reading the sums waits for the device.
  const std::vector<double> taken_over = {sum_of(decoder_.parameters().flat().detach()),
                                          sum_of(optimizer_.first_moment()),
                                          sum_of(optimizer_.second_moment())};
  group_.confirm(taken_over, "weights and moments that rank 0 gave to all");
  if (group_.is_first()) return std::nullopt;
  done_ = static_cast<std::int64_t>(state[0]);
  skipped_ = static_cast<std::int64_t>(state[1]);
  loss_ = state[2];
  if (state[3] != 0) best_ = state[4];
  optimizer_.set_steps(done_, skipped_);
  decoder_.parameters().refresh();
  return std::nullopt;
}

std::optional<EndReport> Trial::start() {
  decoder_.set_recompute(spec_.train.recompute);
  std::string resumed_from;
  if (group_.is_first()) {
    Result<std::string> found = resume_or_initialise();
    if (!found) {
      const bool changed = found.error().code() == Code::kFailedPrecondition;
      return ended(changed ? EndClass::kUser : data_class(found.error()), found.error().message(),
                   0);
    }
    resumed_from = std::move(*found);
  }
  if (ranks_ > 1) {
    if (auto end = be_as_the_first()) return end;
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
  report.device =
      ranks_ > 1 ? fmt::format("{} x {}", ranks_, host_.device_name) : host_.device_name;
  report.version = host_.version;
  report.data_hash = data_.hash();
  report.resumed_step = done_;
  report.resumed_from = resumed_from;
  report.parameters_body = counts.body;
  report.parameters_total = counts.total;
  report.steps_total = plan_.steps;
  return say(std::move(report));
}

std::optional<EndReport> Trial::train() {
  while (done_ < plan_.steps) {
    if (all_stop()) return stopped(*stop_why_);
    if (auto end = take_checkpoint(/*wait=*/false)) return end;
    observer_.before_step(done_, decoder_);
    const MonotonicMs begin_ms = clock_.now_ms();
    const Result<Batch> batch = next_batch();
    if (!batch) return ended(data_class(batch.error()), batch.error().message(), done_);
    const double lr =
        learning_rate(spec_.train.schedule, spec_.train.optimizer.lr, done_, plan_.steps);
    const at::Tensor numbers = graphed_ ? graphed_->run(batch->tokens, batch->targets, lr)
                                        : step_.run(batch->tokens, batch->targets, lr);
    // While a GPU is at work, the next batch goes there;
    // what fails will fail again when it is needed.
    if (!numbers.device().is_cpu() && done_ + 1 < plan_.steps) (void)send_batch(done_ + 1);
    if (auto end = after_step(numbers)) return end;
    const auto took_ms = static_cast<double>(clock_.now_ms() - begin_ms);
    speed_.add(spec_.train.batch_tokens, took_ms);
    window_.add(spec_.train.batch_tokens, took_ms);

    const bool last = done_ == plan_.steps;
    if (last || done_ % spec_.train.log_every_steps == 0) {
      if (auto end = report_step(lr)) return end;
    }
    const std::int64_t every = spec_.train.evaluate_every_tokens;
    const std::int64_t before = tokens_done() - spec_.train.batch_tokens;
    if (!last && every > 0 && tokens_done() / every > before / every) {
      if (auto end = evaluate_now()) return end;
    }
    if (!last && all_save()) {
      if (auto end = start_checkpoint()) return end;
    }
  }
  return std::nullopt;
}

std::optional<EndReport> Trial::after_step(const at::Tensor& numbers) {
  ++done_;
  unread_.push(numbers);
  // On a GPU, reading waits for it: only when somebody wants the numbers.
  if (numbers.device().is_cpu()) return read_numbers();
  return std::nullopt;
}

std::optional<EndReport> Trial::read_numbers() {
  std::int64_t step = done_ - unread_.unread() - 1;
  // Waiting for a GPU is time of its steps.
  const MonotonicMs begin_ms = clock_.now_ms();
  const std::vector<std::array<double, 2>> numbers = unread_.read();
  const auto waited_ms = static_cast<double>(clock_.now_ms() - begin_ms);
  speed_.add(0, waited_ms);
  window_.add(0, waited_ms);
  if (!numbers.empty()) {
    // The last step's, and the sums of all: a step that one rank saw otherwise shows in either.
    std::array<double, 4> seen = {numbers.back()[0], numbers.back()[1], 0, 0};
    for (const std::array<double, 2>& values : numbers) {
      seen[2] += values[0];
      seen[3] += values[1];
    }
    group_.confirm(seen, fmt::format("loss and gradient norm up to step {}", done_));
  }
  for (const std::array<double, 2>& values : numbers) {
    ++step;
    if (std::isfinite(values[0]) && std::isfinite(values[1])) {
      loss_ = values[0];
      norm_ = values[1];
      continue;
    }
    if (++skipped_ > spec_.train.nan_skip_limit) return not_finite(step, values[0], values[1]);
    log_warn("trainer", "step skipped: it is not finite",
             {{"step", std::to_string(step + 1)},
              {"loss", fmt::format("{}", values[0])},
              {"gradient_norm", fmt::format("{}", values[1])},
              {"skipped", fmt::format("{} of at most {}", skipped_, spec_.train.nan_skip_limit)}});
  }
  return std::nullopt;
}

EndReport Trial::not_finite(std::int64_t step, double loss, double norm) {
  // The optimiser has skipped this step and all later ones:
  // the weights are those that made the number.
  const Result<Batch> batch = batch_of(step);
  std::string what = batch ? find_nonfinite(decoder_, batch->tokens, batch->targets)
                           : std::string(kNothingNonfinite);
  // It may be in the rows of any rank.
  const std::vector<std::string> found = group_.gather(what);
  for (std::size_t rank = 0; rank < found.size() && what == kNothingNonfinite; ++rank) {
    what = found[rank];
  }
  // The checkpoint under way is of an earlier, good step.
  if (auto end = take_checkpoint(/*wait=*/true)) return *end;
  const std::string skipped =
      skipped_ > 1 ? fmt::format(" {} steps before it were skipped.", skipped_ - 1) : "";
  EndReport report = ended(
      EndClass::kNan,
      fmt::format(
          "step {}: loss {}, gradient norm {}; first not finite: {}.{} Last good checkpoint: {}. "
          "Lower train.optimizer.lr or lengthen the warm-up.",
          step + 1, loss, norm, what, skipped, saved_path_.empty() ? "none" : saved_path_),
      step + 1);
  report.values = {{"train_loss", loss}, {"grad_norm", norm}};
  return report;
}

std::optional<EndReport> Trial::report_step(double lr) {
  if (auto end = read_numbers()) return end;
  protocol::MetricReport metric;
  metric.step = done_;
  metric.tokens = tokens_done();
  metric.values = {{"train_loss", loss_}, {"lr", lr}, {"grad_norm", norm_}};
  if (skipped_ > 0) metric.values["skipped_steps"] = static_cast<double>(skipped_);
  const double speed = window_.tokens_per_s();
  if (std::isfinite(speed)) metric.values["tokens_per_s"] = speed;
  window_ = {};
  if (const double wait = data_.take_wait_ms(); std::isfinite(wait)) {
    metric.values["data_wait_ms"] = wait;
  }
  return say(std::move(metric));
}

std::optional<EndReport> Trial::report_evaluation(const Evaluation& evaluation) {
  protocol::MetricReport metric;
  metric.step = done_;
  metric.tokens = tokens_done();
  metric.values = evaluation_values(evaluation, data_.validation(), spec_.seed);
  return say(std::move(metric));
}

std::optional<EndReport> Trial::evaluate_now() {
  // Weights that a bad step made, on a GPU that runs ahead, are never scored.
  if (auto end = read_numbers()) return end;
  const auto result =
      evaluate(decoder_, data_.evaluation(), plan_.evaluation_rows, stop_asked(), group_);
  if (!result) return failed(result.error());
  if (auto end = report_evaluation(*result)) return end;
  if (best_ && *best_ <= result->loss) return std::nullopt;
  best_ = result->loss;
  return spec_.train.keep_best ? start_checkpoint(result->loss) : std::nullopt;
}

std::optional<EndReport> Trial::start_checkpoint(std::optional<double> validation_loss) {
  if (auto end = read_numbers()) return end;  // never save what a bad step made
  if (!writer_) return std::nullopt;
  if (auto end = take_checkpoint(/*wait=*/true)) return end;
  if (saved_ == done_) return std::nullopt;
  CheckpointState state;
  state.step = done_;
  state.tokens = tokens_done();
  state.next_sample = static_cast<std::uint64_t>(done_ * plan_.rows);
  state.train_loss = loss_;
  state.skipped = skipped_;
  state.validation_loss = validation_loss;
  state.best_validation_loss = best_;
  state.identity = identity_;
  save_failure_ = writer_->start(state);
  if (!save_failure_) {
    saved_ms_ = clock_.now_ms();
    log_warn("trainer", "checkpoint failed; training goes on",
             {{"reason", save_failure_.to_string()}});
  }
  return std::nullopt;
}

std::optional<EndReport> Trial::take_checkpoint(bool wait) {
  if (!writer_) return std::nullopt;
  const auto outcome = wait ? writer_->wait() : writer_->poll();
  if (!outcome) return std::nullopt;
  saved_ms_ = clock_.now_ms();
  save_failure_ = status_of(*outcome);
  if (!save_failure_) {
    log_warn("trainer", "checkpoint failed; training goes on",
             {{"reason", save_failure_.to_string()}});
    return std::nullopt;
  }
  const CheckpointInfo& saved = **outcome;
  saved_ = saved.state.step;
  saved_path_ = saved.path;
  protocol::CheckpointReport report;
  report.step = saved_;
  report.path = saved.path;
  report.sha256 = saved.manifest_sha256;
  report.bytes = saved.bytes;
  return say(std::move(report));
}

std::optional<EndReport> Trial::require_checkpoint() {
  if (auto end = start_checkpoint()) return end;
  if (auto end = take_checkpoint(/*wait=*/true)) return end;
  if (!writer_ || saved_ == done_) return std::nullopt;
  return ended(EndClass::kInfrastructure, save_failure_.message(), done_);
}

EndReport Trial::stopped(const std::string& why) {
  const std::optional<EndReport> failure = require_checkpoint();
  if (failure && failure->end == EndClass::kNan) return *failure;
  EndReport report =
      ended(EndClass::kStopped,
            !writer_  ? fmt::format("{} at step {}", why, done_)
            : failure ? fmt::format("{} at step {}; no checkpoint could be saved: {}", why, done_,
                                    failure->message)
                      : fmt::format("{} at step {}; checkpoint {}", why, done_, saved_path_),
            done_);
  report.values = {{"train_loss", loss_}};
  return report;
}

std::optional<EndReport> Trial::measure() {
  // The GPU that trained has nothing else to do now; what it cannot do the CPU does, to the same
  // bits.
  std::unique_ptr<geometry::Accelerator> accelerator;
  if (const at::Device device = decoder_.device(); !device.is_cpu()) {
    const int index = static_cast<int>(device.index());
    auto opened = geometry::open_accelerator(fmt::format("cuda:{}", index));
    if (opened) {
      accelerator = *std::move(opened);
    } else {
      log_warn("trainer", "the work profile is measured on the CPU",
               {{"reason", opened.error().message()}});
    }
  }
  const auto work = measure_trial(decoder_, data_.evaluation(), spec_, plan_.evaluation_rows,
                                  stop_asked(), accelerator.get());
  if (accelerator && !accelerator->status().is_ok()) {
    log_warn("trainer", "a part of the work profile was measured on the CPU",
             {{"reason", accelerator->status().message()}});
  }
  if (!work) {
    if (work.error().code() == Code::kCancelled) return failed(work.error());
    log_warn("trainer", "there is no work profile", {{"reason", work.error().message()}});
    protocol::ProfileReport report;
    report.step = done_;
    report.failure = work.error().message();
    return say(std::move(report));
  }
  if (!work->dimension_failure.empty()) {
    log_warn("trainer", "the profile has no dimensions", {{"reason", work->dimension_failure}});
  }
  const Status written = write_file_atomic(paths_.artifacts + "/work_profile.json",
                                           work_profile_json(*work, spec_, done_));
  if (!written) return ended(EndClass::kInfrastructure, written.message(), done_);
  return say(to_report(*work, done_));
}

EndReport Trial::finish() {
  // Written while the validation data is scored.
  if (auto end = start_checkpoint()) return *end;
  const auto result =
      evaluate(decoder_, data_.evaluation(), plan_.evaluation_rows, stop_asked(), group_);
  if (!result) return failed(result.error());
  // What is left is rank 0's alone.
  group_.leave();
  if (!group_.is_first()) return ended(EndClass::kCompleted, "trained to the end", done_);
  if (auto end = report_evaluation(*result)) return *end;
  if (auto end = require_checkpoint()) return *end;
  const data::ExportedTokenizer tokenizer = data::tokenizer_of_dataset(data_.train());
  if (!tokenizer.missing.empty()) {
    log_warn("trainer", "the export holds no tokenizer", {{"reason", tokenizer.missing}});
  }
  Status written =
      export_weights(decoder_, spec_.architecture, plan_.time, tokenizer, paths_.artifacts);
  if (written) written = write_blocks(*result, paths_.artifacts);
  if (!written) {
    return ended(EndClass::kInfrastructure,
                 "the weights could not be exported: " + written.message(), done_);
  }
  if (spec_.geometry.enabled) {
    if (auto end = measure()) return *end;
  }
  EndReport report =
      ended(EndClass::kCompleted,
            fmt::format("trained {} tokens in {} steps", tokens_done(), done_), done_);
  report.values = evaluation_values(*result, data_.validation(), spec_.seed);
  report.values["train_loss"] = loss_;
  report.values["parameters"] =
      static_cast<double>(shape::count_parameters(spec_.architecture).total);
  if (skipped_ > 0) {
    report.message += fmt::format("; {} steps were skipped since they were not finite", skipped_);
    report.values["skipped_steps"] = static_cast<double>(skipped_);
  }
  const double speed = speed_.tokens_per_s();
  if (std::isfinite(speed)) report.values["tokens_per_s"] = speed;
  return report;
}

}  // namespace

bool newest_is_of(const std::string& folder, const TrialSpec& spec, const std::string& data_hash) {
  const auto any = [](const CheckpointState&) { return Status::ok(); };
  const auto found = newest_checkpoint({folder}, any, [](const std::string&, const Status&) {});
  return !found || found->state.identity == trial_identity(spec, data_hash);
}

EndReport run_trial(const TrialSpec& spec, at::Device device, const TrialHost& host,
                    const TrialPaths& paths, TrialObserver& observer, const Clock& clock) {
  ranks::Group alone;
  return run_trial(spec, device, host, paths, observer, clock, alone);
}

EndReport run_trial(const TrialSpec& spec, at::Device device, const TrialHost& host,
                    const TrialPaths& paths, TrialObserver& observer, const Clock& clock,
                    ranks::Group& group) {
  if (const Status status = validate_trial(spec); !status) {
    return ended(EndClass::kUser, status.message(), 0);
  }
  if (plan_of(spec).rows < group.size()) {
    return ended(
        EndClass::kUser,
        fmt::format("train.batch_tokens is {}, {} sequences; {} ranks need at least one each",
                    spec.train.batch_tokens, plan_of(spec).rows, group.size()),
        0);
  }
  at::set_num_threads(spec.threads);
  const auto data = TrialData::open(spec);
  if (!data) return ended(data_class(data.error()), data.error().message(), 0);
  Trial trial(spec, device, host, paths, observer, clock, **data, group);
  return trial.run();
}

}  // namespace tailor::train
