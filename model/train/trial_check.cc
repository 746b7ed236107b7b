// validate_trial: every field of a spec against what it may be.
#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "model/train/trial.h"

namespace tailor::train {
namespace {

constexpr std::string_view kCount = "a whole number >= 1 is needed";
constexpr std::string_view kZeroOrMore = "0 or more is allowed";
constexpr std::string_view kPositive = "a finite number > 0 is needed";

// Keeps the first thing that is wrong.
class Check {
 public:
  template <typename T>
  void require(bool holds, std::string_view field, const T& value, std::string_view allowed) {
    if (holds || !status_) return;
    status_ = Status(Code::kInvalidArgument, fmt::format("{} is {}; {}", field, value, allowed));
  }
  template <typename T>
  void at_least(T lowest, std::string_view field, T value, std::string_view allowed) {
    require(value >= lowest, field, value, allowed);
  }
  void positive(std::string_view field, double value) {
    require(std::isfinite(value) && value > 0, field, value, kPositive);
  }
  void not_negative(std::string_view field, double value) {
    require(std::isfinite(value) && value >= 0, field, value, kZeroOrMore);
  }
  /// In [0, 1).
  void share(std::string_view field, double value) {
    require(value >= 0 && value < 1, field, value, "[0, 1) is allowed");
  }
  Status status() const { return status_; }

 private:
  Status status_;
};

void check_optimizer(const protocol::OptimizerSpec& adam, Check& check) {
  check.positive("train.optimizer.lr", adam.lr);
  check.share("train.optimizer.beta1", adam.beta1);
  check.share("train.optimizer.beta2", adam.beta2);
  check.positive("train.optimizer.eps", adam.eps);
  check.not_negative("train.optimizer.weight_decay", adam.weight_decay);
  check.not_negative("train.optimizer.clip", adam.clip);
  check.at_least<std::int64_t>(1, "train.optimizer.mup_base_width", adam.mup_base_width, kCount);
}

void check_schedule(const protocol::LrScheduleSpec& schedule, Check& check) {
  check.share("train.schedule.warmup_fraction", schedule.warmup_fraction);
  check.at_least<std::int64_t>(-1, "train.schedule.warmup_steps", schedule.warmup_steps,
                               "-1 (the fraction counts), 0 or more is allowed");
  check.require(schedule.final_fraction >= 0 && schedule.final_fraction <= 1,
                "train.schedule.final_fraction", schedule.final_fraction, "[0, 1] is allowed");
  check.require(schedule.decay_fraction > 0 && schedule.decay_fraction <= 1,
                "train.schedule.decay_fraction", schedule.decay_fraction, "(0, 1] is allowed");
}

void check_train(const protocol::TrainSpec& train, std::int64_t time, Check& check) {
  check.at_least<std::int64_t>(1, "train.tokens", train.tokens, kCount);
  check.require(time >= 1 && train.batch_tokens >= time && train.batch_tokens % time == 0,
                "train.batch_tokens", train.batch_tokens,
                fmt::format("a multiple of data.sequence_length ({}) is needed", time));
  check.require(time >= 1 && train.micro_batch_tokens >= 0 && train.micro_batch_tokens % time == 0,
                "train.micro_batch_tokens", train.micro_batch_tokens,
                fmt::format("0 (the whole batch) or a multiple of data.sequence_length ({}) is "
                            "needed",
                            time));
  check_optimizer(train.optimizer, check);
  check_schedule(train.schedule, check);
  check.at_least<std::int64_t>(1, "train.log_every_steps", train.log_every_steps, kCount);
  check.at_least<std::int64_t>(0, "train.evaluate_every_tokens", train.evaluate_every_tokens,
                               "0 (at the end only) or more is allowed");
  check.at_least<std::int64_t>(0, "train.checkpoint_every_ms", train.checkpoint_every_ms,
                               "0 (at the end only) or more is allowed");
  check.at_least<std::int64_t>(0, "train.validation_tokens", train.validation_tokens,
                               "0 (all) or more is allowed");
  check.not_negative("train.init_std", train.init_std);
  check.not_negative("train.z_loss", train.z_loss);
  check.at_least(1, "train.keep_last", train.keep_last, kCount);
  check.at_least(0, "train.nan_skip_limit", train.nan_skip_limit,
                 "0 (the first one ends the trial) or more is allowed");
}

void check_geometry(const protocol::GeometrySpec& geometry, std::int32_t layers, Check& check) {
  if (!geometry.enabled) return;
  check.at_least(1, "geometry.tokens", geometry.tokens, kCount);
  check.at_least(1, "geometry.subsamples", geometry.subsamples, kCount);
  check.require(geometry.rho > 0 && geometry.rho < 1, "geometry.rho", geometry.rho,
                "(0, 1) is allowed");
  for (const std::int32_t layer : geometry.layers) {
    check.require(layer >= 0 && layer < layers, "geometry.layers", layer,
                  fmt::format("0 to {} is allowed", layers - 1));
  }
}

}  // namespace

Status validate_trial(const protocol::TrialSpec& spec) {
  TAILOR_RETURN_IF_ERROR(shape::validate(spec.architecture).with_context("architecture"));
  Check check;
  check.at_least(1, "data.sequence_length", spec.data.sequence_length, kCount);
  check_train(spec.train, spec.data.sequence_length, check);
  check.at_least(1, "threads", spec.threads, kCount);
  check_geometry(spec.geometry, spec.architecture.layers(), check);
  return check.status();
}

}  // namespace tailor::train
